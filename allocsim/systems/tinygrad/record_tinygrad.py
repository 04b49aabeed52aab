"""Record the schedules that tinygrad's memory planner takes and returns, as JSON data.

    from record_tinygrad import recorded
    with recorded() as schedules:
        step()
    json.dump(schedules, file)

This module runs in an interpreter that has tinygrad. With `DEV=NULL` tinygrad computes nothing and
still plans every schedule. `allocsim.systems.tinygrad.tinygrad_schedule` reads the file.

What this module does not see: schedules without memory planning (`NO_MEMORY_PLANNER`). A buffer
over several devices raises ValueError.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tinygrad.engine.jit
import tinygrad.schedule
from tinygrad.schedule.memory import memory_plan_rewrite
from tinygrad.uop.ops import Ops, UOp

Row = dict[str, Any]


@contextmanager
def recorded() -> Iterator[list[Row]]:
    """Yield a list to which each call of the planner appends a schedule."""
    schedules: list[Row] = []

    def planned(linear: UOp, held: "set[UOp] | None" = None) -> UOp:
        result = memory_plan_rewrite(linear, held)
        schedules.append(_schedule(linear, result, held or set()))
        return result

    places: tuple[Any, ...] = (tinygrad.schedule, tinygrad.engine.jit)
    for module in places:
        module.memory_plan_rewrite = planned
    try:
        yield schedules
    finally:
        for module in places:
            module.memory_plan_rewrite = memory_plan_rewrite


def _schedule(linear: UOp, planned: UOp, held: "set[UOp]") -> Row:
    ids: dict[UOp, int] = {}
    arenas: dict[UOp, int] = {}
    buffers: list[Row] = []
    calls = []
    for before, after in zip(linear.src, planned.src, strict=True):
        for one, other in zip(before.src[1:], after.src[1:], strict=True):
            if one.op not in (Ops.BUFFER, Ops.PARAM):
                raise ValueError(f"a call has {one.op} as an operand; a buffer of one device is needed")
            if one not in ids:
                ids[one] = len(ids)
                buffers.append(_buffer(one, other, ids[one], arenas))
        bufs = [ids[one] for one in before.src[1:]]
        calls.append({"kind": before.src[0].op.name, "name": None, "bufs": bufs, **_uses(before.src[0], len(bufs))})
    return {"n_calls": len(calls), "calls": calls, "buffers": buffers, "n_held": len(held)}


def _buffer(one: UOp, other: UOp, number: int, arenas: "dict[UOp, int]") -> Row:
    """Return the row of a buffer or a JIT's input: held in its own memory, or in an arena."""
    row = {"id": number, "size": one.nbytes(), "dtype": str(one.dtype), "device": str(one.device)}
    if other is one:
        return row | {"held": True, "arena": None, "offset": None}
    while other.op is Ops.BITCAST:
        other = other.src[0]
    whole, offset = (other, 0) if other.op is Ops.BUFFER else (other.src[0], int(other.src[1].arg))
    return row | {"held": False, "arena": arenas.setdefault(whole, len(arenas)), "offset": offset}


def _uses(kernel: UOp, count: int) -> Row:
    """Return the positions of the buffers that a call writes, and of the buffers that it reads."""
    stores = [row for row in kernel.toposort() if row.op is Ops.STORE] if kernel.op is Ops.SINK else []
    if not stores:
        return {"writes": [0][:count], "reads": list(range(1, count))}
    writes = {slot for row in stores for slot in _slots(row.src[0].src[0])}
    reads = {slot for row in stores for part in (*row.src[0].src[1:], *row.src[1:]) for slot in _slots(part)}
    return {"writes": sorted(writes), "reads": sorted(reads)}


def _slots(row: UOp) -> set[int]:
    """Return the numbers of the kernel parameters that an expression uses."""
    return {part.arg.slot for part in row.toposort() if part.op is Ops.PARAM}
