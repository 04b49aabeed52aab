"""What an execution is compared with while it runs: the reference and the float64 truth.

Both keep every result of a run.

    basis, exact = Kept(reference), Kept(truth)       # bound runtimes whose plans keep every buffer apart
    basis.run(host), exact.run(wide_host)
    watch = ResultComparer(lowered, Scale(basis, exact))
    machine.run(host.inputs, skip=host.skip, observer=watch)
    watch.found                                                     # one `ComparedResult` for each result of each op, in the order run

After a run the memory of a plan without reuse holds every value, but for those that the program
itself writes over: they are copied out when made. So a side is compared where it stands, each
result at its step, and no plan is changed for it. Gaps between reference and truth are measured
once for each value that is asked about.

What this module does not see: modes and how they are chosen
(`engine.d_differential.side_comparison`), and why something differs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from allocsim.array_difference import same_bits
from allocsim.errors import EngineError
from allocsim.model import HOST_READ, HOST_WRITE, VIEW
from engine.d_differential import HostRun, tap
from engine.d_differential.distance import Gap, gap_of
from engine.d_differential.rounding import Nature, bound, nature, worst
from engine.graph.lowering import Lowered
from engine.graph.widening import is_wide
from engine.kernels.binding import Array
from engine.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """The tensors of one layer and stage in one training step, against the reference."""

    step: int
    layer: int | None
    stage: str
    tensors: int
    """Compared."""
    differing: int
    """Not equal to the bit."""
    ulp: int | None = None
    """The most units in the last place any of them is off; None where none differs."""
    relative: float | None = None
    """The largest error against the reference; None where none differs or one is not finite."""
    op: int | None = None
    """The op whose result is worst: of the largest error over its bound where the truth is known,
    else of the largest error."""
    error: float | None = None
    """Its error against the truth, None where that is not known or a number is not finite;"""
    reference_error: float | None = None
    """that of the reference;"""
    bound: float | None = None
    """and the largest that still is rounding."""
    nature: Nature | None = None
    """None where something differs and no truth is there to tell."""


# what is compared with ----------------------------------------------------------------------------


class Kept:
    """A runtime that keeps what it makes, and copies of what it overwrites itself."""

    def __init__(self, machine: Runtime) -> None:
        self.machine = machine
        lost = overwritten(machine)
        self._tap = tap(machine, lost) if lost else None
        self._copies: dict[int, Array] = {}
        self.outputs: dict[str, Array] = {}

    def run(self, host: HostRun) -> None:
        """Do one run and keep what it makes, until the next."""
        self.outputs = self.machine.run(host.inputs, skip=host.skip, observer=self._tap)
        self._copies = self._tap.take() if self._tap is not None else {}

    def array(self, value: int) -> Array:
        """Return a value of the last run."""
        copy = self._copies.get(value)
        return self.machine.array(value) if copy is None else copy


class Scale:
    """The reference, the truth and their distance of one step, computed once for each value."""

    def __init__(self, basis: Kept, exact: Kept | None) -> None:
        self.basis, self.exact = basis, exact
        self._gaps: dict[int, Gap] = {}

    def reference_gap(self, value: int) -> Gap:
        """Return how far the reference's value is from the truth's."""
        assert self.exact is not None
        if value not in self._gaps:
            self._gaps[value] = gap_of(self.basis.array(value), self.exact.array(value))
        return self._gaps[value]

    def read_error(self, step: int) -> float:
        """Return the reference's largest error at what an op reads."""
        return max(
            (self.reference_gap(value).error for value in self.basis.machine.program.ops[step].operands), default=0.0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedResult:
    """One result of one op compared; of one that is equal nothing but that."""

    op: int
    gap: Gap | None = None
    error: Gap | None = None
    reference: Gap | None = None
    bound: float | None = None
    nature: Nature | None = "equal"

    @property
    def weight(self) -> tuple[bool, float, float]:
        """What makes it worse than another."""
        gap, error = self.gap, self.error
        if gap is None:
            return False, 0.0, 0.0
        off = error.error / self.bound if error is not None and self.bound else 0.0
        return not gap.finite, off, gap.error


class ResultComparer:
    """An observer that compares every result with the reference's, or in float64 the truth's."""

    def __init__(self, lowered: Lowered, scale: Scale) -> None:
        self._scale, self._wide = scale, is_wide(lowered)
        against = scale.exact if self._wide else scale.basis
        if against is None:
            raise EngineError(f"{lowered!r} is in float64, and no float64 reference is run to compare it with")
        self._against: Kept = against
        self._compared = compared(lowered)
        self.found: list[ComparedResult] = []

    def __call__(self, step: int, _operands: Sequence[Array], results: Sequence[Array]) -> None:
        """Compare what an op has just written."""
        for position, value in enumerate(self._compared.get(step, ())):
            self.look(step, value, results[position])

    def look(self, step: int, value: int, mine: Array) -> None:
        """Compare one result."""
        right = self._against.array(value)
        self.found.append(
            ComparedResult(op=step) if same_bits(mine, right) else self._differing(step, value, mine, right)
        )

    def _differing(self, step: int, value: int, mine: Array, right: Array) -> ComparedResult:
        gap, exact = gap_of(mine, right), self._scale.exact
        if exact is None:
            return ComparedResult(op=step, gap=gap, nature=None)
        if self._wide:  # the truth is the reference here, and has no error of its own to compare with
            zero = gap_of(right, right)
            limit = bound(zero, 0.0, mine.dtype)
            return ComparedResult(
                op=step, gap=gap, error=gap, reference=zero, bound=limit, nature=nature(gap, zero, limit)
            )
        error, reference = gap_of(mine, exact.array(value)), self._scale.reference_gap(value)
        limit = bound(reference, self._scale.read_error(step), mine.dtype)
        return ComparedResult(
            op=step, gap=gap, error=error, reference=reference, bound=limit, nature=nature(error, reference, limit)
        )


def shown(kept: Kept, scale: Scale) -> list[ComparedResult]:
    """Return the comparison of the reference or of the truth for one step.

    The reference equals itself; the truth shows how far the reference is from it.
    """
    found = []
    for step, values in compared(kept.machine.lowered).items():
        for value in values:
            if kept is scale.basis or scale.exact is None:
                found.append(ComparedResult(op=step))
                continue
            gap = scale.reference_gap(value)
            found.append(
                ComparedResult(op=step)
                if gap.equal
                else ComparedResult(op=step, gap=gap, error=gap, reference=gap, nature="rounding")
            )
    return found


def row_of(step: int, layer: int | None, stage: str, members: Sequence[ComparedResult]) -> LayerRow:
    """Sum up the results of one layer and stage in one step."""
    differing = [one for one in members if one.gap is not None]
    if not differing:
        return LayerRow(step=step, layer=layer, stage=stage, tensors=len(members), differing=0, nature="equal")
    most = max(differing, key=lambda one: one.weight)
    gaps = [one.gap for one in differing if one.gap is not None]
    ulps = [gap.ulp for gap in gaps if gap.ulp is not None]
    natures = [one.nature for one in differing]
    return LayerRow(
        step=step,
        layer=layer,
        stage=stage,
        tensors=len(members),
        differing=len(differing),
        ulp=max(ulps, default=None),
        relative=max(gap.error for gap in gaps) if all(gap.finite for gap in gaps) else None,
        op=most.op,
        error=None if most.error is None else most.error.shown,
        reference_error=None if most.reference is None else most.reference.shown,
        bound=most.bound,
        nature=None if None in natures else worst([one for one in natures if one is not None]),
    )


# facts of a side ----------------------------------------------------------------------------------


def compared(lowered: Lowered) -> dict[int, tuple[int, ...]]:
    """Return step -> results of every op that a kernel does."""
    return {
        step: lowered.program.ops[step].results for step, kernel in enumerate(lowered.kernels) if kernel is not None
    }


def overwritten(machine: Runtime) -> list[int]:
    """Return the results that a later op of the same run writes over, within their own buffer."""
    program = machine.program
    ops, buffer = program.ops, program.values.buffer
    quiet = ops.is_kind(VIEW) | ops.is_kind(HOST_READ) | ops.is_kind(HOST_WRITE)
    steps = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    last = np.full(len(program.buffers), -1, dtype=np.int64)
    writes = ~quiet[steps]
    np.maximum.at(last, buffer[ops.results[writes]], steps[writes])
    gone = writes & (steps < last[buffer[ops.results]])
    return [int(value) for value in ops.results[gone]]


def remaining(machine: Runtime) -> Iterator[tuple[int, int]]:
    """Yield (step, value) of the results that are there after a run under any plan.

    What persists, and what the host reads.
    """
    program = machine.program
    ops = program.ops
    persistent, gone = program.buffers.persistent, set(overwritten(machine))
    read = {value for op in ops if op.kind == HOST_READ for value in op.operands}
    for step, kernel in enumerate(machine.lowered.kernels):
        if kernel is None:
            continue
        for value in ops[step].results:
            if value not in gone and (value in read or persistent[program.values.buffer[value]]):
                yield step, value
