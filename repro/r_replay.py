"""Detector R on a scenario: S judges every case, and D executes the cases that can show more.

    for row in replay(experiment, groups=("session", "pins"), every=500, done=names):
        row["case"], row["S"]["status"], row["D"]["status"]

The cases are those of `allocsim.r_replay` for the default plan. This module adds cases with
programs that only the engine can make: the same training with gradients that add up in
accumulators, and the same training on other batches in the slots of the old plan (`SHAPES`).

D runs the last program of a case twice (a pin case once), with the same uploads left out, and
compares it with a run in which every buffer is apart. If the case has two programs, S judges the
session of both. D executes only the second program, in fresh memory and in the slots of the first.
If a larger program needs more bytes than the old arena has, D enlarges the arena, so that
overwritten bytes show as wrong numbers instead of a crash. S judges the case in the old arena.

D has one of four statuses. `equal` means that all bits are equal. `differs` means that some differ;
if known, the row names the op that goes wrong by itself. `refused` means that the plan cannot be
bound. `covered` means that D does not execute a pin case, because S finds nothing and earlier cases
executed all in-place pairs of its plan (`allocsim.r_replay.pins`).

Complexity: one planning and one check for each pin case, and two runs for each executed case.

What this module does not see: which defects the scenario has, files and the terminal.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from allocsim.allocators import find
from allocsim.errors import EngineError
from allocsim.model import Run
from allocsim.r_replay import GROUPS, ReplayCase, Static, judged, not_run, numbers_of, row_of, session_cases
from allocsim.r_replay.other_programs import program_cases
from allocsim.r_replay.pins import COVERED, Chosen, pin_cases
from engine.d_differential import HostRun
from engine.d_differential.side_comparison import Progress, Side, compare, silent
from engine.models.llama import LlamaConfig
from repro import lora_setup
from repro.pipeline import Experiment, workload_of
from repro.scenario import llama_of
from repro.workload import Workload

AT_ONCE: Final = 4
"""The number of pin cases that share one run of the reference."""

Batch = tuple[int, int]
"""The size of a batch: (positions of each sequence, number of sequences)."""

SHAPES: Final[Mapping[str, Callable[[int], tuple[Batch, Batch]]]] = {
    "one position more": lambda seq: ((seq, 1), (seq + 1, 1)),
    "twice as many positions": lambda seq: ((seq, 1), (2 * seq, 1)),
    "half as many positions": lambda seq: ((seq, 1), (seq // 2, 1)),
    "one sequence more": lambda seq: ((seq // 2, 2), (seq // 2, 3)),
    "twice as many sequences": lambda seq: ((seq // 2, 2), (seq // 2, 4)),
    "one sequence less": lambda seq: ((seq // 2, 3), (seq // 2, 2)),
}
"""The name of a shape case -> a function of the scenario's sequence length. The function returns
the batch that the plan is made for, and the batch that is run."""

ReplayRow = dict[str, Any]


def replay(
    experiment: Experiment,
    *,
    groups: Collection[str] = GROUPS,
    limit: int | None = None,
    every: int = 500,
    done: Collection[str] = (),
    progress: Progress = silent,
) -> Iterator[ReplayRow]:
    """Yield one row for each case, as soon as the case has been judged and executed.

    Args:
        experiment: the prepared scenario.
        groups: the groups of cases to replay, from `GROUPS`.
        limit: the largest number of pin cases; None for all.
        every: n, to execute every n-th of the pin cases that need not be executed; 0 for none, 1
            for all.
        done: the names of cases to leave out because an earlier replay has done them.
        progress: called with (name of the work, number of parts done, number of parts in all).
    """
    for case, workload in cases_of(experiment, groups):
        if case.name not in done:
            yield row_of(case, judged(case), executed([case], workload)[0])
            progress(case.group, 1, 1)
    if "pins" in groups:
        yield from _pins(experiment, limit, every, done, progress)


def cases_of(experiment: Experiment, groups: Collection[str]) -> Iterator[tuple[ReplayCase, Workload]]:
    """Yield every case except the pin cases, with the workload on which it is executed."""
    plan, own = experiment.plans["default"], experiment.workload
    if "session" in groups:
        yield from ((case, own) for case in session_cases(plan))
        accumulating = _other(experiment, accumulate=True)
        made = experiment.planner.plan(accumulating.program)
        yield from ((case, accumulating) for case in session_cases(made) if "accumulators" in case.name)
    if "program" in groups:
        yield from ((case, _with_program(own, case)) for case in program_cases(plan))
    if "shape" in groups and len(own.program.streams) == 1:
        yield from _shapes(experiment)


def _other(experiment: Experiment, batch: Batch | None = None, *, accumulate: bool = False) -> Workload:
    """Return the workload of the scenario's training on another batch, or with accumulators."""
    seq, sequences = (_config(experiment).seq, 1) if batch is None else batch
    options = experiment.options
    setup = lora_setup.set_up(
        llama_of(experiment.scenario),
        layers=options.layers,
        seq=seq,
        sequences=sequences,
        seed=options.seed,
        base=options.base,
        accumulate=accumulate,
    )
    return workload_of(setup, experiment.scenario, options)


def _config(experiment: Experiment) -> LlamaConfig:
    llama_of(experiment.scenario)
    assert isinstance(experiment.setup, lora_setup.Setup)
    return experiment.setup.config


def _shapes(experiment: Experiment) -> Iterator[tuple[ReplayCase, Workload]]:
    seq = _config(experiment).seq
    plans = {(seq, 1): experiment.plans["default"]}
    for words, of in SHAPES.items():
        made_for, ran = of(seq)
        if ran[0] < 1:
            continue
        if made_for not in plans:
            plans[made_for] = experiment.planner.plan(_other(experiment, made_for).program)
        plan, other = plans[made_for], _other(experiment, ran)
        what = [f"{sequences} x {positions}" for positions, sequences in (ran, made_for)]
        runs = (Run.of(plan), Run.of(plan, program=other.program))
        yield (
            ReplayCase(
                group="shape", name=f"{words}: {what[0]} instead of {what[1]} positions", runs=runs, promised=False
            ),
            other,
        )


def _with_program(workload: Workload, case: ReplayCase) -> Workload:
    """Return the workload with the second program of a case.

    The kernels are those of the first program, in the order of the second program's ops.
    """
    lowered = workload.lowered
    order = range(len(lowered.tensors)) if case.order is None else case.order
    return replace(
        workload,
        lowered=replace(
            lowered,
            program=case.program,
            tensors=tuple(lowered.tensors[step] for step in order),
            kernels=tuple(lowered.kernels[step] for step in order),
        ),
    )


# D ------------------------------------------------------------------------------------------------


def executed(cases: Sequence[ReplayCase], workload: Workload) -> list[ReplayRow]:
    """Return the row of D for each case.

    The cases share a workload and the same uploads, so all are compared with one reference run.
    """
    lowered, program, weights = workload.lowered, workload.program, workload.parameters
    reference = Side(name="reference", lowered=lowered, plan=find("reference").plan(program), parameters=weights)
    sides = [Side(name=case.name, lowered=lowered, plan=case.slots, parameters=weights) for case in cases]
    hosts = [
        HostRun(inputs=workload.inputs, skip=tuple(lowered.tensors[step].name for step in run.skip))
        for run in cases[0].executed
    ]
    try:
        courses = compare(
            sides, reference=reference, runs=hosts, order=workload.order, threads=workload.threads, lockstep=len(hosts)
        )
    except EngineError as error:
        if len(cases) > 1:
            return [row for case in cases for row in executed([case], workload)]
        return [not_run("refused", str(error))]
    return [
        numbers_of(program, next(iter(course.origins or ()), None))
        if course.first_step is None or course.origins
        else not_run("differs", None)
        for course in courses
    ]


# pins ---------------------------------------------------------------------------------------------


def _pins(
    experiment: Experiment, limit: int | None, every: int, done: Collection[str], progress: Progress
) -> Iterator[ReplayRow]:
    """Yield the rows of the pin cases.

    Cases to be executed are collected until there are `AT_ONCE`; these share one reference run.
    """
    workload, program = experiment.workload, experiment.workload.program
    chosen = Chosen(program, every)
    waiting: list[tuple[ReplayCase, Static]] = []
    total = int((~program.buffers.persistent).sum())
    for number, case in enumerate(islice(pin_cases(program, experiment.planner), limit)):
        progress("pins", number, total if limit is None else min(limit, total))
        tells = chosen(case)
        if case.name in done:
            continue
        static = judged(case)
        if tells or static.count:
            waiting.append((case, static))
        else:
            yield row_of(case, static, COVERED)
        if len(waiting) == AT_ONCE:
            yield from _flushed(waiting, workload)
            waiting = []
    if waiting:
        yield from _flushed(waiting, workload)


def _flushed(waiting: Sequence[tuple[ReplayCase, Static]], workload: Workload) -> Iterator[ReplayRow]:
    numbers = executed([case for case, _ in waiting], workload)
    for (case, static), row in zip(waiting, numbers, strict=True):
        yield row_of(case, static, row)
