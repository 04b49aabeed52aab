"""Run tinygrad's memory planner (`tinygrad.schedule.memory.memory_plan_rewrite`) on a schedule with
calls that use each buffer at its first and at its last step.

The planner derives lifetimes from the schedule, rounds sizes up to multiples of 256 bytes, and has
an arena for each device. A pinned buffer is used by one more call at the end; tinygrad itself would
hold the buffer outside the arena.

What this module does not see: the planner's lanes for copies, because the schedule has no copies.
"""

import os
from collections.abc import Sequence

os.environ["DEV"] = "NULL"

from asking import AskedBuffer, serve
from tinygrad import dtypes
from tinygrad.schedule.memory import memory_plan_rewrite
from tinygrad.uop.ops import Ops, UOp

GRANULE = 256


def plan(buffers: Sequence[AskedBuffer], steps: int) -> list[int]:
    """Return the offset in bytes that tinygrad's planner gives each buffer."""
    made = [UOp.new_buffer(f"NULL:{row.arena}", row.nbytes, dtypes.int8) for row in buffers]
    calls: list[list[int]] = [[] for _ in range(steps)]
    for number, row in enumerate(buffers):
        for step in {row.start, row.stop - 1}:
            calls[step].append(number)
    rows = [UOp(Ops.CALL, src=(UOp(Ops.NOOP, arg=i), *(made[n] for n in call))) for i, call in enumerate(calls)]
    planned = memory_plan_rewrite(UOp(Ops.LINEAR, src=tuple(rows)), set())
    found: dict[int, int] = {}
    for call, row in zip(calls, planned.src, strict=True):
        for number, part in zip(call, row.src[1:], strict=True):
            found[number] = _offset(part)
    return [found[number] for number in range(len(buffers))]


def _offset(part: UOp) -> int:
    """Return the offset of a part of an arena (`arena[offset : offset + n]`); 0 for the whole."""
    while part.op is Ops.BITCAST:
        part = part.src[0]
    if part.op is Ops.BUFFER:
        return 0
    if part.op is not Ops.SHRINK or part.src[0].op is not Ops.BUFFER:
        raise ValueError(f"the schedule has {part.op} where a part of an arena is expected")
    return int(part.src[1].arg)


if __name__ == "__main__":
    serve(plan, alignment=GRANULE)
