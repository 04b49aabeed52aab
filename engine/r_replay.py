"""Run a plan on drawn data and find the first op that writes other bytes than without reuse.

    first = diverging(plan, {2: KernelCall(kind="rms_norm_back", variant="two_pass", params={"eps": 1e-5})})

For programs that no graph stands behind: pieces cut out of one, files, reproducers. What the host
writes and what persists before the run is drawn (normal, small; zeros for integers), the same on
both sides. After each op the planned side is given the results of the other, so that what is found
is an origin and no consequence. Comparison is bitwise.

Contract: every op but views and the host's has a `KernelCall`. An op that reads other bytes than
the one apart is the plan's doing; then, and where nothing differs, the answer is None.

Complexity: one run of each side, every operand and result compared once. Memory: the arenas, and
every buffer once more.

What this module does not see: graphs, and plans that are not sound (`allocsim.judge`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocsim.array_difference import relative_error, same_bits
from allocsim.errors import EngineError
from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Plan
from engine.kernels import kernel
from engine.runtime.plan_memory import NUMPY_DTYPES, block

Array = NDArray[Any]
LIMIT = 1 << 32
"""Bytes a replay may take on each side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """The kernel of one op."""

    kind: str
    variant: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """An op that read the same bytes on both sides and wrote other ones."""

    op: int
    position: int
    """Of the result."""
    max_error: float | None
    """Relative to the largest magnitude apart; None where either side is not finite."""


def diverging(plan: Plan, steps: Mapping[int, KernelCall], *, seed: int = 0) -> Divergence | None:
    """Return the first op of the plan's program that diverges by itself, None where there is none.

    Raises EngineError where a kernel cannot run on the shapes it is given, or a buffer has no place
    to be.
    """
    program, random = plan.program, np.random.default_rng(seed)
    sides = tuple(_bound(plan, apart=apart) for apart in (False, True))
    for content in np.flatnonzero(program.buffers.persistent[program.values.buffer]).tolist():
        _draw(random, sides, content)
    for op in program.ops:
        if op.kind in {VIEW, HOST_READ}:
            continue
        if op.kind == HOST_WRITE:
            for value in op.results:
                _draw(random, sides, value)
            continue
        if op.step not in steps:
            raise EngineError(f"op {op.step} ({op.name}) has no kernel")
        planned, apart = ([[side[v] for v in values] for values in (op.operands, op.results)] for side in sides)
        if any(not same_bits(a, b) for a, b in zip(planned[0], apart[0], strict=True)):
            return None
        for operands, results in (planned, apart):
            _call(steps[op.step], tuple(operands), tuple(results))
        for position, (mine, right) in enumerate(zip(planned[1], apart[1], strict=True)):
            if not same_bits(mine, right):
                return Divergence(op=op.step, position=position, max_error=relative_error(mine, right))
    return None


def _call(step: KernelCall, operands: tuple[Array, ...], results: tuple[Array, ...]) -> None:
    function, arguments = kernel(step.kind, step.variant).bind(step.params, operands, results)
    with np.errstate(all="ignore"):
        function(*arguments)


def _draw(random: np.random.Generator, sides: tuple[list[Array], ...], value: int) -> None:
    """Lay the same data on both sides."""
    target = sides[0][value]
    data = random.standard_normal(target.shape) if target.dtype.kind == "f" else np.zeros(target.shape)
    for side in sides:
        np.copyto(side[value], data, casting="unsafe")


def _bound(plan: Plan, *, apart: bool) -> list[Array]:
    """Return an array for each value, in the arenas or in memory of its own."""
    program = plan.program
    ends = plan.offset + np.maximum(plan.nbytes, program.buffers.nbytes)
    if (
        int(program.buffers.nbytes.sum()) > LIMIT
        or int(ends.max(initial=0)) > LIMIT
        or int(plan.offset.min(initial=0)) < 0
    ):
        raise EngineError(f"the plan reaches beyond [0, {LIMIT}) bytes")
    arenas = [block(int(ends[plan.arena == index].max(initial=0))) for index in range(len(program.arenas))]
    bases: list[tuple[NDArray[np.uint8], int]] = []
    for buffer, nbytes in enumerate(program.buffers.nbytes.tolist()):
        arena = int(plan.arena[buffer])
        bases.append((block(nbytes), 0) if apart or arena < 0 else (arenas[arena], int(plan.offset[buffer])))
    found = []
    for value, (low, high) in zip(program.values, program.values.hulls.tolist(), strict=True):
        if value.dtype not in NUMPY_DTYPES:
            raise EngineError(f"value {value.name!r} has dtype {value.dtype}; there is no kernel for it")
        memory, base = bases[value.buffer]
        start = base + value.offset
        if low < 0 or base + high > len(memory) or (memory.ctypes.data + start) % value.itemsize:
            raise EngineError(f"value {value.name!r} at byte {start} does not fit its memory of {len(memory)} bytes")
        found.append(np.ndarray(value.shape, NUMPY_DTYPES[value.dtype], memory.data, start, value.strides))
    return found
