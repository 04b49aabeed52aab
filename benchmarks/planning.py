"""Planners against the lower bound: solver's instances, a large training problem, the flagship training graph.

    python benchmarks/planning.py [--data FOLDER] [--rounds N] [--out FILE]

FOLDER holds `minimalloc/*.csv` and `idealloc/*.csv`; `../shared/data` beside the checkout is tried by default, and what is not there is left
out. Times are processor time at one thread, the median of the rounds, after a call that pays for compilation. Ratios are peak over the
bound of `allocsim.allocators.lower_bounds`; `exact` is asked for a plan within a MiB on the challenging instances, as their solver is.

Where minimalloc's own solver is on the path (`minimalloc`, built from its public source), it is asked for the same, in turn with `exact`; its time is that of a
process that reads and writes a file. All eleven instances are in its repository (`benchmarks`); figures in `results` are of all of them.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from harness import ROOT, Found, cpu, run, took

from answer import flagship as flagship_program

from allocsim import systems
from allocsim.allocators import ALLOCATORS, branch_and_bound
from allocsim.allocators.comparison import compare
from allocsim.allocators.lower_bounds import lower_bound
from allocsim.errors import EngineError
from allocsim.judge.fast import check
from allocsim.model import Document, Plan, Problem, Program

MEBIBYTE = 1 << 20
SOLVER = shutil.which("minimalloc")
LARGE = ("linear_scan", "best_fit", "greedy_by_size", "greedy_by_breadth", "xla_best_fit", "best")
"""Planners that are asked for the plan of tens of thousands of buffers."""


def measure(*, data: str = str(ROOT.parent / "shared" / "data"), rounds: int = 5) -> Iterator[Found]:
    """Measure the instances that are there, and the flagship."""
    results: Found = {}
    compare(Document(programs=()), ALLOCATORS)  # imports and compiles everything
    if (Path(data) / "minimalloc").is_dir():
        results["challenging"] = challenging(Path(data) / "minimalloc", rounds)
        yield results
    for path in sorted((Path(data) / "idealloc").glob("*.csv")):
        document = systems.load(path)
        names = LARGE if len(document.programs[0].buffers) > branch_and_bound.MOST_ITEMS else tuple(ALLOCATORS)
        results[path.stem] = rows_of(document.problems[0], names, rounds)
        yield results
    yield results | {"flagship": flagship(rounds)}


def challenging(folder: Path, rounds: int) -> dict[str, Any]:
    """Ratio of every planner, and the time `exact` takes to fit each instance into a MiB."""
    ratios: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}
    solved: dict[str, Any] = {}
    for path in sorted(folder.glob("*.1048576.csv")):
        problem = systems.load(path).problems[0]
        theirs, mine = [], []
        for _ in range(rounds):  # in turn, so that a neighbour's load falls on both
            seconds, plan = cpu(lambda p=problem: branch_and_bound.place(p, enough=MEBIBYTE, nodes=20_000_000))
            mine.append(seconds)
            theirs += [] if SOLVER is None else [solver_seconds(SOLVER, path)]
        judge(plan)
        solved[path.stem] = {"fits": plan.peak_bytes <= MEBIBYTE, "seconds": median(mine), **plan.meta["exact"]}
        solved[path.stem] |= {"minimalloc_seconds": median(theirs)} if theirs else {}
        print("exact", path.stem, plan.peak_bytes, solved[path.stem], flush=True)
        for row in rows_of(problem, [name for name in ALLOCATORS if name != "exact"], rounds, quiet=True):
            ratios.setdefault(row["planner"], []).append(row["ratio"])
            times.setdefault(row["planner"], []).append(row["seconds"])
    table = {name: {"ratio": geometric_mean(of), "most_seconds": max(times[name])} for name, of in ratios.items()}
    for name, entry in sorted(table.items(), key=lambda item: item[1]["ratio"]):
        print(f"challenging  {name:20}  {entry['ratio']:.4f}  {entry['most_seconds'] * 1e3:.1f} ms at most")
    return {"exact": solved, "planners": table}


def solver_seconds(solver: str, path: Path) -> float:
    """Return the processor time of minimalloc's own solver for one instance, its reading and writing included."""
    with tempfile.NamedTemporaryFile() as out:
        ran = took(solver, f"--capacity={MEBIBYTE}", f"--input={path.resolve()}", f"--output={out.name}")
    if ran["status"]:
        raise EngineError(f"{solver}: {ran['err']}")
    return float(ran["cpu"])


def flagship(rounds: int) -> dict[str, Any]:
    """Forward, backward and SGD of 30 layers in one graph, as the scenario ggml-1501 trains them."""
    program, problem, _ = flagship_program()
    names = [name for name in ALLOCATORS if name not in {"exact", "buddy", "tlsf", "caching"}]
    about = {"buffers": len(program.buffers), "ops": len(program.ops)}
    return {**about, "planners": rows_of(problem, names, rounds, program=program)}


def rows_of(
    problem: Problem,
    names: tuple[str, ...] | list[str],
    rounds: int,
    *,
    program: Program | None = None,
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """Plan with each planner; by its own belief where the program says something to believe."""
    bound = lower_bound(problem)
    rows = []
    for name in names:
        planner = ALLOCATORS[name]
        seconds, plan = cpu(lambda p=planner: p.plan(program) if program else p.place(problem), rounds)
        judge(plan)
        rows.append({"planner": name, "ratio": plan.peak_bytes / bound, "seconds": seconds})
        if not quiet:
            print(f"{problem.program.name}  {name:20}  {plan.peak_bytes / bound:.4f}  {seconds * 1e3:.1f} ms")
    return rows


def judge(plan: Plan) -> None:
    """Stop where a plan is not sound: its figures would be worth nothing."""
    report = check(Document.of(plan), limit=1)
    if not report.clean:
        raise EngineError(f"{plan.source}: {report.violations[0].message}")


if __name__ == "__main__":
    run(measure)
