"""The judge against mutants of the planners: of those that lose a byte, how many does it convict?

    python benchmarks/mutants.py [--count N] [--seed S] [--programs P] [--out FILE]

cosmic-ray (`pip install 'allocsim[mutants]'`) makes mutants of `allocsim/allocators` and `allocsim/liveness`; a seeded sample of them plans a corpus of generated
programs and of real ggml's graphs, each in a process of its own. What a mutant answers otherwise than the planners as they are is judged twice: by a
byte-wise replay that knows nothing of the judge (`tests/adversary.py`), and by the judge (S and L). `tests/nursery.py` has the definitions.

The JSON is written after every mutant; run again, it goes on where it stopped, and begins anew where sources, sample or corpus are others. Beside it comes
a Markdown file with every mutant, and of each survivor why it survives. Exit status 1 where a mutant that is unsound by replay escapes the judge.
"""

import argparse
import hashlib
import json
import os
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ["NUMBA_DISABLE_JIT"] = (
    "1"  # before numba is imported: compiled code would be kept on disk under the name of the file
)
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

from mutation import ROOT, Mutant, sample, sources  # noqa: E402 - after the paths above
from nursery import Nursery, Outcome, corpus  # noqa: E402
from survivors import argue  # noqa: E402

from allocsim.files import write_atomic  # noqa: E402


def main() -> int:
    """Raise the sample, write what became of it; return the exit status."""
    parser = argparse.ArgumentParser(description="The judge against mutants of the planners.")
    parser.add_argument("--count", type=int, default=330)
    parser.add_argument("--seed", type=int, default=1501)
    parser.add_argument("--programs", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at once")
    parser.add_argument("--no-dumps", action="store_true", help="generated programs only")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "mutants.json")
    options, _ = parser.parse_known_args()
    about = {
        "count": options.count,
        "seed": options.seed,
        "programs": options.programs,
        "dumps": not options.no_dumps,
        "sources": hashlib.sha256(b"".join((ROOT / path).read_bytes() for path in sources())).hexdigest()[:16],
    }
    rows = _kept(options.out, about)
    wanted = sample(options.count, options.seed)
    known = {_identity(row) for row in rows}
    missing = [mutant for mutant in wanted if (mutant.path, mutant.operator, mutant.occurrence) not in known]
    if missing:
        nursery = Nursery.of(corpus(options.programs, options.seed, dumps=not options.no_dumps))
        about |= {"answers": len(nursery.base), "unsound as it is": len(nursery.broken)}
        begun = [nursery.begin(mutant) for mutant in missing[: options.jobs]]
        for number, mutant in enumerate(missing):
            row = _row(mutant, nursery, nursery.end(begun[number]))
            begun += [nursery.begin(further) for further in missing[number + options.jobs :][:1]]
            rows.append(row)
            _write(options.out, about, rows)
            print(
                f"{len(rows)}/{len(wanted)} {row['outcome']:12} {row['path']}:{row['line']} {row['becomes']}",
                flush=True,
            )
    else:
        about = json.loads(options.out.read_text())["about"]
    _write(options.out, about, rows)
    for line in _summary(rows):
        print(line)
    return int(any(row["escaped"] or row["disagree"] for row in rows))


def _row(mutant: Mutant, nursery: Nursery, outcome: Outcome) -> dict[str, Any]:
    was, becomes = mutant.change()
    reached = (mutant.path, mutant.line) in nursery.reached
    return asdict(mutant) | {"was": was, "becomes": becomes, "reached": reached} | asdict(outcome)


def _identity(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["path"], row["operator"], row["occurrence"]


def _kept(path: Path, about: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an earlier run of the same sample."""
    if not path.exists():
        return []
    record = json.loads(path.read_text())
    same = all(record["about"].get(name) == value for name, value in about.items())
    return list(record["rows"]) if same else []


def _write(path: Path, about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"about": about, "outcomes": Counter(row["outcome"] for row in rows), "rows": rows}
    write_atomic(path, json.dumps(record, indent=1).encode() + b"\n")
    write_atomic(path.with_suffix(".md"), "\n".join(_page(about, rows)).encode() + b"\n")


def _summary(rows: list[dict[str, Any]]) -> list[str]:
    unsound = [row for row in rows if row["outcome"] == "unsound"]
    escaped = sum(bool(row["escaped"]) for row in unsound)
    answers = sum(row["unsound"] for row in unsound), sum(row["convicted"] for row in unsound)
    return [
        f"{len(rows)} mutants: "
        + ", ".join(f"{count} {name}" for name, count in Counter(row["outcome"] for row in rows).most_common()),
        (
            f"{len(unsound)} are unsound by replay, in {answers[0]} answers; the judge convicts "
            f"{len(unsound) - escaped} of them, in {answers[1]} answers"
        ),
        f"{sum(row['outcome'] == 'wrong belief' for row in rows)} more are convicted although no byte is lost yet",
        f"{sum(len(row['disagree']) for row in rows)} small documents of which judge and twin say different things",
    ]


def _page(about: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    lines = ["# Mutants of the planners", "", *(f"* {line}" for line in _summary(rows)), ""]
    lines += [f"Made by `benchmarks/mutants.py`: {', '.join(f'{name} {value}' for name, value in about.items())}.", ""]
    for title, outcomes in (
        ("Convicted", ("unsound", "wrong belief")),
        ("Not planned", ("error", "endless", "broken")),
    ):
        lines += [
            f"## {title}",
            "",
            "| where | was | becomes | outcome | answers | says |",
            "|---|---|---|---|---:|---|",
        ]
        for row in sorted((row for row in rows if row["outcome"] in outcomes), key=_place):
            said = ", ".join(sorted(row["kinds"])) if row["kinds"] else row["said"]
            lines.append(
                f"| {_where(row)} | {_code(row['was'])} | {_code(row['becomes'])} | {row['outcome']} | "
                f"{row['changed']} | {_cell(said)} |"
            )
        lines.append("")
    lines += ["## Survivors", "", "Sound and clean on every answer, or no answer changed.", ""]
    lines += ["| where | was | becomes | outcome | why it survives |", "|---|---|---|---|---|"]
    for row in sorted((row for row in rows if row["outcome"] in {"same", "other plan"}), key=_place):
        lines.append(
            f"| {_where(row)} | {_code(row['was'])} | {_code(row['becomes'])} | {row['outcome']} | "
            f"{_cell(argue(row))} |"
        )
    return lines


def _place(row: dict[str, Any]) -> tuple[str, int, str]:
    return row["path"], row["line"], row["becomes"]


def _where(row: dict[str, Any]) -> str:
    return f"{Path(row['path']).name}:{row['line']}"


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
