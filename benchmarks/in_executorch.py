"""Random models in ExecuTorch's runtime: is a plan accused whose numbers are right, or clean whose numbers are wrong?

    BENCH_PEERS=python-with-executorch python benchmarks/in_executorch.py [--models 1000] [--first SEED] [--seconds S] [--keep FOLDER] [--out FILE]

`executorch_models.py` lowers and runs them, each under switches of its own; the `.pte` is judged here, each way through it alone. A run is held
against the way that it took: a way that is accused and was not run is counted apart, and so is a file whose ways cannot be told from the sides that
were taken (a branch that the exporter left out). A model whose buffer outlives the run is held to its first run
that differs. What goes on where is in `resumable.py`.
"""

import sys
from pathlib import Path
from typing import Final

from replays import replay_word
from resumable import Row, campaign

from allocsim.errors import AllocsimError
from allocsim.judge.fast import check
from allocsim.model import Document
from allocsim.systems.executorch import pte_program as executorch
from allocsim.systems.executorch.pte_file import parse

FAR: Final = 1e-3
"""As in `executorch_models.py`."""


def judged(folder: Path, row: Row) -> Row:
    """Return what is said of the ways through one program, beside what its runs gave."""
    try:
        document = executorch.loads((folder / "program.pte").read_bytes(), folder.name)
    except AllocsimError as error:
        return {"told": "refused", "why": str(error)[:200]}
    ways = {sides(plan.program.path): Document.of(plan) for plan in document.plans}
    reports = {way: check(one) for way, one in ways.items()}
    said = {way: sorted({violation.kind for violation in report.violations}) for way, report in reports.items()}
    every = sorted({kind for found in said.values() for kind in found})
    runs = []
    for taken, far in zip(row["sides"], row["planned"], strict=True):
        runs.append((said.get(tuple(taken), None if every else []), far > FAR))
        if far > FAR:
            break
    answer = "another side by rounding" if row["rounded"] else told(runs, elsewhere=bool(every))
    if answer == "clean, numbers differ":
        answer += reason(folder, row)
    if every == ["Misaligned"]:
        answer = answer.replace("accused", "accused of alignment alone")
    return {
        "told": answer,
        "kinds": every,
        "ways": len(said),
        "replayed": [replay_word(ways[way], report) for way, report in reports.items()],
        "ops": sum(len(program.ops) for program in document.programs),
    }


def reason(folder: Path, row: Row) -> str:
    """Return what is known of a difference that no plan shows; of the rest, nothing."""
    methods = parse((folder / "program.pte").read_bytes(), folder.name)
    both = any(set(method.inputs) & set(method.outputs) for method in methods)
    if both and not row["switches"]["alloc_graph_input"]:
        return ": an input that is returned lies with the caller"
    return ": the same without reuse" if max(row["without"]) > FAR else ""


def sides(path: str) -> tuple[bool, ...]:
    """Return the sides in a way's name, in the order in which they were taken."""
    return tuple(part.endswith("=true") for part in path.split(", ") if part)


def told(runs: list[tuple[list[str] | None, bool]], *, elsewhere: bool) -> str:
    """Return what a model is counted as, from the kinds told of each run's way, and whether its numbers are far."""
    if any(found is None for found, _ in runs):
        return "accused in some way, which one was run is not known"
    if any(far and not found for found, far in runs):
        return "clean, numbers differ"
    if any(far for _, far in runs):
        return "accused, numbers differ"
    if any(found for found, _ in runs):
        return "accused, numbers agree"
    return "accused in a way that was not run" if elsewhere else "clean, numbers agree"


if __name__ == "__main__":
    sys.exit(campaign("executorch", __doc__, judged))
