"""Detector R on a scenario: every case judged by S and, where it can tell more, executed by D.

    for row in replay(bench, groups=("session", "pins"), every=500, done=names):
        row["case"], row["S"]["status"], row["D"]["status"]

The cases are those of `allocsim.replay` for the default plan; here come the programs that only the engine can make: the same training with
gradients that add up in accumulators, and with sequences one longer, twice as long and half as long, in the slots of the old plan.

D runs a case's last program beside itself with every buffer apart, with the same uploads left out, twice (a pin case once). A second program starts from
memory of its own with the first program's slots: S judges the session as it is, D what the slots do to the second program. Where a larger
program reaches beyond the old arena, D gives the arena room, so that what is overwritten shows instead of a crash; S says the rest.

`equal` is to the bit; `differs` names the op that goes wrong by itself; `refused` is a plan that cannot be bound; `covered` is a pin case that need
not be executed (`allocsim.replay.pins`).

Complexity: a planning and a check for each pin case; two runs for each case executed.

What this module does not see: which faults the scenario holds, files and the terminal.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import numpy as np

from allocsim.allocators import find
from allocsim.errors import EngineError, ModelError
from allocsim.evidence import Origin
from allocsim.model import Plan, Run
from allocsim.replay import GROUPS, Case, Static, judged, row_of, session_cases
from allocsim.replay.pins import Pairs, pin_cases
from allocsim.replay.programs import program_cases
from engine.differential import HostRun
from engine.lower import Lowered, lower
from engine.modes import Side, compare
from repro import training
from repro.run import Options, Progress
from repro.run import _Bench as Bench
from repro.scenario import Scenario, repaired

AT_ONCE: Final = 4
"""Pin cases executed beside one run of the reference."""

SHAPES: Final[tuple[tuple[str, Callable[[int], int]], ...]] = (
    ("one position more", lambda seq: seq + 1),
    ("twice as many positions", lambda seq: 2 * seq),
    ("half as many positions", lambda seq: seq // 2),
)

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


def failed(row: Row) -> bool:
    """Whether a case that must hold does not."""
    return bool(row["promised"]) and (row["S"]["status"] == "violations" or row["D"]["status"] in {"differs", "refused"})


def _cases(bench: Bench, groups: Collection[str]) -> Iterator[tuple[Case, Stage]]:
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
        yield from _shapes(bench, plan)


def _other(bench: Bench, *, seq: int | None = None, accumulate: bool = False) -> Stage:
    """Return the scenario's training at another size, or with accumulators."""
    setup = training.set_up(
        bench.scenario.training,
        layers=bench.options.layers,
        seq=bench.options.seq if seq is None else seq,
        seed=bench.options.seed,
        base=bench.options.base,
        accumulate=accumulate,
    )
    return Stage(lowered=lower(setup.graph, (setup.loss,), kernels=bench.scenario.kernels), setup=setup)


def _shapes(bench: Bench, plan: Plan) -> Iterator[tuple[Case, Stage]]:
    seq = bench.setup.config.seq
    for words, size in SHAPES:
        if size(seq) < 1:
            continue
        other = _other(bench, seq=size(seq))
        program = other.lowered.program
        if len(program.buffers) != len(plan.arena):
            raise ModelError("shape", f"{len(program.buffers)} buffers; the plan has {len(plan.arena)} slots")
        runs = (Run.of(plan), Run.of(plan, program=program))
        yield Case(group="shape", name=f"{words}: {size(seq)} instead of {seq}", runs=runs, promised=False), other


def _turned(stage: Stage, case: Case) -> Stage:
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


def _executed(cases: Sequence[Case], stage: Stage, bench: Bench) -> list[Row]:
    """Run cases of one stage and one session beside one reference; the D of each."""
    lowered, program = stage.lowered, stage.lowered.program
    weights = stage.setup.parameters
    reference = Side(name="reference", lowered=lowered, plan=find("reference").plan(program), parameters=weights)
    sides = [Side(name=case.name, lowered=lowered, plan=_slots(case.plan, lowered), parameters=weights) for case in cases]
    hosts = [
        HostRun(inputs=stage.setup.inputs, skip=tuple(lowered.tensors[step].name for step in run.skip)) for run in _own(cases[0])
    ]
    try:
        courses = compare(
            sides, reference=reference, runs=hosts, order=stage.order, threads=bench.options.threads, lockstep=len(hosts)
        )
    except EngineError as error:
        if len(cases) > 1:
            return [row for case in cases for row in _executed([case], stage, bench)]
        return [{"status": "refused", "why": str(error), "first": None}]
    return [
        {"status": "equal", "why": None, "first": None}
        if course.first_step is None and not course.origins
        else {"status": "differs", "why": None, "first": _first(course.origins, lowered)}
        for course in courses
    ]


def _own(case: Case) -> tuple[Run, ...]:
    """Return the runs that D does: all of the case's last program, or that program twice."""
    last = case.runs[-1]
    same = tuple(run for run in case.runs if run.program is last.program)
    return same if len(same) == len(case.runs) else (last, last)


def _slots(plan: Plan, lowered: Lowered) -> Plan:
    """Return the plan as one of this program, with room in the arena for what is larger than its slot."""
    program = lowered.program
    if plan.program is program:
        return plan
    return replace(plan, program=program, problem=None, nbytes=np.maximum(plan.nbytes, program.buffers.nbytes))


def _first(origins: Iterable[Origin] | None, lowered: Lowered) -> Row | None:
    origin = next(iter(origins or ()), None)
    if origin is None:
        return None
    op = lowered.program.ops[origin.op]
    return {
        "run": origin.run,
        "op": origin.op,
        "name": op.name,
        "kind": op.kind,
        "what": origin.what,
        "ulp": origin.ulp,
        "relative": origin.max_error,
    }


# pins ------------------------------------------------------------------------------------------------------------------------------------


def _pins(bench: Bench, limit: int | None, every: int, done: Collection[str]) -> Iterator[Row]:
    """Yield the pin cases; those to be executed wait until `AT_ONCE` are there, so that they share the reference."""
    stage = Stage(lowered=bench.lowered, setup=bench.setup, order=bench.order)
    pairs = Pairs.of(bench.program)
    seen: frozenset[int] = frozenset()
    waiting: list[tuple[Case, Static]] = []
    total = int((~bench.program.buffers.persistent).sum())
    for number, case in enumerate(islice(pin_cases(bench.program, bench.planner), limit)):
        bench.progress("pins", number, total if limit is None else min(limit, total))
        used = pairs.used(case.plan)
        new, seen = used - seen, seen | used
        if case.name in done:
            continue
        static = judged(case)
        if static.count or new or (every and number % every == 0):
            waiting.append((case, static))
        else:
            yield row_of(case, static, {"status": "covered", "why": "in place only as executed before", "first": None})
        if len(waiting) == AT_ONCE:
            yield from _flushed(waiting, stage, bench)
            waiting = []
    if waiting:
        yield from _flushed(waiting, stage, bench)


def _flushed(waiting: Sequence[tuple[Case, Static]], stage: Stage, bench: Bench) -> Iterator[Row]:
    numbers = _executed([case for case, _ in waiting], stage, bench)
    for (case, static), row in zip(waiting, numbers, strict=True):
        yield row_of(case, static, row)


__all__ = ["SHAPES", "bench_of", "failed", "replay"]
