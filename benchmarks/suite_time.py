"""What the tests cost: processor time by folder and the ten longest, from a record of `pytest --cpu-seconds FILE`.

    python benchmarks/suite_time.py FILE...

A test that was run more than once counts as it was last. Prints two tables; `results/test_time.md` holds the last ones.
"""

import sys
from collections import defaultdict
from pathlib import Path

LONGEST = 10


def costs_of(paths: list[str]) -> dict[str, float]:
    """Return the CPU seconds of each test, by its name."""
    lines = [line for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return {name: float(seconds) for seconds, name in (line.split(" ", 1) for line in lines)}


def folder_of(name: str) -> str:
    """Return the folder of a test, at most three names deep."""
    return "/".join(Path(name.split("::", maxsplit=1)[0]).parts[:-1][:3])


def main(paths: list[str]) -> None:
    """Print the tables."""
    costs = costs_of(paths)
    folders: dict[str, list[float]] = defaultdict(list)
    for name, seconds in costs.items():
        folders[folder_of(name)].append(seconds)
    print("| folder | tests | CPU seconds |\n|---|---|---|")
    for folder, spent in sorted(folders.items(), key=lambda item: -sum(item[1])):
        print(f"| `{folder}` | {len(spent)} | {sum(spent):.0f} |")
    print(f"| all of these | {len(costs)} | {sum(costs.values()):.0f} |\n\n| longest | CPU seconds |\n|---|---|")
    for name, seconds in sorted(costs.items(), key=lambda item: -item[1])[:LONGEST]:
        print(f"| `{name}` | {seconds:.1f} |")


if __name__ == "__main__":
    main(sys.argv[1:])
