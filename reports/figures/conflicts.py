"""Where the violations of a report lie in a memory map, as rectangles of steps x bytes.

One rule for all kinds. *Bytes*: the violation's ranges within its buffer, the whole buffer if it
names none, at the buffer's slot. *Steps*: from the op that took the bytes (`other_op`, if it is of
this run; else from the start) to the op that read them late; the one op where no other is named;
where no op is named, the steps in which the buffer (and the other one) lives. What has no slot in
this arena, belongs to another run or to a belief cannot be drawn; it is counted.

*Parties*, by role: the buffer that lost its bytes is the `victim`, the one that has them now the
`taker`, what the op that reads late makes is the `reader`'s. Those of a race are `racing`, those of
any other violation without a late read `sharing`. The number of a conflict is that of its cause in
what `allocsim check` prints.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypedDict, Unpack

from allocsim.cure.defects import key_of
from allocsim.judge.violations import Report, Violation
from allocsim.model import Document, Program
from allocsim.verdict.causes import causes_by_violation, causes_of
from allocsim.verdict.records import Cause
from reports.figures.scene import Scene
from reports.number_format import count, short

RELATIONAL = frozenset({"StaleRead", "Race"})
"""Kinds in which `other_op` did something to the same bytes at another time."""

URGENT = {"StaleRead": 0, "UnsafeInPlace": 1}
"""Kinds by which numbers go wrong, in order of labels: before those that only could."""

NAME = 44
"""Characters of a name in the words about a conflict."""

LATE: Final = ("StaleRead", "OverwrittenRead", "UninitialisedRead")
"""Kinds in which an op reads what is no longer, or not yet, there."""

VICTIM: Final = "victim"
TAKER: Final = "taker"
READER: Final = "reader"
SHARING: Final = "sharing"
RACING: Final = "racing"

LABELLED: Final = 6
"""Causes that get a number and a line of words in a picture."""

NUMBERED: Final = 2000
"""Violations listed in a report up to which conflicts have the numbers of their causes."""

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
    number: int = 0
    """Of its cause, counted from 1; 0 where no cause is known."""
    parties: tuple[tuple[str, int], ...] = ()
    """(role, buffer)."""
    taken: int | None = None
    """The step in which the bytes were taken, in this run."""
    read: int | None = None
    """The step of the late read."""


class Judgement(TypedDict, total=False):
    """What a picture of a document takes of its judge, by name.

    Without a report it says nothing of right and wrong.
    """

    report: Report | None
    """Gives the conflicts."""
    causes: Sequence[Cause]
    """Of the report, most important first: they give the numbers."""
    verdict: Mapping[str, Any] | None
    """The object in a run's record: its findings are shown where the report has none, of what a
    kernel does wrong under a legal plan."""


def telling_run(report: Report) -> int:
    """Return the run of the first late read, else of the first violation that has one, else 0."""
    found = sorted((v for v in report.violations if v.run is not None), key=lambda v: v.kind not in LATE)
    return next((v.run for v in found if v.run is not None), 0)


def numbering(document: Document, report: Report) -> tuple[Cause, ...]:
    """Return the causes that number the conflicts of a report, as `allocsim check` does.

    None where the report is clean or lists more than `NUMBERED` violations: to charge so many takes
    minutes, and conflicts are counted instead.
    """
    if report.clean or len(report.violations) > NUMBERED:
        return ()
    return causes_of(document, report)


def conflicts(
    scene: Scene, arena: int, run: int, report: Report | None, causes: Sequence[Cause] = ()
) -> tuple[tuple[Conflict, ...], int]:
    """Return the violations that lie in this arena during this run, and how many of the report do
    not.

    `causes` are those of the report, most important first; they give the numbers.
    """
    if report is None:
        return (), 0
    numbers = {key: cause.number for key, cause in causes_by_violation(causes).items()}
    found = [_conflict(scene, arena, run, v, numbers.get(key_of(v), 0) if numbers else 0) for v in report.violations]
    drawn = tuple(conflict for conflict in found if conflict is not None)
    return drawn, max(report.count, len(found)) - len(drawn)


def not_drawn(report: Report | None, drawn: int) -> list[str]:
    """Return a line that counts the violations beyond those drawn; none where all are."""
    rest = max(report.count, len(report.violations)) - drawn if report is not None else 0
    return [f"{count(rest, 'violation')} of the report: not drawn here"] if rest > 0 else []


def findings(scene: Scene, arena: int, run: int, verdict: Mapping[str, Any] | None) -> tuple[Conflict, ...]:
    """Return the findings of a verdict whose victim lies in this arena during this run.

    The verdict is that of a run's record.

    A kernel that is unsafe in place leaves no violation in a report: this is how it gets onto the
    map. The rectangle is the victim's bytes from the step of the writer to that of the reader, both
    included.
    """
    found = [verdict, *(verdict.get("also") or ())] if verdict is not None else []
    return tuple(conflict for conflict in (_finding(scene, arena, run, each) for each in found) if conflict is not None)


def faults(document: Document, scene: Scene, run: int, **judged: Unpack[Judgement]) -> list[Conflict]:
    """Return what is wrong in a run, one conflict for each cause, by number, at most `LABELLED`.

    What a picture without addresses shows: conflicts of every arena, or where the report has none
    to show, the findings of a verdict.
    """
    return numbered_of(
        drawable(document, scene, run, judged.get("report"), judged.get("causes", ()))
        or verdict_findings(document, scene, run, judged.get("verdict"))
    )


def drawable(
    document: Document, scene: Scene, run: int, report: Report | None, causes: Sequence[Cause] = ()
) -> list[Conflict]:
    """Return `conflicts` of all arenas."""
    arenas = range(len(document.arenas))
    return [found for arena in arenas for found in conflicts(scene, arena, run, report, causes)[0]]


def verdict_findings(document: Document, scene: Scene, run: int, verdict: Mapping[str, Any] | None) -> list[Conflict]:
    """Return `findings` of all arenas."""
    return [found for arena in range(len(document.arenas)) for found in findings(scene, arena, run, verdict)]


def numbered_of(drawn: Sequence[Conflict]) -> list[Conflict]:
    """Return the conflicts that get a number: for each victim the gravest, in order of the numbers.

    An overlap is no news beside its stale read. Where no causes are known, they are counted.
    """
    ranked = sorted(drawn, key=lambda conflict: (conflict.number, URGENT.get(conflict.kind, len(URGENT))))
    if not any(conflict.number for conflict in drawn):
        ranked = sorted(drawn, key=lambda conflict: URGENT.get(conflict.kind, len(URGENT)))
    kept: dict[object, Conflict] = {}
    for conflict in ranked:
        kept.setdefault(conflict.number or ("victim", conflict.buffer), conflict)
    chosen = list(kept.values())[:LABELLED]
    return [
        conflict if conflict.number else replace(conflict, number=place)
        for place, conflict in enumerate(chosen, start=1)
    ]


def room(found: Sequence[Conflict]) -> float:
    """Return the height in inches that the lines of `told` take above a picture."""
    return 0.33 * len(found)


def told(found: Sequence[Conflict]) -> list[str]:
    """Return a line for each of `faults`: its number and its words."""
    return [f"{each.number}  {each.words}" for each in found]


def left_out(found: Sequence[Conflict], **judged: Unpack[Judgement]) -> list[str]:
    """Return a line that counts the violations of a report that are of no cause among `faults`."""
    numbers = {each.number for each in found}
    listed = sum(len(cause.violations) for cause in judged.get("causes", ()) if cause.number in numbers)
    return not_drawn(judged.get("report"), max(listed, len(found)))


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
    others = [(TAKER, writer.get("buffer")), (READER, reader.get("buffer"))]
    parties = [(role, who) for role, who in others if who is not None and who != buffer and who < len(scene.nbytes)]
    return Conflict(
        kind=str(finding.get("class")),
        boxes=(box,),
        buffer=buffer,
        words=words,
        parties=((VICTIM, buffer), *parties),
        taken=steps[0] if writer.get("op") in steps else None,
        read=reader.get("op") if reader.get("op") in steps else None,
    )


def _conflict(scene: Scene, arena: int, run: int, violation: Violation, number: int) -> Conflict | None:
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
    late = violation.kind in LATE and violation.op is not None
    same = violation.other_run in (None, run) and late
    return Conflict(
        kind=violation.kind,
        boxes=boxes,
        buffer=buffer,
        words=_words(scene.program, run, violation),
        number=number,
        parties=tuple(_parties(scene.program, run, violation)),
        taken=violation.other_op if same else None,
        read=violation.op if late else None,
    )


def _parties(program: Program, run: int, v: Violation) -> Iterator[tuple[str, int]]:
    late = v.kind in LATE
    apart = RACING if v.kind == "Race" else SHARING
    if v.buffer is not None:
        yield VICTIM if late else apart, v.buffer
    if v.other_buffer is not None and v.other_run in (None, run) and v.other_buffer != v.buffer:
        yield TAKER if late else apart, v.other_buffer
    if late and v.op is not None and v.op < len(program.ops):
        homes = (int(program.values.buffer[value]) for value in program.ops[v.op].results)
        yield from ((READER, home) for home in homes if home not in (v.buffer, v.other_buffer))


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
        parts.append(
            f"{'value' if violation.kind == 'Race' else 'victim'} {short(program.values.names[violation.value], NAME)}"
        )
    elif violation.buffer is not None:
        parts.append(f"buffer {short(program.buffers.names[violation.buffer], NAME)}")
    if violation.other_buffer is not None and 0 <= violation.other_buffer < len(program.buffers):
        parts.append(f"against {short(program.buffers.names[violation.other_buffer], NAME)}")
    if violation.kind in RELATIONAL:
        parts.append(
            _writer(program, run, violation, "in no order with" if violation.kind == "Race" else "overwritten by")
        )
    if violation.op is not None and 0 <= violation.op < len(program.ops):
        verb = "read late by" if violation.kind == "StaleRead" else "at"
        parts.append(f"{verb} {short(program.ops.names[violation.op], NAME)} (op {violation.op:,})")
    return f"{parts[0]}: {', '.join(parts[1:])}" if len(parts) > 1 else parts[0]


def _writer(program: Program, run: int, violation: Violation, deed: str) -> str:
    other = violation.other_op
    if other is None:
        return "bytes not written in time" if violation.other_run is None else "content from before the session"
    if violation.other_run not in (None, run):
        return f"{deed} op {other:,} of run {violation.other_run}"
    name = short(program.ops.names[other], NAME) if 0 <= other < len(program.ops) else "?"
    return f"{deed} {name} (op {other:,})"
