"""Detector R on a scenario: every case judged by S and, where it can tell more, executed by D.

    for row in replay(bench, groups=("session", "pins"), every=500, done=names):
        row["case"], row["S"]["status"], row["D"]["status"]

The cases are those of `allocsim.r_replay` for the default plan; here come the programs that only the engine can make: the same training with
gradients that add up in accumulators, with other batches in the slots of the old plan (`SHAPES`).

D runs a case's last program beside itself with every buffer apart, with the same uploads left out, twice (a pin case once). A second program starts from
memory of its own with the first program's slots: S judges the session as it is, D what the slots do to the second program. Where a larger
program reaches beyond the old arena, D gives the arena room, so that what is overwritten shows instead of a crash; S says the rest.

`equal` is to the bit; `differs` names the op that goes wrong by itself; `refused` is a plan that cannot be bound; `covered` is a pin case that need
not be executed (`allocsim.r_replay.pins`).

Complexity: a planning and a check for each pin case; two runs for each case executed.

What this module does not see: which faults the scenario holds, files and the terminal.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from allocsim.allocators import find
from allocsim.errors import EngineError
from allocsim.model import Run
from allocsim.r_replay import GROUPS, ReplayCase, Static, judged, not_run, numbers_of, row_of, session_cases
from allocsim.r_replay.other_programs import program_cases
from allocsim.r_replay.pins import COVERED, Chosen, pin_cases
from engine.d_differential import HostRun
from engine.d_differential.modes import Side, compare
from engine.graph.lowering import Lowered, lower
from repro import training
from repro.bench import Bench, Options, Progress
from repro.scenario import Scenario, repaired

AT_ONCE: Final = 4
"""Pin cases executed beside one run of the reference."""

Batch = tuple[int, int]
"""Positions of a sequence, and sequences."""

SHAPES: Final[Mapping[str, Callable[[int], tuple[Batch, Batch]]]] = {
    "one position more": lambda seq: ((seq, 1), (seq + 1, 1)),
    "twice as many positions": lambda seq: ((seq, 1), (2 * seq, 1)),
    "half as many positions": lambda seq: ((seq, 1), (seq // 2, 1)),
    "one sequence more": lambda seq: ((seq // 2, 2), (seq // 2, 3)),
    "twice as many sequences": lambda seq: ((seq // 2, 2), (seq // 2, 4)),
    "one sequence less": lambda seq: ((seq // 2, 3), (seq // 2, 2)),
}
"""From the positions of the scenario's one sequence: the batch that the plan is made for, and the one that is run."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a case is executed on: its program with kernels, and data."""

    lowered: Lowered
    setup: training.Setup
    order: Sequence[int] | None = None


def bench_of(scenario: Scenario, options: Options, progress: Progress | None = None) -> Bench:
    """Return a scenario set up, with its default plan; errors as of `repro.run.run`."""
    return Bench(repaired(scenario) if options.fixed else scenario, options, progress or (lambda _what, _done, _total: None))


def replay(
    bench: Bench,
    *,
    groups: Collection[str] = GROUPS,
    limit: int | None = None,
    every: int = 500,
    done: Collection[str] = (),
) -> Iterator[Row]:
    """Yield one row for each case, as it is known.

    Args:
        bench: the scenario.
        groups: which of `GROUPS`.
        limit: at most so many pin cases; None for all.
        every: of the pin cases that need not be executed, every so many-th is; 0 for none, 1 for all.
        done: names of cases to leave out, that an earlier replay has done.
    """
    for case, stage in _cases(bench, groups):
        if case.name not in done:
            yield row_of(case, judged(case), _executed([case], stage, bench)[0])
            bench.progress(case.group, 1, 1)
    if "pins" in groups:
        yield from _pins(bench, limit, every, done)


def _cases(bench: Bench, groups: Collection[str]) -> Iterator[tuple[ReplayCase, Stage]]:
    """Yield every case but the pins, with what it is executed on."""
    plan, own = bench.plans["default"], Stage(lowered=bench.lowered, setup=bench.setup, order=bench.order)
    if "session" in groups:
        yield from ((case, own) for case in session_cases(plan))
        accumulating = _other(bench, accumulate=True)
        made = bench.planner.plan(accumulating.lowered.program)
        yield from ((case, accumulating) for case in session_cases(made) if "accumulators" in case.name)
    if "program" in groups:
        yield from ((case, _turned(own, case)) for case in program_cases(plan))
    if "shape" in groups and len(bench.program.streams) == 1:
        yield from _shapes(bench)


def _other(bench: Bench, batch: Batch | None = None, *, accumulate: bool = False) -> Stage:
    """Return the scenario's training on another batch, or with accumulators."""
    seq, sequences = (bench.setup.config.seq, 1) if batch is None else batch
    setup = training.set_up(
        bench.scenario.training,
        layers=bench.options.layers,
        seq=seq,
        sequences=sequences,
        seed=bench.options.seed,
        base=bench.options.base,
        accumulate=accumulate,
    )
    return Stage(lowered=lower(setup.graph, (setup.loss,), kernels=bench.scenario.kernels), setup=setup)


def _shapes(bench: Bench) -> Iterator[tuple[ReplayCase, Stage]]:
    seq = bench.setup.config.seq
    plans = {(seq, 1): bench.plans["default"]}
    for words, of in SHAPES.items():
        made_for, ran = of(seq)
        if ran[0] < 1:
            continue
        if made_for not in plans:
            plans[made_for] = bench.planner.plan(_other(bench, made_for).lowered.program)
        plan, other = plans[made_for], _other(bench, ran)
        what = [f"{sequences} x {positions}" for positions, sequences in (ran, made_for)]
        runs = (Run.of(plan), Run.of(plan, program=other.lowered.program))
        yield (
            ReplayCase(group="shape", name=f"{words}: {what[0]} instead of {what[1]} positions", runs=runs, promised=False),
            other,
        )


def _turned(stage: Stage, case: ReplayCase) -> Stage:
    """Return the kernels of a graph for a second program made of its own."""
    lowered = stage.lowered
    order = range(len(lowered.tensors)) if case.order is None else case.order
    return replace(
        stage,
        lowered=replace(
            lowered,
            program=case.program,
            tensors=tuple(lowered.tensors[step] for step in order),
            kernels=tuple(lowered.kernels[step] for step in order),
        ),
    )


# D ---------------------------------------------------------------------------------------------------------------------------------------


def _executed(cases: Sequence[ReplayCase], stage: Stage, bench: Bench) -> list[Row]:
    """Run cases of one stage and one session beside one reference; the D of each."""
    lowered, program = stage.lowered, stage.lowered.program
    weights = stage.setup.parameters
    reference = Side(name="reference", lowered=lowered, plan=find("reference").plan(program), parameters=weights)
    sides = [Side(name=case.name, lowered=lowered, plan=case.slots, parameters=weights) for case in cases]
    hosts = [
        HostRun(inputs=stage.setup.inputs, skip=tuple(lowered.tensors[step].name for step in run.skip))
        for run in cases[0].executed
    ]
    try:
        courses = compare(
            sides, reference=reference, runs=hosts, order=stage.order, threads=bench.options.threads, lockstep=len(hosts)
        )
    except EngineError as error:
        if len(cases) > 1:
            return [row for case in cases for row in _executed([case], stage, bench)]
        return [not_run("refused", str(error))]
    return [
        numbers_of(program, next(iter(course.origins or ()), None))
        if course.first_step is None or course.origins
        else not_run("differs", None)
        for course in courses
    ]


# pins ------------------------------------------------------------------------------------------------------------------------------------


def _pins(bench: Bench, limit: int | None, every: int, done: Collection[str]) -> Iterator[Row]:
    """Yield the pin cases; those to be executed wait until `AT_ONCE` are there, so that they share the reference."""
    stage = Stage(lowered=bench.lowered, setup=bench.setup, order=bench.order)
    chosen = Chosen(bench.program, every)
    waiting: list[tuple[ReplayCase, Static]] = []
    total = int((~bench.program.buffers.persistent).sum())
    for number, case in enumerate(islice(pin_cases(bench.program, bench.planner), limit)):
        bench.progress("pins", number, total if limit is None else min(limit, total))
        tells = chosen(case)
        if case.name in done:
            continue
        static = judged(case)
        if tells or static.count:
            waiting.append((case, static))
        else:
            yield row_of(case, static, COVERED)
        if len(waiting) == AT_ONCE:
            yield from _flushed(waiting, stage, bench)
            waiting = []
    if waiting:
        yield from _flushed(waiting, stage, bench)


def _flushed(waiting: Sequence[tuple[ReplayCase, Static]], stage: Stage, bench: Bench) -> Iterator[Row]:
    numbers = _executed([case for case, _ in waiting], stage, bench)
    for (case, static), row in zip(waiting, numbers, strict=True):
        yield row_of(case, static, row)


__all__ = ["SHAPES", "bench_of", "replay"]
