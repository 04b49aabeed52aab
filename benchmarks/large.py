"""The shelf at scale: 100,000 and 1,000,000 buffers, on named instances that this script makes.

    python benchmarks/large.py [--counts N,...] [--instances NAME,...] [--planners NAME,...] [--rounds N] [--beside NAME] [--out FILE]

| instance | lives |
|---|---|
| `inference` | short, geometric of 8 steps at the mean; one buffer in a thousand lives for 5,000 steps |
| `training` | steps of a training of 100 layers, one after another: of each layer two activations live until its backward pass, six others for one to four steps |
| `mixed` | from one step to 1,000, even on a log scale, begun anywhere: about 145 live at once |
| `wide` | as `mixed`, to 10,000 steps: about 1,100 live at once |

Sizes are even on a log scale from 256 bytes to 64 MiB, multiples of 64, two in three of them of a few common
ones. All is drawn from one seed, so that an instance is the same everywhere. A time is processor time of one
thread for planning alone (`Allocator.place`), the least of the rounds, after a call that compiles. Every plan is
judged: no two buffers that live at once share a byte. Ratios are the peak over the most bytes that live at once.
Figures of what is not asked stay as they were; beside the JSON a table for people is written.

On a machine whose speed changes, `--beside NAME` measures each planner in turns with one whose row stands: seconds are those
of that row times the median ratio of the rounds, so that the machine's speed cancels. The row says `beside` whom, and the ratios.
"""

import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Final

from harness import Found, kept, markdown, run

import numpy as np

from allocsim.allocators import ALLOCATORS
from allocsim.errors import EngineError
from allocsim.judge.fast import check
from allocsim.model import Arena, Document, Plan, Problem
from allocsim.programs.builder import ProgramBuilder

AIMS: Final = {100_000: 1.0, 1_000_000: 15.0}
"""Buffers -> seconds at most."""

Asked = tuple[int, str, str]
"""Buffers, instance, planner."""

SEED: Final = 16

LAYERS: Final = 100


def inference(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Short lives in turn."""
    start = np.arange(count, dtype=np.int64)
    lives = rng.geometric(1 / 8, count)
    lives[rng.random(count) < 0.001] = 5000
    return start, start + lives


def training(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Steps of `LAYERS` layers; each layer has eight buffers forward and eight backward."""
    place = np.arange(count, dtype=np.int64)
    step, within = np.divmod(place, 16 * LAYERS)
    half, rest = np.divmod(within, 8 * LAYERS)
    layer, which = np.divmod(rest, 8)
    kept = (half == 0) & (which < 2)
    until = 16 * LAYERS * step + 8 * LAYERS + 8 * (LAYERS - 1 - layer) + 8
    return place, np.where(kept, until, place + rng.integers(1, 5, count))


def mixed(rng: np.random.Generator, count: int, longest: int = 1000) -> tuple[Any, Any]:
    """Lives of all lengths, anywhere."""
    lives = np.exp(rng.random(count) * np.log(longest)).astype(np.int64)
    start = rng.integers(0, count, count)
    return start, start + lives


def wide(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Ten times as many at once."""
    return mixed(rng, count, 10_000)


INSTANCES: Final[dict[str, Callable[[np.random.Generator, int], tuple[Any, Any]]]] = {
    "inference": inference,
    "training": training,
    "mixed": mixed,
    "wide": wide,
}


def instance(name: str, count: int) -> Problem:
    """Return an instance: one arena without an end, no ops."""
    rng = np.random.default_rng([SEED, count])
    start, stop = INSTANCES[name](rng, count)
    any_size = 64 * np.exp(np.log(4) + rng.random(count) * np.log(1 << 18)).astype(np.int64)
    common = 64 * np.exp(np.log(4) + rng.random(12) * np.log(1 << 18)).astype(np.int64)
    nbytes = np.where(rng.random(count) < 2 / 3, rng.choice(common, count), any_size)
    builder = ProgramBuilder(name, arenas=(Arena(name="memory", alignment=64),))
    for buffer, size in enumerate(nbytes.tolist()):
        builder.buffer(f"b{buffer}", size)
    return Problem.of(builder.build(), start=start, stop=stop)


def most_live(problem: Problem) -> int:
    """Return the most bytes that live at one step: no plan needs less."""
    change = np.zeros(int(problem.stop.max()) + 1, dtype=np.int64)
    np.add.at(change, problem.start, problem.nbytes)
    np.add.at(change, problem.stop, -problem.nbytes)
    return int(np.cumsum(change).max())


def judge(plan: Plan) -> None:
    """Stop where a plan is not sound: its figures would be worth nothing."""
    report = check(Document.of(plan), limit=1)
    if not report.clean:
        raise EngineError(f"{plan.source}: {report.violations[0].message}")


def measured(problem: Problem, planner: str, rounds: int) -> tuple[Plan, float]:
    """Return the plan and the least processor time in seconds."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        plan = ALLOCATORS[planner].place(problem)
        best = min(best, time.process_time() - begun)
    return plan, best


def in_turns_with(problem: Problem, planner: str, other: str, rounds: int) -> tuple[Plan, list[float]]:
    """Return the plan, and for each round the planner's processor time over that of another one just before it."""
    ratios = []
    for _ in range(rounds):
        _, unit = measured(problem, other, 1)
        plan, seconds = measured(problem, planner, 1)
        ratios.append(round(seconds / unit, 3))
        print(f"{planner} {seconds:.2f} s beside {unit:.2f} s", flush=True)
    return plan, ratios


def key(row: dict[str, Any]) -> Asked:
    """Return what a row is of."""
    return row["buffers"], row["instance"], row["planner"]


def table(rows: dict[Asked, dict[str, Any]]) -> str:
    """Return the table for people: a line for each planner, those that need least first."""
    columns = sorted({(row["buffers"], row["instance"]) for row in rows.values()})
    heads = ("planner", *(head for count, name in columns for head in (f"{count:,} `{name}`, s", "ratio")))
    planners = sorted(
        dict.fromkeys(row["planner"] for row in rows.values()), key=lambda name: _ratio(rows, columns, name)
    )
    cells = []
    for planner in planners:
        found = [rows.get((*column, planner)) for column in columns]
        told = ((f"{row['seconds']:.2f}", f"{row['ratio']:.4f}") if row else ("not measured", "") for row in found)
        cells.append((f"`{planner}`", *(cell for pair in told for cell in pair)))
    about = "CPU seconds of one thread, planning alone, and peak over the most bytes that live at once. Written by"
    return "\n".join([about, "`benchmarks/large.py`.", "", *markdown(heads, cells), ""])


def _ratio(rows: dict[Asked, dict[str, Any]], columns: list[tuple[int, str]], planner: str) -> float:
    return min(rows[asked]["ratio"] for column in columns if (asked := (*column, planner)) in rows)


def measure(
    *,
    counts: tuple[int, ...] = tuple(AIMS),
    instances: tuple[str, ...] = ("mixed", "wide"),
    planners: tuple[str, ...] = tuple(ALLOCATORS),
    rounds: int = 2,
    beside: str = "",
    out: Path,
) -> Iterator[Found]:
    """Measure; `beside` is a planner whose rows stand, to measure in turns with."""
    for name in {*planners, beside} - {""}:
        ALLOCATORS[name].place(instance("inference", 100))
    rows = {key(row): row for row in kept(out).get("rows", ())}
    missed: list[Asked] = []
    for count, name in product(counts, instances):
        problem = instance(name, count)
        bound, aim = most_live(problem), AIMS.get(count)
        for planner in planners:
            how: dict[str, Any] = {}
            if beside:
                plan, ratios = in_turns_with(problem, planner, beside, rounds)
                seconds = median(ratios) * rows[count, name, beside]["seconds"]
                how = {"beside": beside, "times": ratios}
            else:
                plan, seconds = measured(problem, planner, rounds)
            judge(plan)
            ratio = round(plan.peak_bytes / bound, 4)
            row = {"buffers": count, "instance": name, "planner": planner, "seconds": round(seconds, 2)}
            rows[key(row)] = {**row, "ratio": ratio, "aim": aim, **how}
            missed += [key(row)] * (aim is not None and seconds > aim)
            print(f"{count:>9,}  {name:10} {planner:19} {seconds:6.2f} s  {ratio:.4f}", flush=True)
            out.with_suffix(".md").write_text(table(rows))
            about = {"unit": "CPU seconds of one thread, planning alone", "seed": SEED}
            yield {**about, "missed": missed, "rows": [*rows.values()]}


if __name__ == "__main__":
    run(
        measure,
        failed="missed",
        known={"instances": INSTANCES, "planners": ALLOCATORS, "beside": {"", *ALLOCATORS}},
    )
