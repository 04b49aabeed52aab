"""Plans of other systems, damaged: is each one read, or refused in one line?

    python benchmarks/damaged.py [--times 2000] [--seed N] [--only WORD] [--out FILE]

Every file of tests/data/plans is cut, and some of its bytes are changed, as the tests do it with fewer (`law_of_damage`, tests/plan_laws.py). The
format is found by the content; a text of a dump of XLA is read with the others of its folder. Exit status 1 where a file ended in anything but a document or one line.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]  # this checkout, installed or not

from plan_laws import PLANS, law_of_damage  # noqa: E402 - after the path above

from allocsim import systems  # noqa: E402 - as above
from allocsim.model import Document  # noqa: E402 - as above

OTHER = (".md", ".mlir")
"""Endings of files that are no plans."""


def damaged(path: Path, seed: int, times: int) -> dict[str, int]:
    """Return how many damaged copies were read, and how many were refused."""
    data = path.read_bytes()
    if path.parent.parent.name != "xla" or path.suffix == ".pb":
        loads = systems.FORMATS[systems.detect(data[: systems.HEAD])].loads
        return dict(zip(("read", "refused"), law_of_damage(data, loads, seed, times), strict=True))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "dump"  # the texts of a dump are read together
        shutil.copytree(path.parent, folder, ignore=shutil.ignore_patterns("*.pb"))

        def load(changed: bytes, _source: str) -> Document:
            (folder / path.name).write_bytes(changed)
            return systems.load(folder)

        return dict(zip(("read", "refused"), law_of_damage(data, load, seed, times), strict=True))


def main() -> int:
    """Damage, count and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "damaged.json")
    options = parser.parse_args()
    old = json.loads(options.out.read_text(encoding="utf-8"))["rows"] if options.out.is_file() else []
    rows = {row["file"]: row for row in old}
    for path in sorted(PLANS.rglob("*")):
        name = str(path.relative_to(PLANS))
        if not path.is_file() or path.suffix in OTHER or options.only not in name:
            continue
        begin = time.process_time()
        row = {"file": name, "times": options.times, "seed": options.seed}
        try:
            row |= damaged(path, options.seed, options.times)
        except Exception as error:  # noqa: BLE001 - whatever else comes is what this looks for
            row |= {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        rows[name] = row
        print(json.dumps(row), f"{time.process_time() - begin:.1f} s", flush=True)
        options.out.write_text(
            json.dumps({"rows": [rows[key] for key in sorted(rows)]}, indent=1) + "\n", encoding="utf-8"
        )
    return int(any("error" in row for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
