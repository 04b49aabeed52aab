"""Constraints of a planner besides the program: pins, memory of its own, fixed offsets.

A pin says that the host reads a value after the run. It is a policy and not part of any planner, so
every policy works with every planner, and it follows the *storage*: a pinned view pins the buffer
it lies in. Policies are functions from a program to a mask over its buffers; `PINS` names them for
the command line.

What this module does not see: lifetimes and offsets. Whether a planner heeds what it is told is for
`allocsim.judge` to say.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError, UnknownNameError
from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Bools, Problem, Program


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constraints:
    """The part of a problem that is decided by the caller and not by a planner."""

    pinned: Bools
    """Buffers that must survive to the end of the run; one entry for each buffer."""
    own: Bools
    """Buffers in memory of their own, outside all arenas; one entry for each buffer."""
    fixed: Mapping[int, int] = field(default_factory=dict)
    """Buffer -> offset (bytes) that is already decided."""

    @classmethod
    def of(
        cls,
        program: Program,
        *,
        pins: "Pins | None" = None,
        own: "Mask | None" = None,
        fixed: Mapping[int, int] | None = None,
    ) -> "Constraints":
        """Fill in the defaults of a document: what a `host.read` reads is pinned, persistent
        buffers are `own`.

        `pins` is a mask over the buffers, a list of buffers, a policy or the name of one; `own` a
        mask or a list of buffers. Raises ModelError for buffers that do not exist, UnknownNameError
        for an unknown policy.
        """
        chosen = resolve_pins(pins) if isinstance(pins, str) else pins if pins is not None else pin_reads
        count = len(program.buffers)
        for buffer in fixed or ():
            if not 0 <= buffer < count:
                raise ModelError(f"fixed.{buffer}", f"buffer {buffer} does not exist; there are {count}")
        return cls(
            pinned=buffer_mask(program, chosen(program) if callable(chosen) else chosen, "pinned"),
            own=program.buffers.persistent if own is None else buffer_mask(program, own, "own"),
            fixed=dict(fixed or {}),
        )

    @classmethod
    def from_problem(cls, problem: Problem) -> "Constraints":
        """Return what the planner of `problem` was told; the rest of the problem is its belief."""
        return cls(pinned=problem.pinned, own=problem.own, fixed=dict(problem.fixed))


Mask = Bools | Iterable[int]
"""A boolean for each buffer, or the indices of some."""

PinPolicy = Callable[[Program], Bools]

Pins = Mask | PinPolicy | str


def pin_values(program: Program, values: Iterable[int]) -> Bools:
    """Pin the buffers in which `values` lie. Raises ModelError for a value that does not exist."""
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    count = len(program.values)
    for value in values:
        if not 0 <= value < count:
            raise ModelError("pins", f"value {value} does not exist; there are {count}")
        mask[program.values.buffer[value]] = True
    return mask


def pin_none(program: Program) -> Bools:
    """Pin nothing, not even what the host reads: what an API without outputs does."""
    return np.zeros(len(program.buffers), dtype=np.bool_)


def pin_reads(program: Program) -> Bools:
    """Pin the buffers that a `host.read` reads."""
    ops = program.ops
    return _touched(program, ops.operands, ops.operand_starts, ops.is_kind(HOST_READ))


def pin_nodes(program: Program) -> Bools:
    """Pin every buffer an op other than `host.write` writes, and what the host reads: "flag every
    node as output".
    """
    ops = program.ops
    return _touched(program, ops.results, ops.result_starts, ~ops.is_kind(HOST_WRITE) & ~ops.is_kind(VIEW)) | pin_reads(
        program
    )


def pin_all(program: Program) -> Bools:
    """Pin every buffer that any op writes, uploads included, and what the host reads: "flag nodes
    and leafs as output".
    """
    ops = program.ops
    return _touched(program, ops.results, ops.result_starts, ~ops.is_kind(VIEW)) | pin_reads(program)


PINS: Final[dict[str, PinPolicy]] = {
    "reads": pin_reads,
    "nodes": pin_nodes,
    "all": pin_all,
    "none": pin_none,
}
"""Policies by name, the default first."""


def resolve_pins(name: str) -> PinPolicy:
    """Return the policy called `name`; raise UnknownNameError if there is none."""
    if name not in PINS:
        raise UnknownNameError("pin policy", name, PINS)
    return PINS[name]


def buffer_mask(program: Program, mask: Any, name: str) -> Bools:
    """Return `mask` (a mask or buffer indices) as a mask over the buffers.

    Raise ModelError, placed at `name`, if it is neither.
    """
    count = len(program.buffers)
    column = np.asarray(mask if isinstance(mask, np.ndarray) else list(mask))
    if column.dtype == np.bool_:
        if column.shape != (count,):
            raise ModelError(name, f"a mask of shape {column.shape}; the program has {count} buffers")
        return column.astype(np.bool_)
    full = np.zeros(count, dtype=np.bool_)
    if column.size == 0:
        return full
    if not np.issubdtype(column.dtype, np.integer) or column.ndim != 1:
        raise ModelError(name, f"{mask!r} is neither a mask over buffers nor a list of buffers")
    for position, buffer in enumerate(column.tolist()):
        if not 0 <= buffer < count:
            raise ModelError(f"{name}[{position}]", f"buffer {buffer} does not exist; there are {count}")
    full[column] = True
    return full


def _touched(program: Program, values: Any, starts: Any, steps: Bools) -> Bools:
    """Mask of the buffers of those `values` (CSR by op) whose op is in the mask `steps`."""
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    mask[program.values.buffer[values[np.repeat(steps, np.diff(starts))]]] = True
    return mask


__all__ = [
    "PINS",
    "Constraints",
    "Mask",
    "PinPolicy",
    "Pins",
    "buffer_mask",
    "pin_all",
    "pin_nodes",
    "pin_none",
    "pin_reads",
    "pin_values",
    "resolve_pins",
]
