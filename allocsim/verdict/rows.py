"""The table: which evidence of S and L means which root-cause class and which party at fault.

For a violation the first row that applies decides, so the order of rows is part of the table. No row looks at a name, at which
scenario ran, or at how anything is numbered.

What this module does not see: K and D (`allocsim.verdict.findings`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from allocsim.checks import Violation
from allocsim.model import HOST_READ, HOST_WRITE, VIEW
from allocsim.verdict.case import Case

STALE: Final = ("StaleRead",)
TAKEN: Final = ("StaleRead", "Overlap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: violations of these kinds for which `applies` holds mean this class and this party."""

    kinds: tuple[str, ...]
    evidence: str
    class_: str
    fault: str
    applies: Callable[[Case, Violation], bool] = lambda _case, _violation: True
    remedy: str = ""
    """What the party at fault can do by itself, where that is not a change of the plan."""


def _other_program(case: Case, v: Violation) -> bool:
    run = case.run(v)
    return run is not None and run.program is not run.plan.program


def _one_buffer(_case: Case, v: Violation) -> bool:
    return v.other_buffer is None or v.buffer == v.other_buffer


def writer_was_bad_recipient(case: Case, v: Violation) -> bool:
    """Whether a party to the violation is the recipient of a pair that may not share."""
    problem = case.problem(v)
    if problem is None:
        return False
    parties = {v.other_buffer} if v.kind == "StaleRead" else {v.buffer, v.other_buffer}
    return any((id(problem), buffer) in case.bad_recipients for buffer in parties if buffer is not None)


def earlier_run(_case: Case, v: Violation) -> bool:
    """Whether the bytes wanted were written in an earlier run."""
    return v.want_run is not None and v.run is not None and v.want_run < v.run


def _persistent(case: Case, v: Violation) -> bool:
    return v.buffer is not None and bool(case.program(v).buffers.persistent[v.buffer])


def _laid_by_host(case: Case, v: Violation) -> bool:
    op = case.op(v.want_run, v.want_op)
    return op is not None and op.kind == HOST_WRITE


def _host_reads(case: Case, v: Violation) -> bool:
    op = case.op(v.run, v.op)
    return op is not None and op.kind == HOST_READ


def _told(case: Case, v: Violation) -> bool:
    problem = case.problem(v)
    return problem is not None and v.buffer is not None and bool(problem.pinned[v.buffer])


def _believed_over(case: Case, v: Violation) -> bool:
    """Whether the belief ends the victim before the reader, or no belief is known."""
    problem = case.problem(v)
    if problem is None or v.buffer is None or v.op is None:
        return True
    return not int(problem.start[v.buffer]) <= v.op < int(problem.stop[v.buffer])


def _through_view(case: Case, v: Violation) -> bool:
    program = case.program(v)
    if v.value is None:
        return False
    made_by = int(program.producer[v.value])
    return made_by >= 0 and program.ops[made_by].kind == VIEW


def _overlap_by_short_lifetime(case: Case, v: Violation) -> bool:
    return _short(case, v) is not None


def _overlap_by_lost_view(case: Case, v: Violation) -> bool:
    short = _short(case, v)
    return short is not None and _through_view(case, short)


def _overlap_by_missing_pin(case: Case, v: Violation) -> bool:
    short = _short(case, v)
    return short is not None and short.kind == "MissingPin"


def _short(case: Case, v: Violation) -> Violation | None:
    problem = case.problem(v)
    if problem is None:
        return None
    found = [case.short_lifetimes.get((id(problem), b)) for b in (v.buffer, v.other_buffer) if b is not None]
    return next((short for short in found if short is not None), None)


def _pinned_either(case: Case, v: Violation) -> bool:
    short = _short(case, v)
    return short is not None and _told(case, short)


def _all(*tests: Callable[[Case, Violation], bool]) -> Callable[[Case, Violation], bool]:
    return lambda case, v: all(test(case, v) for test in tests)


ROWS: Final[tuple[Row, ...]] = (
    Row(
        kinds=("Race",),
        evidence="unordered accesses that do not exist apart",
        class_="C09",
        fault="plan",
        applies=lambda _c, v: not v.in_apart,
    ),
    Row(kinds=("Race",), evidence="unordered accesses that exist apart too", class_="C09", fault="schedule"),
    Row(
        kinds=(*TAKEN, "UnsafeInPlace"),
        evidence="the run's program is not the one the plan was made for",
        class_="C08",
        fault="plan",
        applies=_other_program,
    ),
    Row(
        kinds=("UnsafeInPlace",),
        evidence="a mutation the kernel does not declare, within one buffer of the program",
        class_="C03",
        fault="caller",
        applies=_one_buffer,
    ),
    Row(kinds=("UnsafeInPlace",), evidence="the pair used is not declared, or not exact", class_="C03", fault="plan"),
    Row(
        kinds=TAKEN,
        evidence="the writer is the recipient of a pair that may not share",
        class_="C03",
        fault="plan",
        applies=writer_was_bad_recipient,
    ),
    Row(
        kinds=STALE,
        evidence="the content of a parameter or state was not kept",
        class_="C07",
        fault="plan",
        applies=_persistent,
    ),
    Row(
        kinds=STALE,
        evidence="the bytes wanted were laid by the host in an earlier run",
        class_="C06",
        fault="caller",
        applies=_all(earlier_run, _laid_by_host),
        remedy="; let the host write it before every run",
    ),
    Row(
        kinds=STALE,
        evidence="the bytes wanted were made by an op in an earlier run",
        class_="C07",
        fault="caller",
        applies=earlier_run,
        remedy="; give it the role of a state, or memory of its own",
    ),
    Row(
        kinds=STALE,
        evidence="the host reads it, and the planner was told",
        class_="C05",
        fault="plan",
        applies=_all(_host_reads, _told),
    ),
    Row(
        kinds=STALE, evidence="the host reads it, and the planner was not told", class_="C05", fault="caller", applies=_host_reads
    ),
    Row(
        kinds=STALE,
        evidence="the bytes wanted were laid by the host in this run",
        class_="C06",
        fault="plan",
        applies=_all(_laid_by_host, _believed_over),
    ),
    Row(
        kinds=STALE,
        evidence="the belief ends before a reader that reads through a view",
        class_="C02",
        fault="plan",
        applies=_all(_believed_over, _through_view),
    ),
    Row(
        kinds=STALE,
        evidence="the belief ends before a reader of the buffer's own value",
        class_="C01",
        fault="plan",
        applies=_believed_over,
    ),
    Row(kinds=STALE, evidence="the belief covers the reader; the placement gave the bytes away", class_="C12", fault="plan"),
    Row(
        kinds=("Overlap",),
        evidence="a pin the planner was told did not hold",
        class_="C05",
        fault="plan",
        applies=_all(_overlap_by_missing_pin, _pinned_either),
    ),
    Row(
        kinds=("Overlap",),
        evidence="the host reads it, and the planner was not told",
        class_="C05",
        fault="caller",
        applies=_overlap_by_missing_pin,
    ),
    Row(
        kinds=("Overlap",),
        evidence="the last use missed is a view's",
        class_="C02",
        fault="plan",
        applies=_overlap_by_lost_view,
    ),
    Row(
        kinds=("Overlap",),
        evidence="the believed lifetime leaves out an access",
        class_="C01",
        fault="plan",
        applies=_overlap_by_short_lifetime,
    ),
    Row(kinds=("Overlap",), evidence="beliefs hold; the placement laid live buffers over each other", class_="C12", fault="plan"),
    Row(kinds=("ResultsOverlap",), evidence="one slot bound to two results", class_="C11", fault="plan"),
    Row(kinds=("WriteToReadOnly",), evidence="an op writes into a read-only buffer", class_="C11", fault="caller"),
    Row(
        kinds=("OutOfBounds", "Undersized", "Misaligned", "WrongArena", "Unplaced"),
        evidence="the slot does not fit its buffer",
        class_="C12",
        fault="plan",
    ),
    Row(
        kinds=("DoubleFree", "FreeOfUnallocated", "AllocOverLive"),
        evidence="the planner's own events contradict each other",
        class_="C13",
        fault="plan",
    ),
    Row(kinds=("UninitialisedRead",), evidence="nobody wrote these bytes", class_="C14", fault="caller"),
    Row(kinds=("OverwrittenRead",), evidence="wrong under every plan", class_="program", fault="caller"),
)
"""From evidence to class and party; for a violation the first row that applies decides."""

BELIEF_ROWS: Final[tuple[Row, ...]] = (
    Row(
        kinds=("MissingPin",),
        evidence="told of the pin, the belief still ends before the host reads",
        class_="C05",
        fault="plan",
        applies=_told,
    ),
    Row(kinds=("MissingPin",), evidence="the planner was not told that the host reads it", class_="C05", fault="caller"),
    Row(
        kinds=("LifetimeTooShort",),
        evidence="the access left out goes through a view",
        class_="C02",
        fault="plan",
        applies=_through_view,
    ),
    Row(kinds=("LifetimeTooShort",), evidence="an access was left out", class_="C01", fault="plan"),
    Row(kinds=("BadSize",), evidence="the believed size is too small", class_="C12", fault="plan"),
    Row(kinds=("BadShare",), evidence="the pair may not share", class_="C03", fault="plan"),
)
"""The same for beliefs that no violation of the plan has brought to light yet."""
