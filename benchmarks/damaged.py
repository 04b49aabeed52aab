"""Plans of other systems, damaged: is each one read, or refused in one line?

    python benchmarks/damaged.py [--times 2000] [--seed N] [--only WORD] [--out FILE]

Every file of tests/data/plans is cut, and some of its bytes are changed, as the tests do it with fewer (`law_of_damage`, tests/plan_laws.py). The
format is found by the content; a text of a dump of XLA is read with the others of its folder. Exit status 1 where a file ended in anything but a document or one line.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import Found, kept, run

from plan_laws import PLANS, law_of_damage

from allocsim import systems
from allocsim.model import Document

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


def measure(*, times: int = 2000, seed: int = 0, only: str = "", out: Path) -> Iterator[Found]:
    """Damage and count; what was damaged before and is not asked for now keeps its row."""
    rows = {row["file"]: row for row in kept(out).get("rows", ())}
    for path in sorted(PLANS.rglob("*")):
        name = str(path.relative_to(PLANS))
        if not path.is_file() or path.suffix in OTHER or only not in name:
            continue
        row = {"file": name, "times": times, "seed": seed}
        try:
            row |= damaged(path, seed, times)
        except Exception as error:  # noqa: BLE001 - whatever else comes is what this looks for
            row |= {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        rows[name] = row
        print(json.dumps(row), flush=True)
        every = [rows[key] for key in sorted(rows)]
        yield {"rows": every, "odd": [row["file"] for row in every if "error" in row]}


if __name__ == "__main__":
    run(measure, failed="odd")
