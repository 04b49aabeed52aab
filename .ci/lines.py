"""Print the lines of Python in each folder beside its budget (`budget.toml`); exit with 1 where one is exceeded.

A folder of the list counts what lies under it, less what another folder of the list counts.
"""

import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]


def counted(folders: list[str]) -> Counter[str]:
    """Return the lines of each folder, of those that it is the longest beginning of."""
    lines: Counter[str] = Counter()
    for top in {folder.split("/")[0] for folder in folders}:
        for path in (ROOT / top).rglob("*.py"):
            place = path.relative_to(ROOT).as_posix()
            home = max((folder for folder in folders if place.startswith(folder + "/")), key=len, default=top)
            lines[home] += len(path.read_text(encoding="utf-8").splitlines())
    return lines


def main() -> int:
    """Compare each folder with its budget."""
    budget = tomllib.loads((ROOT / "budget.toml").read_text(encoding="utf-8"))["lines"]
    found = counted(list(budget))
    for folder in sorted({*budget, *found}):
        most, *goal = budget.get(folder, [0])
        note = f"goal {goal[0]:,}" if goal else ""
        over = "  EXCEEDED" if found[folder] > most else ""
        sys.stdout.write(f"{folder:22} {found[folder]:7,} of {most:7,}  {note}{over}\n")
    total = sum(found.values())
    sys.stdout.write(f"{'together':22} {total:7,} of {sum(row[0] for row in budget.values()):7,}\n")
    return int(any(found[folder] > budget.get(folder, [0])[0] for folder in found))


if __name__ == "__main__":
    sys.exit(main())
