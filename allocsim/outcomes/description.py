"""Shows a violation with the ops round it, as a compiler shows an error with the lines round it.

    StaleRead: op 2 'sum' reads bytes [0, 256) of ...
      C01, fault of the plan: the belief ends before a reader of the buffer's own value
      run 0 of program 0 'step', plan 0 'ggml'
             0  host.write 'upload' -> x              <- made it: 'x' in cpu[0, 256)
             1  mul 'square' (x, x) -> y              <- took its bytes: 'y' in cpu[0, 256)
        >    2  add 'sum' (x, y) -> z                 <- reads it late: bytes [0, 256)
             3  host.read 'download' (z)
      'x' (buffer 0): 256 bytes in cpu[0, 256), accessed in steps [0, 3), believed to live [0, 2)
      'y' (buffer 1): 256 bytes in cpu[0, 256), accessed in steps [1, 3), believed to live [1, 3)

Every op that takes part is marked, and `>` marks the op that the violation names. `CONTEXT` ops
before and after each of them are shown; ops between are counted. An op of an inlined call or branch
names it (`in 'cond_1/then'`). Ops of several runs stand under one heading for each run. Names come
from files; they are quoted and kept to one line.

Complexity: O(accesses) for each violation.

What this module does not see: how the fault was found, and cures.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from allocsim.judge.violations import Violation
from allocsim.model import OWN, Document, Op, Plan, Problem, Program, Run
from allocsim.programs.access_steps import NEVER, first_and_last
from allocsim.verdict.calls import OUTERMOST, Call, calls

if TYPE_CHECKING:
    from allocsim.verdict.attribution import Charge

CONTEXT: Final = 2
"""Number of ops shown before and after each op that takes part."""

OPERANDS: Final = 4
"""Most operands, and results, of an op that are named; the rest is counted."""

COLUMNS: Final = 80
"""Width of a line; if an op and its mark are longer, the mark stands in a line of its own."""

DEEDS: Final[dict[str, tuple[str, str, str]]] = {
    # kind: what `op`, `other_op` and `want_op` did; `{}` is the bytes, the place
    "StaleRead": ("reads it late: {bytes}", "took its bytes: {place}", "made it: {place}"),
    "OverwrittenRead": ("reads it late: {bytes}", "wrote over it in its own buffer", "made it: {place}"),
    "UninitialisedRead": ("reads what nobody wrote: {bytes}", "", ""),
    "HistoryRead": ("reads it: {bytes}", "wrote it, in an earlier run", ""),
    "UnsafeInPlace": ("writes over what it reads: {bytes}", "", ""),
    "ResultsOverlap": ("writes two results to the same bytes: {bytes}", "", ""),
    "WriteToReadOnly": ("writes into a read-only buffer: {place}", "", ""),
    "Overlap": ("both live here, and share {bytes}", "", ""),
    "LifetimeTooShort": ("the belief leaves this access out", "", ""),
    "MissingPin": ("the host reads it here, and the belief leaves that out", "", ""),
    "LifetimeIgnored": ("both are believed to live from here on, and share {bytes}", "", ""),
    "PinIgnored": ("what is pinned shares {bytes} from here on", "", ""),
    "EventOutsideLifetime": ("believed to live, and not there: {place}", "", ""),
    "Race": ("in no order with it: {bytes}", "in no order with it", ""),
    "DoubleFree": ("freed again here: {place}", "", ""),
    "FreeOfUnallocated": ("freed here, and was not allocated before: {place}", "", ""),
    "AllocOverLive": ("allocated here, over what is still allocated: {place}", "", ""),
}
"""Kind -> what each op that takes part in a violation did, in words.

Violations of other kinds show their op without a word.
"""

RACING: Final[dict[str, tuple[str, str]]] = {
    "write after read": ("writes {bytes}", "may still be reading them"),
    "read after write": ("reads {bytes}", "may not have written them yet"),
    "write after write": ("writes {bytes}", "may write them after it"),
}
"""First hazard of a race -> what its two ops do, in words."""

EVENTS: Final = ("DoubleFree", "FreeOfUnallocated", "AllocOverLive", "EventOutsideLifetime")
"""Kinds whose step is the step of a planner's event, and not an op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Party:
    run: int | None
    op: int
    deed: str
    main: bool


def describe(document: Document, violation: Violation, *, cause: "Charge | None" = None, context: int = CONTEXT) -> str:
    """Return a violation of a document as text of several lines, without a newline at the end.

    `cause` adds its class and party (`allocsim.verdict.attribution`). Every index of the violation
    must be of this document.
    """
    lines = [f"{violation.kind}: {_one_line(violation.message)}"]
    if cause is not None and cause.class_ is not None:
        lines.append(f"  {cause.class_}, fault of the {cause.fault}: {cause.evidence}")
    parties = list(_parties(document, violation))
    runs: dict[int | None, list[_Party]] = {}
    for party in parties:
        runs.setdefault(party.run, []).append(party)
    for run in sorted(runs, key=lambda run: -1 if run is None else run):
        program, plan = _at(document, violation, run)
        lines.append(f"  {_heading(document, run, program, plan)}")
        lines += _listing(program, runs[run], context)
    program, plan = _at(document, violation, violation.run)
    problem = _problem(document, violation, plan)
    buffers = _buffers(document, violation)
    lines += [f"  {_buffer_line(program, buffer, plan, problem)}" for buffer in buffers]
    return "\n".join(lines)


def describe_program(program: Program, plan: Plan | None = None) -> str:
    """Return every op and every buffer of a program as text of several lines; with a plan, each
    buffer has its place. O(program).
    """
    paths = calls(program)
    ops = [f"    {op.step:>6}  {_op_line(program, op, paths)}".rstrip() for op in program.ops]
    buffers = [f"  {_buffer_line(program, buffer, plan, None)}" for buffer in range(len(program.buffers))]
    return "\n".join([f"program {_quoted(program.name)}", *ops, *buffers])


def describe_round(program: Program, plan: Plan | None, deeds: Mapping[int, str], buffers: Iterable[int] = ()) -> str:
    """Return the ops round the steps `deeds`, each with its deed, and the places of the buffers, as
    text of several lines.
    """
    parties = [_Party(run=None, op=step, deed=deed, main=bool(deed)) for step, deed in deeds.items()]
    lines = [*_listing(program, parties, CONTEXT), *(_buffer_line(program, buffer, plan, None) for buffer in buffers)]
    return "\n".join(lines)


def _at(document: Document, violation: Violation, run: int | None) -> tuple[Program, Plan | None]:
    runs: Sequence[Run] = document.runs
    if run is not None and run < len(runs):
        return runs[run].program, runs[run].plan
    if violation.plan is not None:
        plan = document.plans[violation.plan]
        return plan.program, plan
    if violation.program is not None:
        return document.programs[violation.program], None
    if violation.problem is not None:
        return document.problems[violation.problem].program, None
    return document.programs[0], None


def _problem(document: Document, violation: Violation, plan: Plan | None) -> Problem | None:
    if violation.problem is not None:
        return document.problems[violation.problem]
    return plan.problem if plan is not None else None


def _parties(document: Document, v: Violation) -> Iterator[_Party]:
    if v.kind == "BadShare":
        yield from _sharing(document, v)
        return
    mine, other, want = DEEDS.get(v.kind, ("", "", ""))
    if v.hazards:
        mine, other = RACING[v.hazards[0]]
    op = v.step if v.kind in EVENTS else v.op
    rows = (
        (v.run, op, v.buffer, mine, True),
        (v.other_run if v.other_run is not None else v.run, v.other_op, v.other_buffer, other, False),
        (v.want_run if v.want_run is not None else v.run, v.want_op, v.buffer, want, False),
    )
    home, _ = _at(document, v, v.run)
    seen: set[tuple[int | None, int]] = set()
    for run, op, buffer, deed, main in rows:
        if op is None or (run, op) in seen:
            continue
        seen.add((run, op))
        program, plan = _at(document, v, run)
        foreign = buffer is None or (not main and buffer == v.buffer and program is not home)
        place = "" if foreign else _place(program, buffer or 0, plan)
        yield _Party(run=run, op=op, deed=deed.format(bytes=_bytes(v.bytes), place=place), main=main)


def _sharing(document: Document, v: Violation) -> Iterator[_Party]:
    """Yield the last access to the donor of a pair and the first access to its recipient."""
    program, _ = _at(document, v, None)
    spans = [None if buffer is None else _span(program, buffer) for buffer in (v.buffer, v.other_buffer)]
    if spans[0] is None or spans[1] is None:
        return
    last, first = spans[0][1] - 1, spans[1][0]
    if last == first:
        yield _Party(
            run=None, op=last, deed="accesses the donor for the last time, the recipient for the first", main=False
        )
        return
    yield _Party(run=None, op=first, deed="accesses the recipient for the first time", main=False)
    yield _Party(run=None, op=last, deed="accesses the donor for the last time", main=False)


def _buffers(document: Document, v: Violation) -> list[int]:
    program, _ = _at(document, v, v.run)
    other, _ = _at(document, v, v.other_run if v.other_run is not None else v.run)
    found = [v.buffer] if other is not program else [v.buffer, v.other_buffer]
    return list(dict.fromkeys(buffer for buffer in found if buffer is not None))


def _heading(document: Document, run: int | None, program: Program, plan: Plan | None) -> str:
    at = next((index for index, one in enumerate(document.programs) if one is program), 0)
    what = f"program {at} {_quoted(program.name)}"
    if run is not None:
        what = f"run {run} of {what}"
    if plan is not None:
        number = next(index for index, one in enumerate(document.plans) if one is plan)
        what += f", plan {number}{f' of {_quoted(plan.source)}' if plan.source else ''}"
    return what


def _listing(program: Program, parties: Iterable[_Party], context: int) -> list[str]:
    by_op = {party.op: party for party in parties}
    count = len(program.ops)
    shown = sorted({step for op in by_op for step in range(max(op - context, 0), min(op + context + 1, count))})
    paths = calls(program)
    rows = [(step, _op_line(program, program.ops[step], paths)) for step in shown]
    width = min(max((len(text) for step, text in rows if step in by_op), default=0), 72)
    lines: list[str] = []
    previous = -1
    for step, text in rows:
        if step > previous + 1 and lines:
            lines.append(f"          ... {step - previous - 1} more")
        previous = step
        party = by_op.get(step)
        mark = ">" if party is not None and party.main else " "
        note = f"  <- {party.deed}" if party is not None and party.deed else ""
        line = f"  {mark} {step:>6}  {f'{text:<{width}}{note}' if note else text}".rstrip()
        if note and len(line) > COLUMNS:
            lines.append(f"  {mark} {step:>6}  {text}".rstrip())
            line = f"            {note.strip()}"
        lines.append(line)
    return lines


def _op_line(program: Program, op: Op, paths: Mapping[int, Call]) -> str:
    names = program.values.names
    reads, writes = (_list([names[value] for value in side]) for side in (op.operands, op.results))
    name = "" if op.name in {"", op.kind} else f" {_quoted(op.name)}"
    stream = f" on {_quoted(program.streams[op.stream])}" if len(program.streams) > 1 else ""
    waits = f", after op {_list([str(step) for step in op.after])}" if stream and op.after else ""
    made = f" -> {writes}" if writes else ""
    path = paths.get(op.step, OUTERMOST)
    call = f" in {_quoted('/'.join(map(str, path)))}" if path else ""
    return f"{_one_line(op.kind)}{name}{f' ({reads})' if reads else ''}{made}{call}{stream}{waits}"


def _list(names: Sequence[str]) -> str:
    more = f", and {len(names) - OPERANDS} more" if len(names) > OPERANDS else ""
    return ", ".join(_one_line(name) for name in names[:OPERANDS]) + more


def _buffer_line(program: Program, buffer: int, plan: Plan | None, problem: Problem | None) -> str:
    parts = [f"{int(program.buffers.nbytes[buffer])} bytes{_where(program, buffer, plan)}"]
    span = _span(program, buffer)
    if span is not None:
        parts.append(f"accessed in steps [{span[0]}, {span[1]})")
    if problem is not None and problem.program is program:
        pinned = ", pinned" if problem.pinned[buffer] else ""
        parts.append(f"believed to live [{int(problem.start[buffer])}, {int(problem.stop[buffer])}){pinned}")
    return f"{_quoted(program.buffers.names[buffer])} (buffer {buffer}): {', '.join(parts)}"


def _place(program: Program, buffer: int, plan: Plan | None) -> str:
    return f"{_quoted(program.buffers.names[buffer])}{_where(program, buffer, plan)}"


def _where(program: Program, buffer: int, plan: Plan | None) -> str:
    if plan is None or buffer >= len(plan.arena):
        return ""
    arena = int(plan.arena[buffer])
    if arena < 0:
        return " in memory of its own" if arena == OWN else " without a slot"
    low = int(plan.offset[buffer])
    size = min(int(program.buffers.nbytes[buffer]), int(plan.nbytes[buffer]))  # a slot may be too small
    return f" in {_one_line(program.arenas[arena].name)}[{low}, {low + size})"


def _span(program: Program, buffer: int) -> tuple[int, int] | None:
    """Return `[first, last + 1)`: the first and the last op, except views, that name a value of the
    buffer; None if there is none.
    """
    first, last = first_and_last(program)
    return None if last[buffer] == NEVER else (int(first[buffer]), int(last[buffer]) + 1)


def _bytes(ranges: Sequence[tuple[int, int]]) -> str:
    shown = ", ".join(f"[{low}, {high})" for low, high in ranges[:3])
    return f"bytes {shown}{f' and {len(ranges) - 3} more ranges' if len(ranges) > 3 else ''}" if ranges else "no bytes"


def _quoted(name: str) -> str:
    return repr(name)


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


__all__ = ["CONTEXT", "describe"]
