"""Where the violations of a report lie in a memory map, as rectangles of steps x bytes.

One rule for all kinds. *Bytes*: the violation's ranges within its buffer, the whole buffer if it
names none, at the buffer's slot. *Steps*: from the op that took the bytes (`other_op`, if it is of
this run; else from the start) to the op that read them late; the one op where no other is named;
where no op is named, the steps in which the buffer (and the other one) lives. What has no slot in
this arena, belongs to another run or to a belief cannot be drawn; it is counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allocsim.checks.violations import Report, Violation
from allocsim.model import Program
from reports.figures.scene import Scene
from reports.number_format import short

RELATIONAL = frozenset({"StaleRead", "Race"})
"""Kinds in which `other_op` did something to the same bytes at another time."""

URGENT = {"StaleRead": 0, "UnsafeInPlace": 1}
"""Kinds by which numbers go wrong, in the order in which they are labelled: before those that only
could."""

NAME = 44
"""Characters of a name in the words about a conflict."""

MOST_RANGES = 64
"""Byte ranges of one violation drawn apart; a strided victim with more is drawn as its hull."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One violation, or one finding of a verdict, as rectangles in its arena.

    A rectangle is `(first step, last step, low byte, high byte)`, half-open.
    """

    kind: str
    """The violation's kind, or the class a verdict gives."""
    boxes: tuple[tuple[int, int, int, int], ...]
    buffer: int
    """The victim's."""
    words: str
    """Kind, victim, writer and reader on one line."""


def conflicts(scene: Scene, arena: int, run: int, report: Report | None) -> tuple[tuple[Conflict, ...], int]:
    """Return the violations that lie in this arena during this run, and how many of the report do
    not.
    """
    if report is None:
        return (), 0
    found = [_conflict(scene, arena, run, violation) for violation in report.violations]
    drawn = tuple(conflict for conflict in found if conflict is not None)
    return drawn, max(report.count, len(found)) - len(drawn)


def findings(scene: Scene, arena: int, run: int, verdict: Mapping[str, Any] | None) -> tuple[Conflict, ...]:
    """Return the findings of a verdict whose victim lies in this arena during this run.

    The verdict is that of a run's record.

    A kernel that is unsafe in place leaves no violation in a report: this is how it gets onto the
    map. The rectangle is the victim's bytes from the step of the writer to that of the reader, both
    included.
    """
    found = [verdict, *(verdict.get("also") or ())] if verdict is not None else []
    return tuple(conflict for conflict in (_finding(scene, arena, run, each) for each in found) if conflict is not None)


def _finding(scene: Scene, arena: int, run: int, finding: Any) -> Conflict | None:
    victim, writer, reader = (finding.get(party) or {} for party in ("victim", "writer", "reader"))
    buffer = victim.get("buffer")
    steps = [
        party["op"] for party in (writer, reader) if party.get("op") is not None and party.get("run") in (None, run)
    ]
    if scene.plan is None or buffer is None or not 0 <= buffer < len(scene.nbytes) or not steps:
        return None
    if victim.get("run") not in (None, run) or int(scene.plan.arena[buffer]) != arena:
        return None
    base = int(scene.plan.offset[buffer])
    ranges = victim.get("bytes") or [[0, max(int(scene.nbytes[buffer]), 1)]]
    lost = short(str(victim.get("value_name") or victim.get("buffer_name")), NAME)
    words = f"{finding.get('class')}, fault {finding.get('fault')}: victim {lost}"
    if writer.get("op") is not None:
        words += f", overwritten by {short(str(writer.get('op_name')), NAME)} (op {writer['op']:,})"
    if reader.get("op") is not None and reader["op"] == writer.get("op"):
        words += ", which still reads it"
    elif reader.get("op") is not None:
        words += f", read by {short(str(reader.get('op_name')), NAME)} (op {reader['op']:,})"
    box = (min(steps), max(steps) + 1, base + min(low for low, _ in ranges), base + max(high for _, high in ranges))
    return Conflict(kind=str(finding.get("class")), boxes=(box,), buffer=buffer, words=words)


def _conflict(scene: Scene, arena: int, run: int, violation: Violation) -> Conflict | None:
    buffer = violation.buffer
    if scene.plan is None or buffer is None or violation.run not in (None, run) or violation.problem is not None:
        return None
    if not 0 <= buffer < len(scene.program.buffers) or int(scene.plan.arena[buffer]) != arena:
        return None
    first, last = _steps(scene, run, violation, buffer)
    base = int(scene.plan.offset[buffer])
    ranges = violation.bytes or ((0, int(max(scene.nbytes[buffer], 1))),)
    if len(ranges) > MOST_RANGES:
        ranges = ((min(low for low, _ in ranges), max(high for _, high in ranges)),)
    boxes = tuple((first, max(last, first + 1), base + low, base + max(high, low + 1)) for low, high in ranges)
    return Conflict(kind=violation.kind, boxes=boxes, buffer=buffer, words=_words(scene.program, run, violation))


def _steps(scene: Scene, run: int, violation: Violation, buffer: int) -> tuple[int, int]:
    op, other = violation.op, violation.other_op
    if op is not None and violation.kind in RELATIONAL:
        before = violation.other_run is not None and violation.other_run != run
        taken = 0 if other is None or before else other
        return min(taken, op), max(taken, op) + 1
    if op is not None and violation.other_buffer is None:
        return op, op + 1
    first, last = int(scene.start[buffer]), int(scene.stop[buffer])
    if violation.other_buffer is not None and 0 <= violation.other_buffer < len(scene.program.buffers):
        first = max(first, int(scene.start[violation.other_buffer]))
        last = min(last, int(scene.stop[violation.other_buffer]))
    if op is not None and not first <= op < last:
        return op, op + 1
    return first, last


def _words(program: Program, run: int, violation: Violation) -> str:
    """Say who lost bytes to whom and who read them late."""
    parts = [violation.kind]
    if violation.value is not None and 0 <= violation.value < len(program.values):
        parts.append(f"victim {short(program.values.names[violation.value], NAME)}")
    elif violation.buffer is not None:
        parts.append(f"buffer {short(program.buffers.names[violation.buffer], NAME)}")
    if violation.other_buffer is not None and 0 <= violation.other_buffer < len(program.buffers):
        parts.append(f"against {short(program.buffers.names[violation.other_buffer], NAME)}")
    if violation.kind in RELATIONAL:
        parts.append(_writer(program, run, violation))
    if violation.op is not None and 0 <= violation.op < len(program.ops):
        verb = "read late by" if violation.kind == "StaleRead" else "at"
        parts.append(f"{verb} {short(program.ops.names[violation.op], NAME)} (op {violation.op:,})")
    return f"{parts[0]}: {', '.join(parts[1:])}" if len(parts) > 1 else parts[0]


def _writer(program: Program, run: int, violation: Violation) -> str:
    other = violation.other_op
    if other is None:
        return "bytes not written in time" if violation.other_run is None else "content from before the session"
    if violation.other_run not in (None, run):
        return f"overwritten in run {violation.other_run} (op {other:,})"
    name = short(program.ops.names[other], NAME) if 0 <= other < len(program.ops) else "?"
    return f"overwritten by {name} (op {other:,})"
