"""Detector D over any set of modes: every execution is compared with the reference.

Results are compared tensor by tensor and summed up by layer and by step.

    courses = compare(sides, reference=Side(...), truth=Side(...), runs=hosts)

A *side* is one way to execute the program: a plan, the kernels, the dtype, the executor. Each runs
the same training, in memory of its own. After every run of the reference its memory still holds all
it made, since its plan gives no byte twice; so each other side is compared while it runs, where it
stands: every result of every op, bit by bit, and by how much where bits differ. Nothing is added to
any plan for that, and nothing is kept but the rows. What the reference overwrites by itself (a
state mutated twice) is copied out when made.

The *truth* is the program in float64 (`engine.graph.widening`), apart too. With it each difference
is rounding or corruption (`engine.d_differential.rounding`). A side in float64 is compared with the
truth instead of the reference; the truth's own course shows the reference's error against it: how
large rounding is here.

Where a side goes wrong *by itself* is `engine.d_differential.origins`: in lockstep with the
reference, what differs healed at once.

Executors that cannot be watched (`SideExecutor.observed`) are compared by what is left after each
run: what the host reads, and what persists.

Conventions: training steps count from 1, ops from 0. `layer` and `stage` are the meta of the op.
Errors are those of `engine.d_differential.distance`.

Invariants: the reference's plan and the truth's keep every buffer apart (EngineError). Sides share
value indices and steps.

Complexity: one run of each side and one comparison of every result's bits a step; a few ns for each
element that differs. Memory: the runtimes.

What this module does not see: scenarios, names of modes, why something differs.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from allocsim.errors import EngineError
from allocsim.model import OWN, Plan
from allocsim.verdict.evidence import Origin
from engine.d_differential import HostRun, origins
from engine.d_differential.rounding import Nature, worst
from engine.d_differential.sides import (
    ComparedResult,
    Kept,
    LayerRow,
    ResultComparer,
    Scale,
    remaining,
    row_of,
    shown,
)
from engine.graph.lowering import Lowered
from engine.graph.widening import is_wide, widened
from engine.kernels.binding import Array
from engine.runtime import Runtime

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, how many are done, how many there are)."""


def silent(_what: str, _done: int, _total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideExecutor:
    """What executes a bound program."""

    bind: Callable[..., Runtime]
    """Called as `Runtime`; binds plans under suspicion."""
    observed: bool = True
    """Whether what an observer sees is what this executor does, op by op."""


EXECUTORS: Final[Mapping[str, SideExecutor]] = {
    "calls": SideExecutor(bind=partial(Runtime, suspect=True)),
    "tape": SideExecutor(bind=partial(Runtime, executor="tape", suspect=True), observed=False),
}
"""By name, the default first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way to execute the program."""

    name: str
    lowered: Lowered
    plan: Plan
    parameters: Mapping[str, Array]
    """Of the side's dtype."""
    executor: str = "calls"

    @property
    def wide(self) -> bool:
        """Whether its floats are float64."""
        return is_wide(self.lowered)

    def bound(self, threads: int | None, order: Sequence[int] | None) -> Runtime:
        """Take memory and bind the ops; errors as of `Runtime`."""
        bind = EXECUTORS[self.executor].bind
        return bind(self.lowered, self.plan, parameters=self.parameters, threads=threads, order=order)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRecord:
    """How one side went."""

    name: str
    plan: Plan
    wide: bool
    executor: str
    outputs: Mapping[str, tuple[Array, ...]]
    """What the host read after each run, by tensor."""
    rows: tuple[LayerRow, ...]
    """In order of step, then of first execution."""
    first_step: int | None
    """The first training step in which a bit differs."""
    first_op: int | None
    """The first op of that step whose result differs, in order of execution; None if only what is
    left after the run was compared."""
    origins: tuple[Origin, ...] | None = None
    """Where it goes wrong by itself; None: not asked, or not to be told."""

    @property
    def nature(self) -> Nature | None:
        """The worst of all rows; None where something differs and no truth is there to tell."""
        found = [row.nature for row in self.rows]
        return None if None in found else worst([one for one in found if one is not None])


def compare(
    sides: Sequence[Side],
    *,
    reference: Side,
    runs: Sequence[HostRun],
    truth: Side | None = None,
    lockstep: int = 0,
    order: Sequence[int] | None = None,
    threads: int | None = 1,
    progress: Progress = silent,
) -> tuple[SideRecord, ...]:
    """Train every side over `runs` and compare it with the reference; return a record of each.

    With a truth, it is compared with that as well.

    Args:
        sides: what to compare; the reference and the truth themselves may be among them.
        reference: a side in float32 whose plan keeps every buffer apart.
        runs: what the host does in each run; the truth and sides in float64 get the same data,
            widened.
        truth: the same program in float64, every buffer apart.
        lockstep: how many of the runs each side in float32 is repeated in lockstep with the
            reference, at least, for its origins; 0: none.
        order: every step, in the order in which all sides run; the list's by default.
        threads: threads that calls may use.
        progress: called with (what is done, how many of, how many).

    Raises:
        EngineError: as `Runtime` does, or a plan that has to keep buffers apart does not.
    """
    for side in (reference, truth):
        if side is not None:
            _require_apart(side)
    records = [_SideNotes(side) for side in sides]
    with ExitStack() as stack:
        basis = Kept(stack.enter_context(reference.bound(threads, order)))
        exact = None if truth is None else Kept(stack.enter_context(truth.bound(threads, order)))
        machines = [
            None if side in (reference, truth) else stack.enter_context(side.bound(threads, order)) for side in sides
        ]
        for number, host in enumerate(runs):
            basis.run(host)
            if exact is not None:
                exact.run(_wide(host))
            scale = Scale(basis, exact)
            for record, machine in zip(records, machines, strict=True):
                record.keep(number, *_taken(record.side, machine, host, scale))
                progress(record.side.name, number + 1, len(runs))
    for record in records:
        if lockstep and record.looked_into and record.side not in (reference, truth):
            record.origins = _origins((record.side, reference, truth), runs[: record.horizon(lockstep)], order, threads)
            progress(f"{record.side.name}: lockstep", 1, 1)
    return tuple(record.course() for record in records)


def _taken(
    side: Side, machine: Runtime | None, host: HostRun, scale: Scale
) -> tuple[Mapping[str, Array], Sequence[ComparedResult]]:
    """Run a side once; return what the host reads, and how every result compares."""
    if machine is None:  # the reference or the truth: it has run
        kept = scale.exact if scale.exact is not None and side.wide else scale.basis
        return kept.outputs, shown(kept, scale)
    host = _wide(host) if side.wide else host
    watch = ResultComparer(side.lowered, scale)
    if EXECUTORS[side.executor].observed:
        return machine.run(host.inputs, skip=host.skip, observer=watch), watch.found
    outputs = machine.run(host.inputs, skip=host.skip)
    for step, value in remaining(machine):
        watch.look(step, value, machine.array(value))
    return outputs, watch.found


@dataclass(slots=True)
class _SideNotes:
    """What is noted of one side while it runs."""

    side: Side
    outputs: list[dict[str, Array]] = field(default_factory=list)
    rows: list[LayerRow] = field(default_factory=list)
    first: tuple[int, int] | None = None
    origins: tuple[Origin, ...] | None = None

    @property
    def looked_into(self) -> bool:
        """Whether lockstep with the reference can say more."""
        return not self.side.wide and EXECUTORS[self.side.executor].observed

    def horizon(self, least: int) -> int:
        """How many runs to repeat in lockstep: until it shows."""
        return max(least, 0 if self.first is None else self.first[0])

    def keep(self, number: int, outputs: Mapping[str, Array], found: Sequence[ComparedResult]) -> None:
        self.outputs.append(dict(outputs))
        ops = self.side.lowered.tensors
        groups: dict[tuple[int | None, str], list[ComparedResult]] = {}
        for one in found:
            tensor = ops[one.op]
            groups.setdefault((tensor.layer, tensor.stage), []).append(one)
        self.rows += [row_of(number + 1, layer, stage, members) for (layer, stage), members in groups.items()]
        if self.first is None:
            op = next((one.op for one in found if one.gap is not None), None)
            self.first = None if op is None else (number + 1, op)

    def course(self) -> SideRecord:
        side = self.side
        watched = EXECUTORS[side.executor].observed
        return SideRecord(
            name=side.name,
            plan=side.plan,
            wide=side.wide,
            executor=side.executor,
            outputs={name: tuple(outputs[name] for outputs in self.outputs) for name in (self.outputs or [{}])[0]},
            rows=tuple(self.rows),
            first_step=None if self.first is None else self.first[0],
            first_op=None if self.first is None or not watched else self.first[1],
            origins=self.origins,
        )


def _origins(
    sides: tuple[Side, Side, Side | None], runs: Sequence[HostRun], order: Sequence[int] | None, threads: int | None
) -> tuple[Origin, ...]:
    with ExitStack() as stack:
        planned, reference, truth = (
            None if side is None else stack.enter_context(side.bound(threads, order)) for side in sides
        )
        assert planned is not None
        assert reference is not None
        return origins(planned, reference, runs, order=order, truth=truth)


def _wide(host: HostRun) -> HostRun:
    return HostRun(inputs=widened(host.inputs), skip=host.skip)


def _require_apart(side: Side) -> None:
    program, plan = side.lowered.program, side.plan
    order = np.lexsort((plan.offset, plan.arena))
    rows = order[(plan.arena[order] != OWN) & (program.buffers.nbytes[order] > 0)]
    ends = plan.offset[rows] + program.buffers.nbytes[rows]
    meet = (plan.arena[rows][1:] == plan.arena[rows][:-1]) & (plan.offset[rows][1:] < ends[:-1])
    if meet.any():
        names = [program.buffers.names[int(rows[int(np.flatnonzero(meet)[0]) + i])] for i in (0, 1)]
        raise EngineError(
            f"the plan of {side.name!r} lays {names[1]!r} over {names[0]!r}; what is compared with keeps buffers apart"
        )


__all__ = ["EXECUTORS", "LayerRow", "Progress", "Side", "SideExecutor", "SideRecord", "compare", "silent"]
