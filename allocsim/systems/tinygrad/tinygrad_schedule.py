"""Read tinygrad's schedules after memory planning, as JSON
(`allocsim/systems/tinygrad/record_tinygrad.py` writes the file; docs/plans.md shows how).

    [{"n_calls": 2, "calls": [{"kind": "SINK", "name": "E_64", "bufs": [1, 0], "writes": [0], "reads": [1]}],
      "buffers": [{"id": 0, "size": 256, "device": "NULL", "held": true, "arena": null, "offset": null}]}]

Time: the calls in order. The fields `first` and `last` of a buffer (a closed range) are not used,
because they come from the schedule and are no belief of the planner.

Document. Each schedule is a program and a plan. A buffer is untyped bytes. A second write to a
buffer is a mutation, such as an `assign` in the user's program. `writes` and `reads` are positions
in `bufs`. A call without these fields writes its first buffer and reads the others, because
tinygrad puts the buffer that a kernel stores to first. If a call reads a buffer that it writes, it
is unknown whether that is safe in place. Held buffers (weights, inputs and outputs of a JIT,
tensors that the user keeps) are `state` in memory of their own. All other buffers are in the
planner's arenas, at multiples of 256 bytes.

What this module does not see: parts of buffers; a call reads and writes each buffer as a whole.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from allocsim.allowances import metered
from allocsim.errors import DocumentError, ModelError
from allocsim.formats.placing import APART, Placing
from allocsim.model import Arena, Document, Plan, Role
from allocsim.model.layout import LIMIT

GRANULE: Final = 256
"""The alignment in bytes: `block_size` of tinygrad/schedule/memory.py (0.14.0)."""

MAX_ROWS: Final = 1 << 22
"""The most calls, and the most buffers, of one schedule."""

Count = Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]


class ScheduledCall(msgspec.Struct, frozen=True):
    """A call of a kernel or a copy; `bufs` lists its buffers by `id`."""

    kind: str
    bufs: list[Count]
    name: str | None = None
    writes: list[Count] | None = None
    reads: list[Count] | None = None


class ScheduledBuffer(msgspec.Struct, frozen=True):
    """A buffer of a schedule with its arena and offset; a held buffer has neither."""

    id: Count
    size: Count
    held: bool
    device: str = ""
    arena: Count | None = None
    offset: Count | None = None


class Schedule(msgspec.Struct, frozen=True):
    """The calls of a schedule and its buffers, as the memory planner placed them."""

    calls: Annotated[list[ScheduledCall], msgspec.Meta(max_length=MAX_ROWS)]
    buffers: Annotated[list[ScheduledBuffer], msgspec.Meta(max_length=MAX_ROWS)]


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` has recorded schedules."""
    return head.lstrip()[:1] == b"[" and re.match(rb'\s*\[\s*\{\s*"n_calls"\s*:', head) is not None


@metered
def loads(data: bytes, source: str = "schedule") -> Document:
    """Return the plans of all schedules. Raise DocumentError with place and rule. O(file size)."""
    try:
        schedules = msgspec.json.decode(data, type=list[Schedule])
    except msgspec.ValidationError as error:
        rule, _, path = str(error).partition(" - at `$")
        raise DocumentError(source, path.strip(".`"), rule[:1].lower() + rule[1:]) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DocumentError(source, "", f"is not JSON: {str(error)[:200]}") from None
    if not any(row.offset is not None for schedule in schedules for row in schedule.buffers):
        raise DocumentError(source, "", "no plan here: no buffer of any schedule has an offset")
    numbers = sorted({row.arena for schedule in schedules for row in schedule.buffers if row.arena is not None})
    place = {arena: number for number, arena in enumerate(numbers)}
    plans = []
    for number, schedule in enumerate(schedules):
        try:
            plans.append(_plan(schedule, f"schedule {number}", place))
        except ModelError as error:
            raise DocumentError(source, f"[{number}].{error.place}", error.rule) from None
    return Document.of(*plans)


def _plan(schedule: Schedule, name: str, place: Mapping[int, int]) -> Plan:
    by_id = {row.id: row for row in schedule.buffers}
    if len(by_id) != len(schedule.buffers):
        raise ModelError("buffers", "two buffers have the same id")
    growing = Placing(name, [Arena(name=f"arena {arena}", alignment=GRANULE) for arena in place])
    now = _held(schedule, name, growing, place)
    home = {row.id: at for at, row in enumerate(schedule.buffers)}

    def fresh(index: int) -> int:
        now[index] = growing.value(f"buffer {index}", home[index], "u8", (by_id[index].size,))
        return now[index]

    for at, call in enumerate(schedule.calls):
        writes, reads = _positions(call, at)
        for index in call.bufs:
            if index not in by_id:
                raise ModelError(f"calls[{at}]", f"buffer {index} does not exist; there are {len(by_id)}")
        read = [call.bufs[position] for position in reads]
        made = list(dict.fromkeys(call.bufs[position] for position in writes))
        operands = [now[index] if index in now else fresh(index) for index in read]  # fresh: never written before
        kind = call.kind.lower()
        pairs = None if set(read) & set(made) else ()
        growing.builder.op(kind, operands, [fresh(i) for i in made], name=call.name or f"{kind} {at}", in_place=pairs)
    return growing.plan("tinygrad")


def _held(schedule: Schedule, name: str, growing: Placing, place: Mapping[int, int]) -> dict[int, int]:
    """Add every buffer in its slot; return id -> value of the held buffers."""
    now: dict[int, int] = {}
    for at, row in enumerate(schedule.buffers):
        if row.held != (row.offset is None) or (row.offset is None) != (row.arena is None):
            raise ModelError(f"buffers[{at}]", "must either be held or have an arena and an offset, not both")
        slot = APART if row.arena is None or row.offset is None else (place[row.arena], row.offset)
        growing.buffer(
            f"{name}, {'held' if row.held else 'buffer'} {row.id}",
            row.size,
            slot,
            alignment=1 if row.held else GRANULE,
            role=Role.STATE if row.held else Role.TEMPORARY,
        )
        if row.held:
            now[row.id] = growing.value(f"buffer {row.id}", at, "u8", (row.size,))
    return now


def _positions(call: ScheduledCall, at: int) -> tuple[list[int], list[int]]:
    """Return the positions of the buffers that a call writes and reads."""
    count = len(call.bufs)
    writes = [0][:count] if call.writes is None else call.writes
    reads = [position for position in range(count) if position not in writes] if call.reads is None else call.reads
    for position in (*writes, *reads):
        if position >= count:
            raise ModelError(f"calls[{at}]", f"position {position} does not exist; there are {count} buffers")
    return writes, reads


__all__ = ["GRANULE", "Schedule", "ScheduledBuffer", "ScheduledCall", "loads", "looks_like"]
