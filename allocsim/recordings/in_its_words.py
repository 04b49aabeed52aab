"""A cause of a window's document, in the words of its recording: blocks by name, ops and events by
number, and a cure that says what the allocator, the caller or the schedule has to do.

A use of a block that its caller had given back before is the caller's, whoever took the bytes: the
verdict, which sees no host, takes it for a lifetime that the plan believed. All else is as the
verdict has it.

What this module does not see: how a cause is found.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from allocsim.model import Document
from allocsim.recordings.screen import STEP
from allocsim.verdict.records import Cause


class RecordedFault(NamedTuple):
    """One thing that is wrong with a recording."""

    class_: str
    party: str
    text: str
    cure: str
    event: int
    """Number of the event that shows it, from 0."""
    key: tuple[Any, ...]
    """The same for what is the same wrong thing."""
    places: int = 1
    """How often the same was told of it; the event is the first."""


@dataclass(frozen=True, slots=True)
class RecordedNames:
    """Which events the ops and buffers of a window's document are."""

    ops: tuple[tuple[int, Mapping[str, Any]], ...]
    """By op, number and event of its use."""
    blocks: tuple[tuple[int, Mapping[str, Any]], ...]
    """By buffer, number and event of its alloc."""
    frees: Mapping[int, int]
    """Buffer -> number of the event that gave it back first."""
    events: tuple[int, ...]
    """By event of the planner, number of the alloc or free."""
    old_ops: int
    """Ops that were carried."""
    old_events: int
    """Allocs and frees that were carried."""

    @classmethod
    def of(cls, rows: Iterable[tuple[int, Mapping[str, Any]]], carried: int) -> "RecordedNames":
        """Return those of events in order, of which the first were carried."""
        ops: list[tuple[int, Mapping[str, Any]]] = []
        blocks: list[tuple[int, Mapping[str, Any]]] = []
        current: dict[Any, int] = {}
        frees: dict[int, int] = {}
        events: list[int] = []
        old_ops = old_events = 0
        for at, (place, event) in enumerate(rows):
            word, number = event["event"], place // STEP
            if word == "use":
                ops.append((number, event))
                old_ops += at < carried
            elif word in ("alloc", "free"):
                old_events += at < carried
                events.append(number)
                if word == "alloc":
                    current[event["block"]] = len(blocks)
                    blocks.append((number, event))
                else:
                    frees.setdefault(current[event["block"]], number)
        return cls(tuple(ops), tuple(blocks), frees, tuple(events), old_ops, old_events)

    def op(self, step: int) -> str:
        """Return an op in words."""
        number, event = self.ops[step]
        return f"{event.get('name', event.get('kind', 'use'))!r} (event {number})"

    def block(self, buffer: int) -> str:
        """Return a block in words."""
        event = self.blocks[buffer][1]
        return f"block {event.get('name', event['block'])!r}"


def said(document: Document, cause: Cause, names: RecordedNames) -> RecordedFault:
    """Return what a cause says of the recording."""
    worst = cause.violations[0]
    victim = None if cause.victim is None else cause.victim.buffer
    taker = None if cause.writer is None else cause.writer.buffer
    read = None if cause.reader is None or cause.change.kind != "lifetime" else cause.reader.op
    op = next((step for step in (read, worst.op, cause.first.op) if step is not None), None)
    event = names.ops[op][0] if op is not None else names.blocks[worst.buffer or 0][0]
    party = cause.party
    kind = cause.change.kind
    if kind == "lifetime" and victim is not None and op is not None and names.frees.get(victim, event) < event:
        party, cure = "caller", _later(names, victim, op)
    elif kind == "wait":
        cure = _wait(document, cause, names)
    elif kind == "events":
        block = worst.buffer if worst.buffer is not None else 0
        event = event if worst.more.event is None else names.events[worst.more.event]
        cure = f"give {names.block(block)} out, and back, once"
    elif victim is not None and taker is not None and victim != taker:
        until = names.frees.get(victim)
        ends = "it is held to the end" if until is None else f"it is held until event {until}"
        cure = f"give {names.block(taker)} other bytes than {names.block(victim)}: {ends}"
    elif kind == "unwritten" and op is not None:
        block = worst.buffer if worst.buffer is not None else 0
        cure = f"write {names.block(block)} before {names.op(op)} reads it"
    else:
        cure = cause.mend
    key = cause.class_, party, kind, *(None if b is None else names.blocks[b][0] for b in (victim, taker))
    return RecordedFault(cause.class_, party, cause.text, cure, event, key)


def _later(names: RecordedNames, victim: int, op: int) -> str:
    return f"free {names.block(victim)} after {names.op(op)}, not at event {names.frees[victim]}"


def _wait(document: Document, cause: Cause, names: RecordedNames) -> str:
    """Return the cure of a missing wait: of reuse, when the block may be freed."""
    change = cause.change
    first, second = change.after, change.op
    if first is None or second is None:
        return cause.mend
    program = document.programs[change.program or 0]
    taken = {int(program.values.buffer[value]) for value in _values(program.ops[second])}
    shared = [violation.other_buffer for violation in cause.violations if violation.other_buffer not in (None, *taken)]
    victim = next((buffer for buffer in shared if buffer in names.frees), None)
    if cause.party == "plan" and victim is not None:
        return (
            f"free {names.block(victim)} after {names.op(first)} has ended, not when it is scheduled: "
            f"event {names.frees[victim]} gave it back"
        )
    streams = [names.ops[step][1].get("stream", 0) for step in (first, second)]
    return f"wait on stream {streams[1]} for a mark behind {names.op(first)} on stream {streams[0]} before {names.op(second)}"


def _values(op: Any) -> tuple[int, ...]:
    return (*op.operands, *op.results)


__all__ = ["RecordedFault", "RecordedNames", "said"]
