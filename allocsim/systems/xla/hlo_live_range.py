"""Reads XLA's `live-range.txt`, which has the lifetimes that XLA believes the values have.

    HloLiveRange (max 40):
      InstructionSequence:
        0:x.1
        5:wrapped_broadcast
      BufferLiveRange:
        while.10{2}:23-40

XLA's time is the position of an instruction in the sequence. The sequence has each called
computation once, before its caller. A range is closed; if it ends at the number of instructions, it
lasts to the end. `believed` converts times and ranges to steps of ops. An *event* is one execution
of an instruction, with XLA's time and the first op of this execution. If XLA's range begins with
the instruction of a value, the value lives from its event to the first later event with a time
after the end or before the beginning of the range. An earlier time means that another turn of a
loop began. If XLA's range begins later, the value lives from the first later event with a time in
or after the range. At the borders of loops and conditionals, values are passed on. The time of the
event at a border is the last time plus 1, because XLA ends the ranges of these values there.

What this module does not see: the peak and the stack traces that follow the ranges in the file.

Source: XLA `hlo_live_range.cc`, `HloLiveRange::ToString`, `FlattenSchedule`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from allocsim.errors import DocumentError
from allocsim.model import Bools, Plan, Problem, Program
from allocsim.model.layout import Int64s
from allocsim.systems.xla.hlo_text import Index

Key = tuple[str, Index]
"""The key of a value: its instruction, and its index in the instruction's shape."""

_PLACE: Final = re.compile(r"    (\d{1,9}):([\w.\-]+)")
_RANGE: Final = re.compile(r"    ([\w.\-]+)\{([\d,]*)\}:(\d{1,9})-(\d{1,9})")


@dataclass(frozen=True, slots=True)
class LiveRanges:
    """The lifetimes that XLA believes the values of a module have."""

    source: str
    time: Mapping[str, int]
    """Instruction -> its position in the sequence."""
    ranges: Mapping[Key, tuple[int, int]]
    """Value -> the first and the last time of its range; both belong to the range."""


@dataclass(frozen=True, slots=True)
class Born:
    """The value of a buffer of the program, and the event that made the buffer."""

    key: Key
    event: int
    step: int
    """The first op that writes the buffer."""


def parse_live_ranges(text: str, source: str) -> LiveRanges:
    """Return the sequence and the ranges in a text.

    Raises DocumentError, which names the line and the rule. O(text).
    """
    lines = text.split("\n")
    if not lines[0].startswith("HloLiveRange"):
        raise DocumentError(source, "line 1", "does not begin with HloLiveRange")
    time: dict[str, int] = {}
    ranges: dict[Key, tuple[int, int]] = {}
    inside = ""
    for number, line in enumerate(lines[1:], 2):

        def refuse(rule: str, number: int = number) -> DocumentError:
            return DocumentError(source, f"line {number}", rule)

        if not line.startswith("    "):
            inside = line.strip()
            continue
        if inside == "InstructionSequence:":
            place = _PLACE.fullmatch(line)
            if place is None or place[2] in time or int(place[1]) != len(time):
                raise refuse(f"{line.strip()[:60]!r} is not the next instruction of the sequence")
            time[place[2]] = int(place[1])
        elif inside == "BufferLiveRange:":
            found = _RANGE.fullmatch(line)
            if found is None:
                raise refuse(f"{line.strip()[:60]!r} is not the live range of a value")
            key = found[1], tuple(int(k) for k in found[2].split(",") if k)
            first, last = int(found[3]), int(found[4])
            if key in ranges:
                raise refuse(f"the live range of {found[1][:60]}{{{found[2]}}} is listed twice")
            if not first <= last <= len(time):
                raise refuse(f"the live range {first}-{last} does not fit {len(time)} instructions")
            ranges[key] = first, last
    if not ranges:
        raise DocumentError(source, "", "has no live ranges")
    return LiveRanges(source, time, ranges)


def believed(
    program: Program, live: LiveRanges, times: Sequence[int], steps: Sequence[int], born: Sequence[Born]
) -> Problem:
    """Return XLA's ranges as the belief about one way through the module.

    Args:
        program: the program of the way; buffer i has the value `born[i]`.
        live: XLA's ranges.
        times: XLA's time of each event, in the order in which the events run.
        steps: for each event, its first op.
        born: for each buffer its value, and the event and op that made the buffer.

    A buffer without a range gets its true lifetime. O((events + buffers) log events).
    """
    known = [live.ranges.get(row.key) for row in born]
    event = np.array([row.event for row in born], dtype=np.int64)
    first = np.array([span[0] if span else 0 for span in known], dtype=np.int64)
    last = np.array([span[1] if span else 0 for span in known], dtype=np.int64)
    own = np.array([live.time.get(row.key[0], 0) for row in born], dtype=np.int64)
    when = np.asarray(times, dtype=np.int64)
    at = np.append(np.asarray(steps, dtype=np.int64), len(program.ops))
    stop = at[_first_outside(when, event + 1, first, last)]
    late = _first_outside(when, event + 1, np.full(len(born), -1), first - 1)
    start = np.where(first > own, at[late], [row.step for row in born])
    used_first, used_last = _uses(program)
    has = np.array([span is not None for span in known], dtype=np.bool_)
    start = np.where(has, start, used_first)
    stop = np.where(has, np.maximum(stop, start), used_last)
    return Problem.of(program, start=start, stop=stop)


def with_sharing(plan: Plan, cut: Bools) -> Plan:
    """Return the plan with a belief about the buffers that may share bytes.

    First, `_apart` corrects the ends of ranges: if XLA cut a range (`cut`) before the last use of
    its buffer, the range is extended to that use. Then, if an op's result and an operand have the
    same slot and their ranges meet at the op, XLA believes that the two may share bytes. These
    pairs are added to the belief unless the ops declare all of these pairs. A plan without a
    problem is returned unchanged. O(operands x results).
    """
    if plan.problem is None:
        return plan
    plan = replace(plan, problem=_apart(plan, plan.problem, cut))
    problem, ops, home = plan.problem, plan.program.ops, plan.program.values.buffer
    assert problem is not None
    read, made = np.diff(ops.operand_starts), np.diff(ops.result_starts)
    step = np.repeat(np.arange(len(ops)), read * made)
    number = np.arange(len(step)) - np.repeat(np.cumsum(read * made) - read * made, read * made)
    operand, result = number // np.maximum(made[step], 1), number % np.maximum(made[step], 1)
    donor = home[ops.operands[ops.operand_starts[step] + operand]]
    recipient = home[ops.results[ops.result_starts[step] + result]]
    met = (donor != recipient) & (problem.stop[donor] == step + 1) & (problem.start[recipient] == step)
    met &= (plan.arena[donor] == plan.arena[recipient]) & (plan.offset[donor] == plan.offset[recipient])
    met &= plan.placed[donor]
    owner = np.repeat(np.arange(len(ops)), np.diff(ops.in_place_starts))
    declared = set(zip(owner.tolist(), *ops.in_place.T.tolist(), strict=True))
    if declared.issuperset(zip(*(column[met].tolist() for column in (step, operand, result)), strict=True)):
        return plan
    share = np.unique(np.stack([donor, recipient], axis=1)[met], axis=0)
    return replace(plan, problem=Problem.of(plan.program, start=problem.start, stop=problem.stop, may_share=share))


def _apart(plan: Plan, problem: Problem, cut: Bools) -> Problem:
    """Return the belief without the cuts that XLA makes between values of one buffer
    (`NormalizeAliasedBuffers`). XLA ends a cut range at the op where the next range of its slot
    begins. In the returned belief, the range ends after the buffer's last use if this use is later
    than the cut. Otherwise the range ends before that op, if the op does not read the buffer.
    """
    ops, home = plan.program.ops, plan.program.values.buffer
    count = len(plan.arena)
    step = np.repeat(np.arange(len(ops)), np.diff(ops.operand_starts))
    read = step * count + home[ops.operands]
    begins = set(zip(plan.arena.tolist(), plan.offset.tolist(), problem.start.tolist(), strict=True))
    stop = problem.stop.copy()
    rows = zip(plan.arena.tolist(), plan.offset.tolist(), (stop - 1).tolist(), strict=True)
    last = np.array([row[2] if row in begins else -1 for row in rows], dtype=np.int64)
    met, used = (last > problem.start) & plan.placed, _uses(plan.program)[1]
    before = met & ~np.isin(last * count + np.arange(count), read)
    stop[before] = last[before]
    shared = cut & plan.placed & (used > problem.stop)
    stop[shared] = used[shared]
    return Problem.of(plan.program, start=problem.start, stop=stop)


def _first_outside(when: Int64s, begin: Int64s, low: Int64s, high: Int64s) -> Int64s:
    """Return, for each row, the first event from `begin` on that has a time below `low` or above
    `high`; the number of events if no event has such a time.

    Each row skips runs of 2^k events, largest first, by a table of the extremes of each run.
    """
    least, most = [when], [when]
    while 2 << (len(least) - 1) <= len(when):
        half = 1 << (len(least) - 1)
        least.append(np.minimum(least[-1][:-half], least[-1][half:]))
        most.append(np.maximum(most[-1][:-half], most[-1][half:]))
    at = begin.copy()
    for power in range(len(least) - 1, -1, -1):
        fits = at + (1 << power) <= len(when)
        place = np.where(fits, at, 0)
        if len(least[power]):
            at += (fits & (least[power][place] >= low) & (most[power][place] <= high)) << power
    return at


def _uses(program: Program) -> tuple[Int64s, Int64s]:
    """Return, for each buffer, the step of its first use and the step after its last use."""
    first = np.full(len(program.buffers), len(program.ops), dtype=np.int64)
    stop = np.zeros(len(program.buffers), dtype=np.int64)
    ops = program.ops
    for starts, values in ((ops.operand_starts, ops.operands), (ops.result_starts, ops.results)):
        step = np.repeat(np.arange(len(ops)), np.diff(starts))
        buffer = program.values.buffer[values]
        np.minimum.at(first, buffer, step)
        np.maximum.at(stop, buffer, step + 1)
    return np.minimum(first, stop), stop


__all__ = ["Born", "LiveRanges", "believed", "parse_live_ranges", "with_sharing"]
