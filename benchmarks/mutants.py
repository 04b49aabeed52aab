"""The judge against mutants of the planners: of those that lose a byte, how many does it convict?

    python benchmarks/mutants.py [--count N] [--seed S] [--programs P] [--out FILE]

cosmic-ray (`pip install 'allocsim[mutants]'`) makes mutants of `allocsim/allocators` and `allocsim/liveness`; a seeded sample of them plans a corpus of generated
programs and of real ggml's graphs, each in a process of its own. What a mutant answers otherwise than the planners as they are is judged twice: by a
byte-wise replay that knows nothing of the judge (`tests/adversary.py`), and by the judge (S and L). `tests/nursery.py` has the definitions.

The JSON is written after every mutant; run again, it goes on where it stopped, and begins anew where sources, sample or corpus are others. Beside it comes
a Markdown file with every mutant, and of each survivor why it survives. Exit status 1 where a mutant that is unsound by replay escapes the judge.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

os.environ["NUMBA_DISABLE_JIT"] = "1"  # before numba is imported: code is kept on disk under the name of the file
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from harness import Found, kept, run

from mutation import ROOT, Mutant, sample, sources
from nursery import Nursery, Outcome, corpus

from allocsim.files import write_atomic

PURPOSE: Final = {
    "bounds.py": "a bound says how good a plan is, and places nothing",
    "portfolio.py": "it picks among plans that are each placed by somebody else",
    "strangers.py": "it finds and calls a planner, and places nothing",
    "compiling.py": "it compiles, which the corpus leaves out",
}
"""File -> why a change in it seldom moves a buffer."""


def measure(
    *,
    count: int = 330,
    seed: int = 1501,
    programs: int = 24,
    jobs: int = os.cpu_count() or 1,
    no_dumps: bool = False,
    out: Path,
) -> Iterator[Found]:
    """Raise the sample, `jobs` mutants at once; `no_dumps`: of generated programs only."""
    state = hashlib.sha256(b"".join((ROOT / path).read_bytes() for path in sources())).hexdigest()[:16]
    about = {"count": count, "seed": seed, "programs": programs, "dumps": not no_dumps, "sources": state}
    before = kept(out)
    same = all(before.get("about", {}).get(name) == value for name, value in about.items())
    rows = list(before["rows"]) if same else []
    wanted = sample(count, seed)
    known = {(row["path"], row["operator"], row["occurrence"]) for row in rows}
    missing = [mutant for mutant in wanted if (mutant.path, mutant.operator, mutant.occurrence) not in known]
    if missing:
        nursery = Nursery.of(corpus(programs, seed, dumps=not no_dumps))
        about |= {"answers": len(nursery.base), "unsound as it is": len(nursery.broken)}
        begun = [nursery.begin(mutant) for mutant in missing[:jobs]]
        for number, mutant in enumerate(missing):
            row = _row(mutant, nursery, nursery.end(begun[number]))
            begun += [nursery.begin(further) for further in missing[number + jobs :][:1]]
            rows.append(row)
            yield _told(out, about, rows)
            where = f"{row['path']}:{row['line']}"
            print(f"{len(rows)}/{len(wanted)} {row['outcome']:12} {where} {row['becomes']}", flush=True)
    else:
        about = before["about"]
    yield _told(out, about, rows)
    print(*_summary(rows), sep="\n")


def _told(out: Path, about: dict[str, Any], rows: list[dict[str, Any]]) -> Found:
    """Write the page; return what is to be written beside it."""
    write_atomic(out.with_suffix(".md"), "\n".join(_page(about, rows)).encode() + b"\n")
    bad = sum(bool(row["escaped"] or row["disagree"]) for row in rows)
    return {"about": about, "outcomes": Counter(row["outcome"] for row in rows), "bad": bad, "rows": rows}


def argue(row: dict[str, Any]) -> str:
    """Return why a mutant that changes nothing, or nothing that matters, is no fault the judge should see."""
    purpose = PURPOSE.get(Path(row["path"]).name)
    if row["reached"] and row["outcome"] == "other plan":
        grown = ", ".join(f"{name} {nbytes:+d} bytes" for name, nbytes in sorted(row["peaks"].items()))
        return f"{row['changed']} other answers, every one sound by replay and clean; peaks: {grown}"
    unmoved = "reached, and no lifetime, size, pair or offset of the corpus depends on it"
    said = unmoved if row["reached"] else "not reached by the corpus"
    return said + (f"; {purpose}" if purpose else "")


def _row(mutant: Mutant, nursery: Nursery, outcome: Outcome) -> dict[str, Any]:
    was, becomes = mutant.change()
    reached = (mutant.path, mutant.line) in nursery.reached
    return asdict(mutant) | {"was": was, "becomes": becomes, "reached": reached} | asdict(outcome)


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
    head = "| where | was | becomes | outcome |"
    titles = {"Convicted": ("unsound", "wrong belief"), "Not planned": ("error", "endless", "broken")}
    for title, outcomes in titles.items():
        lines += [f"## {title}", "", f"{head} answers | says |", "|---|---|---|---|---:|---|"]
        for row in _chosen(rows, *outcomes):
            said = ", ".join(sorted(row["kinds"])) if row["kinds"] else row["said"]
            lines.append(f"{_begin(row)} {row['changed']} | {_cell(said)} |")
        lines.append("")
    lines += ["## Survivors", "", "Sound and clean on every answer, or no answer changed.", ""]
    lines += [f"{head} why it survives |", "|---|---|---|---|---|"]
    return [*lines, *(f"{_begin(row)} {_cell(argue(row))} |" for row in _chosen(rows, "same", "other plan"))]


def _chosen(rows: list[dict[str, Any]], *outcomes: str) -> list[dict[str, Any]]:
    chosen = [row for row in rows if row["outcome"] in outcomes]
    return sorted(chosen, key=lambda row: (row["path"], row["line"], row["becomes"]))


def _begin(row: dict[str, Any]) -> str:
    where = f"{Path(row['path']).name}:{row['line']}"
    return f"| {where} | `{_cell(row['was'])}` | `{_cell(row['becomes'])}` | {row['outcome']} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    run(measure, failed="bad")
