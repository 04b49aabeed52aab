"""Detector D: the same program on two plans, compared to the bit.

`origins` runs a planned runtime and a reference runtime in lockstep, op by op, and *heals*:
whenever the two part, the planned side is given the reference's result before the next op. Every
difference that remains is then an origin and no consequence of an earlier one, so two independent
faults show as two. An origin is one of

* `operand`: an op is about to read bytes that differ. They were equal when written, so something
  took them in between (the plan, the host, or a kernel that overran). They are healed for this op,
  so that it runs from right operands on both sides: a kernel's fault shows under a plan's. Where
  two operands lie on each other that cannot be done; then the op is not run on the planned side.
* `result`: an op read equal bytes and wrote different ones. Its kernel did it.

With the program in float64 as a third side (`truth`), each origin is also told to be rounding or
corruption (`engine.d_differential.rounding`): of use where the planned side runs other kernels.
`tap` copies chosen tensors out as they are made, without changing the plan.

Conventions: steps index the program; errors are relative to the largest magnitude of the reference
tensor (`engine.d_differential.distance`). Comparison is bitwise: -0.0 and 0.0 differ, equal NaNs
agree. Nothing is assumed of either plan.

Complexity: one run of each side, plus reading every operand and result once. Memory: the runtimes.

What this module does not see: why a difference arose (`allocsim.verdict`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from allocsim.array_difference import relative_error, same_bits
from allocsim.model import HOST_READ, HOST_WRITE, VIEW
from allocsim.verdict.evidence import Origin
from engine.d_differential.distance import gap_of
from engine.d_differential.rounding import Difference, bound, nature
from engine.graph.widening import widened
from engine.kernels.binding import Array
from engine.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRun:
    """What the host does for one run: the arrays it offers, and the inputs it leaves out."""

    inputs: Mapping[str, Array]
    skip: Collection[str] = ()


def origins(
    planned: Runtime,
    reference: Runtime,
    runs: Sequence[HostRun],
    *,
    order: Sequence[int] | None = None,
    truth: Runtime | None = None,
) -> tuple[Origin, ...]:
    """Run both in lockstep.

    Return where the planned one goes wrong by itself, in order of execution.

    `order` names every step in the order in which both are to run; the list's by default. `truth`
    is the program in float64, with every buffer apart (`engine.graph.widening`); it gets the same
    data.
    """
    found: list[Origin] = []
    kinds = _kinds(planned)
    for number, host in enumerate(runs):
        wide = widened(host.inputs) if truth is not None else {}
        for step in range(len(kinds)) if order is None else order:
            if kinds[step] == VIEW:
                continue
            if truth is not None:
                truth.execute(step, wide, skip=host.skip)
            found += _lockstep((planned, reference, truth), step=step, kind=kinds[step], host=host, run=number)
    return tuple(found)


def _lockstep(
    sides: tuple[Runtime, Runtime, Runtime | None], *, step: int, kind: str, host: HostRun, run: int
) -> Iterator[Origin]:
    """Run one op on both sides and yield what is wrong: an operand that was taken, and a result
    that is wrong from right operands.
    """
    planned, reference, _ = sides
    taken = _first_difference(planned.operands(step), reference.operands(step))
    if kind == HOST_WRITE:
        planned.execute(step, host.inputs, skip=host.skip)
        reference.execute(step, host.inputs, skip=host.skip)
        return  # what the host lays down is equal by construction, or left out on both sides
    found = [] if taken is None else [_origin(sides, step, "operand", taken, run=run)]
    saved = [operand.copy() for operand in planned.operands(step)] if taken is not None else []
    whole = taken is None or (kind != HOST_READ and _healed(planned.operands(step), reference.operands(step)))
    if whole:
        planned.execute(step, host.inputs, skip=host.skip)
    reference.execute(step, host.inputs, skip=host.skip)
    position = _first_difference(planned.results(step), reference.results(step)) if whole else None
    if position is not None:
        found.append(_origin(sides, step, "result", position, run=run))
    for mine, old in zip(planned.operands(step) if saved else (), saved, strict=True):
        if mine.flags.writeable:
            np.copyto(mine, old)  # whoever took these bytes still needs them
    if found:
        for wrong, healed in zip(planned.results(step), reference.results(step), strict=True):
            np.copyto(wrong, healed)
    yield from found


def _healed(mine: Sequence[Array], right: Sequence[Array]) -> bool:
    """Give operands the reference's bytes; False where two of them lie on each other now."""
    for wrong, healed in zip(mine, right, strict=True):
        if not same_bits(wrong, healed):
            if not wrong.flags.writeable:
                return False
            np.copyto(wrong, healed)
    return _first_difference(mine, right) is None


def _origin(
    sides: tuple[Runtime, Runtime, Runtime | None],
    step: int,
    what: Literal["operand", "result"],
    position: int,
    *,
    run: int,
) -> Origin:
    planned, reference, truth = sides
    results = what == "result"
    mine, right = ((side.results(step) if results else side.operands(step))[position] for side in (planned, reference))
    gap = gap_of(mine, right)
    return Origin(
        run=run,
        op=step,
        what=what,
        position=position,
        value=_value(planned, step, what, position),
        max_error=relative_error(mine, right),
        ulp=gap.ulp,
        nature=None
        if truth is None
        else _nature(mine, right, (reference, truth), step=step, position=position, results=results),
    )


def _nature(
    mine: Array, right: Array, sides: tuple[Runtime, Runtime], *, step: int, position: int, results: bool
) -> Difference:
    """Say what a difference at one op is, by the truth, which has just done the same op.

    An operand that was right when it was written and is not when it is read did not round.
    """
    reference, truth = sides
    if not results:
        return "corruption"
    exact = truth.results(step)[position]
    error, own = gap_of(mine, exact), gap_of(right, exact)
    pairs = zip(reference.operands(step), truth.operands(step), strict=True)
    return nature(error, own, bound(own, max((gap_of(a, b).error for a, b in pairs), default=0.0), right.dtype))


def _value(runtime: Runtime, step: int, what: str, position: int) -> int:
    op = runtime.lowered.program.ops[step]
    return op.operands[position] if what == "operand" else op.results[position]


def _kinds(runtime: Runtime) -> list[str]:
    ops = runtime.lowered.program.ops
    return [ops.kinds[code] for code in ops.kind.tolist()]


def _first_difference(mine: Sequence[Array], right: Sequence[Array]) -> int | None:
    return next((i for i, (a, b) in enumerate(zip(mine, right, strict=True)) if not same_bits(a, b)), None)


@dataclass(slots=True)
class Tap:
    """An observer of a runtime that copies chosen results out at the step that makes them."""

    values: frozenset[int]
    """Value indices to copy."""
    steps: Mapping[int, tuple[tuple[int, int], ...]]
    """Step -> (result position, value) to copy there."""
    copies: dict[int, Array] = field(default_factory=dict)

    def __call__(self, step: int, _operands: Sequence[Array], results: Sequence[Array]) -> None:
        """Copy what is wanted of this op."""
        for position, value in self.steps.get(step, ()):
            self.copies[value] = results[position].copy()

    def take(self) -> dict[int, Array]:
        """Return the copies made since the last call."""
        copies, self.copies = self.copies, {}
        return copies


def tap(runtime: Runtime, values: Iterable[int]) -> Tap:
    """Return an observer that copies each given value when it, or a view's parent, is made."""
    wanted = frozenset(values)
    ops = runtime.lowered.program.ops
    steps: dict[int, list[tuple[int, int]]] = {}
    for step in np.unique(runtime.lowered.program.producer[sorted(wanted)]).tolist():
        op = ops[step]
        steps[step] = [(position, value) for position, value in enumerate(op.results) if value in wanted]
    return Tap(values=wanted, steps={step: tuple(pairs) for step, pairs in steps.items()})


def compare(mine: Array, right: Array) -> tuple[float | None, float | None]:
    """Return |mine| / |right| and the cosine between them.

    Returns None where the reference is zero or a number is not finite.
    """
    a, b = np.asarray(mine, dtype=np.float64).ravel(), np.asarray(right, dtype=np.float64).ravel()
    length, length_right = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    if not length_right or not np.isfinite(length) or not np.isfinite(length_right):
        return None, None
    cosine = float(a @ b) / (length * length_right) if length else None
    return length / length_right, cosine


Observer = Callable[[int, Sequence[Array], Sequence[Array]], None]
"""Called after each op with the step and the bound operand and result arrays."""

__all__ = ["HostRun", "Observer", "Tap", "compare", "origins", "tap"]
