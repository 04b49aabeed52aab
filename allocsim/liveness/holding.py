"""The buffers that are held at the step at which most bytes are held, and the reason for each: the
believed lifetimes, compared with the segments of the program.

A buffer is *held* in steps `[start, stop)` of a problem, by a planner or by the references of a
program. It is *needed* in its segments (`allocsim.liveness.segments`). If it is held and not
needed, some reference, cache or too long believed lifetime keeps it.

Time: steps, half-open. Buffers in memory of their own (`own`) are left out. O(size).

What this module does not see: plans, and the owners of references.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from allocsim.liveness import live_bytes, segments
from allocsim.model import HOST_READ, VIEW, Problem, Program
from allocsim.model.layout import LIMIT, Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One buffer that is held at a step."""

    buffer: int
    nbytes: int
    needed: bool
    """Whether the buffer is live at the step (`allocsim.liveness.segments`)."""
    reader: int | None
    """The next op from the step on that reads or writes the buffer; None if there is none."""
    until: int
    """The step before which the buffer is given back; the number of ops if it is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The first step at which most bytes are held."""

    step: int
    nbytes: int
    needed: int
    """The most bytes that are live at one step, which may be another step."""
    buffers: tuple[Held, ...]
    """The buffers held at `step`, largest first."""

    @property
    def idle(self) -> int:
        """Bytes of the held buffers that are not needed."""
        return sum(row.nbytes for row in self.buffers if not row.needed)


def holding(problem: Problem) -> Holding | None:
    """Return the buffers held at the peak of a problem; None for a program without ops."""
    program = problem.program
    if not len(program.ops):
        return None
    counted = ~problem.own
    stop = np.where(problem.pinned, len(program.ops), problem.stop)
    here = np.flatnonzero(counted & (stop > problem.start))
    held = _sums(problem.start[here], stop[here], program.buffers.nbytes[here], len(program.ops))
    step = int(np.argmax(held))
    who = here[(problem.start[here] <= step) & (step < stop[here])]
    who = who[np.argsort(-program.buffers.nbytes[who], kind="stable")]
    table = segments(program)
    live = np.zeros(len(program.buffers), dtype=np.bool_)
    live[table[(table[:, 1] <= step) & (step < table[:, 2]), 0]] = True
    later = _next_touch(program, step)
    rows = tuple(
        Held(
            buffer=buffer,
            nbytes=int(program.buffers.nbytes[buffer]),
            needed=bool(live[buffer]),
            reader=int(later[buffer]) if later[buffer] < len(program.ops) else None,
            until=int(stop[buffer]),
        )
        for buffer in who.tolist()
    )
    needed = int(live_bytes(program, counted=counted).max())
    return Holding(step=step, nbytes=int(held[step]), needed=needed, buffers=rows)


def reason(program: Program, row: Held) -> str:
    """Return in words why a buffer is held."""
    kept = row.until >= len(program.ops)
    end = "kept to the end" if kept else f"given back before op {row.until}"
    if row.reader is None:
        return f"no op touches it again; {end}"
    op = program.ops[row.reader]
    if row.needed:
        word = "the host reads it" if op.kind == HOST_READ else f"op {row.reader} {op.kind!r} needs it"
        return f"{word}; {end}"
    return f"nobody reads what it holds, op {row.reader} {op.kind!r} overwrites it; {end}"


def _sums(start: Int64s, stop: Int64s, amount: Any, steps: int) -> Int64s:
    if float(amount.sum(dtype=np.float64)) > LIMIT:
        amount = amount.astype(object)
    change = np.zeros(steps + 1, dtype=amount.dtype)
    np.add.at(change, start, amount)
    np.add.at(change, np.minimum(stop, steps), -amount)
    sums: Int64s = np.cumsum(change)[:-1]
    return sums


def _next_touch(program: Program, step: int) -> Int64s:
    """Return for each buffer the first op from `step` on that reads or writes it; the number of ops
    if no op does.
    """
    touch = np.full(len(program.buffers), len(program.ops), dtype=np.int64)
    home = program.values.buffer
    for index in range(len(program.ops) - 1, step - 1, -1):
        op = program.ops[index]
        if op.kind != VIEW:
            touch[home[[*op.operands, *op.results]]] = index
    return touch


__all__ = ["Held", "Holding", "holding", "reason"]
