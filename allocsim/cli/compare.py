"""`allocsim compare FILE... [--allocator A]...`: planners x problems, in one table.

A row for each planner and program: peak, ratio to the lower bound, processor time, fragmentation,
and whether the judge finds the plan sound. A peak below the bound is never called sound. Plans that
a file brings along have rows of their own. Exit status 0 where every plan is sound, 1 where one is
not or a planner fails, 2 where a file cannot be read.

What this module does not see: how planners are measured (`allocsim.allocators.comparison`) and how
pictures are drawn (the service `plot_comparison`).
"""

import math
from dataclasses import asdict
from typing import Annotated, Any

import typer

from allocsim.allocators import ALLOCATORS
from allocsim.allocators.comparison import PlannerRow
from allocsim.allocators.comparison import compare as measure
from allocsim.cli.output import in_bytes, print_json, print_line, print_table, show_path
from allocsim.errors import DocumentError
from allocsim.outcomes.telling import wrapped
from allocsim.plugins import service
from allocsim.systems import load

COLUMNS = ("planner", "peak", "ratio", "cpu ms", "fragmentation", "verdict")


def compare(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Documents or instances of any supported format.")
    ],
    *,
    allocator: Annotated[
        list[str] | None, typer.Option(help='A name, or "package.module:function"; all of the shelf by default.')
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    plot: Annotated[
        str | None, typer.Option(metavar="X.png", help="Draw the ratios; PNG, SVG or PDF, by its suffix.")
    ] = None,
) -> int:
    """Exit status: 0 every plan is sound, 1 one is not or a planner fails, 2 bad input.

    Example: allocsim compare program.json --allocator ggml --allocator greedy_by_size
    """
    draw = None if plot is None else service("plot_comparison")  # what is missing is said before the work
    found: list[tuple[str, PlannerRow]] = []
    for path in files:
        document = load(path)
        if not document.programs:
            raise DocumentError(path, "programs", "there is none to plan")
        rows = measure(document, allocator or list(ALLOCATORS))
        found += ((path, row) for row in rows)
        if not as_json:
            _print(path, rows)
    means = geometric_means([row for _, row in found])
    if as_json:
        print_json({"rows": [_entry(path, row) for path, row in found], "geometric_mean_ratio": means})
    elif len({(path, row.program) for path, row in found}) > 1:
        print_line("geometric mean of the ratios")
        print_table(("planner", "ratio"), [(name, f"{mean:.4f}") for name, mean in means.items()], right=("ratio",))
    if draw is not None and plot is not None:
        draw([(f"{show_path(path)}: {row.program}", row.planner, row.ratio, row.good) for path, row in found], plot)
        if not as_json:
            print_line(f"wrote {show_path(plot)}")
    return int(not all(row.good for _, row in found))


def geometric_means(rows: list[PlannerRow]) -> dict[str, float]:
    """Return the geometric mean of each planner's ratios, the best first, for those with a finite
    one, never below 1, wherever asked.
    """
    ratios: dict[str, list[float]] = {}
    for row in rows:
        ratios.setdefault(row.planner, []).append(row.ratio if row.ratio is not None else math.inf)
    means = {
        name: math.exp(sum(map(math.log, of)) / len(of))
        for name, of in ratios.items()
        if all(1 <= r < math.inf for r in of)
    }
    return dict(sorted(means.items(), key=lambda entry: entry[1]))


def _entry(path: str, row: PlannerRow) -> dict[str, Any]:
    ratio = None if row.ratio is None or math.isinf(row.ratio) else row.ratio
    return {"file": path, **asdict(row), "ratio": ratio}


def _print(path: str, rows: list[PlannerRow]) -> None:
    for program in dict.fromkeys(row.program for row in rows):
        chosen = [row for row in rows if row.program == program]
        bound = chosen[-1].bound_bytes
        print_line(f"{show_path(path)}: {program}, at least {in_bytes(bound)} ({bound})")
        print_table(COLUMNS, [_cells(row) for row in chosen], right=COLUMNS[1:5])
        for row in chosen:
            for line in wrapped(f"{row.planner}: {row.finding}", "  ", "    ") if row.finding else ():
                print_line(line)


def _cells(row: PlannerRow) -> tuple[Any, ...]:
    verdict = "failed" if row.sound is None else "UNSOUND" if not row.sound else "optimal" if row.proved else "sound"
    return (
        row.planner,
        row.peak_bytes,
        None if row.ratio is None else f"{row.ratio:.4f}",
        None if row.seconds is None else f"{row.seconds * 1e3:.1f}",
        None if row.fragmentation is None else f"{row.fragmentation:.3f}",
        verdict,
    )
