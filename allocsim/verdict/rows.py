"""The table: which evidence means which root-cause class and which party at fault. `docs/verdict.md` publishes it.

For a violation the first row that applies decides, so the order of rows is part of the table. No row looks at a name, at which
scenario ran, or at how anything is numbered; what it asks is in `allocsim.verdict.facts`.

C15 needs a fact that a flattened program does not have by itself: which ops were a branch or a called graph. Where the document says so
(`allocsim.verdict.calls`), its rows apply; where it does not, such a fault is found all the same and named by its mechanism, C01, C02, C03 or C12.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from allocsim.checks import Violation
from allocsim.verdict import facts
from allocsim.verdict.case import Case
from allocsim.verdict.facts import EVENTS, PLACES, SLOTS, STALE, TAKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: evidence of these kinds for which `applies` holds means this class and this party."""

    kinds: tuple[str, ...]
    evidence: str
    class_: str
    fault: str
    applies: Callable[[Case, Violation], bool] = lambda _case, _violation: True
    remedy: str = ""
    """What the party at fault can do by itself, where that is not a change of the plan."""


ROWS: Final[tuple[Row, ...]] = (
    Row(
        kinds=("Race",),
        evidence="unordered accesses, one of them by a copy between arenas",
        class_="C10",
        fault="schedule",
        applies=facts.by_copy,
    ),
    Row(
        kinds=("Race",),
        evidence="unordered accesses that do not exist apart",
        class_="C09",
        fault="plan",
        applies=facts.not_apart,
    ),
    Row(kinds=("Race",), evidence="unordered accesses that exist apart too", class_="C09", fault="schedule"),
    Row(
        kinds=(*TAKEN, "UnsafeInPlace", *SLOTS),
        evidence="the run's program is not the one the plan was made for",
        class_="C08",
        fault="plan",
        applies=facts.stale_plan,
    ),
    Row(
        kinds=("UnsafeInPlace",),
        evidence="a mutation the kernel does not declare, within one buffer of the program",
        class_="C03",
        fault="caller",
        applies=facts.one_buffer,
    ),
    Row(
        kinds=("UnsafeInPlace",),
        evidence="operand and result are buffers of different inlined calls or branches, laid over each other though nobody believed they may",
        class_="C15",
        fault="plan",
        applies=facts.every(facts.other_call, facts.not_believed_to_share),
    ),
    Row(
        kinds=("UnsafeInPlace",),
        evidence="nobody believed that the two may share; the believed lifetime of one leaves out an access",
        class_="C01",
        fault="plan",
        applies=facts.every(facts.believed_apart, facts.short_lifetime),
    ),
    Row(
        kinds=("UnsafeInPlace",),
        evidence="beliefs hold, and nobody believed that the two may share; the placement laid live buffers over each other",
        class_="C12",
        fault="plan",
        applies=facts.believed_apart,
    ),
    Row(kinds=("UnsafeInPlace",), evidence="the pair used is not declared, or not exact", class_="C03", fault="plan"),
    Row(
        kinds=STALE,
        evidence="the host reads it, and the planner was not told",
        class_="C05",
        fault="caller",
        applies=facts.untold_host_read,
    ),
    Row(
        kinds=TAKEN,
        evidence="victim or writer is an input handed over to an output, or that output",
        class_="C11",
        fault="plan",
        applies=facts.donated,
    ),
    Row(
        kinds=TAKEN,
        evidence="one slot bound to two buffers that are filled from outside",
        class_="C11",
        fault="plan",
        applies=facts.bound_twice,
    ),
    Row(
        kinds=TAKEN,
        evidence="the writer is the recipient of a pair that may not share",
        class_="C03",
        fault="plan",
        applies=facts.bad_pair,
    ),
    Row(
        kinds=(*STALE, "ResultsOverlap"),
        evidence="one slot bound to two results, of which one is believed not to live when it is written",
        class_="C01",
        fault="plan",
        applies=facts.every(facts.one_op, facts.short_lifetime),
    ),
    Row(
        kinds=(*STALE, "ResultsOverlap"),
        evidence="one slot bound to two results",
        class_="C11",
        fault="plan",
        applies=facts.one_op,
    ),
    Row(
        kinds=TAKEN,
        evidence="the content of a parameter or state was not kept",
        class_="C07",
        fault="plan",
        applies=facts.persistent,
    ),
    Row(
        kinds=STALE,
        evidence="a copy between arenas reads what the host laid in an earlier run; what it laid in this one is read by nobody",
        class_="C10",
        fault="schedule",
        applies=facts.every(facts.earlier_run, facts.laid_by_host, facts.copies_of_input),
    ),
    Row(
        kinds=STALE,
        evidence="the bytes wanted were laid by the host in an earlier run",
        class_="C06",
        fault="caller",
        applies=facts.every(facts.earlier_run, facts.laid_by_host),
        remedy="; let the host write it before every run",
    ),
    Row(
        kinds=STALE,
        evidence="the bytes wanted were made by an op in an earlier run",
        class_="C07",
        fault="caller",
        applies=facts.earlier_run,
        remedy="; give it the role of a state, or memory of its own",
    ),
    Row(
        kinds=STALE,
        evidence="victim and writer are buffers of different inlined calls or branches",
        class_="C15",
        fault="plan",
        applies=facts.other_call,
    ),
    Row(
        kinds=STALE,
        evidence="the host reads it, and the planner was told",
        class_="C05",
        fault="plan",
        applies=facts.host_reads,
    ),
    Row(
        kinds=STALE,
        evidence="the bytes wanted were laid by the host in this run",
        class_="C06",
        fault="plan",
        applies=facts.every(facts.laid_by_host, facts.believed_over),
    ),
    Row(
        kinds=STALE,
        evidence="the last use was computed too early; the reader, or the last use missed, is a view's",
        class_="C02",
        fault="plan",
        applies=facts.every(facts.believed_over, facts.lost_view),
    ),
    Row(
        kinds=STALE,
        evidence="the last use was computed too early; the reader reads the buffer's own value",
        class_="C01",
        fault="plan",
        applies=facts.believed_over,
    ),
    Row(
        kinds=STALE,
        evidence="the belief covers the reader, and has the writer born after it is written",
        class_="C01",
        fault="plan",
        applies=facts.writer_born_late,
    ),
    Row(kinds=STALE, evidence="the belief covers the reader; the placement gave the bytes away", class_="C12", fault="plan"),
    Row(
        kinds=("Overlap",),
        evidence="a pin the planner was told did not hold",
        class_="C05",
        fault="plan",
        applies=facts.missing_pin_told,
    ),
    Row(
        kinds=("Overlap",),
        evidence="the host reads it, and the planner was not told",
        class_="C05",
        fault="caller",
        applies=facts.missing_pin,
    ),
    Row(
        kinds=("Overlap",),
        evidence="the two are buffers of different inlined calls or branches",
        class_="C15",
        fault="plan",
        applies=facts.other_call,
    ),
    Row(
        kinds=("Overlap",),
        evidence="the last use missed is a view's",
        class_="C02",
        fault="plan",
        applies=facts.short_by_view,
    ),
    Row(
        kinds=("Overlap",),
        evidence="the believed lifetime leaves out an access",
        class_="C01",
        fault="plan",
        applies=facts.short_lifetime,
    ),
    Row(kinds=("Overlap",), evidence="beliefs hold; the placement laid live buffers over each other", class_="C12", fault="plan"),
    Row(kinds=("WriteToReadOnly",), evidence="an op writes into a read-only buffer", class_="C11", fault="caller"),
    Row(
        kinds=("Unplaced",),
        evidence="a buffer of an inlined call or branch was left out of the plan",
        class_="C15",
        fault="plan",
        applies=facts.within_call,
    ),
    Row(
        kinds=("OutOfBounds",),
        evidence="a value of the program reaches outside its buffer",
        class_="C12",
        fault="caller",
        applies=facts.of_value,
    ),
    Row(
        kinds=SLOTS,
        evidence="the slot does not fit its buffer",
        class_="C12",
        fault="plan",
    ),
    Row(kinds=PLACES, evidence="the slot is not what the plan's own problem asks for", class_="C12", fault="plan"),
    Row(kinds=("PinIgnored",), evidence="the planner was told to pin it, and gave its bytes away", class_="C05", fault="plan"),
    Row(
        kinds=EVENTS,
        evidence="the planner's own events contradict each other",
        class_="C13",
        fault="plan",
    ),
    Row(kinds=("UninitialisedRead",), evidence="nobody wrote these bytes", class_="C14", fault="caller"),
    Row(
        kinds=("HistoryRead",),
        evidence="bytes of an earlier run are read, and no upload was left out",
        class_="C14",
        fault="caller",
        applies=facts.not_skipped,
    ),
    Row(
        kinds=("OverwrittenRead",),
        evidence="an upload was left out, and an op of an earlier run wrote what is read in its place",
        class_="C14",
        fault="caller",
        applies=facts.found_is_older,
        remedy="; let the host write it before every run",
    ),
    Row(kinds=("OverwrittenRead",), evidence="wrong under every plan", class_="program", fault="caller"),
)
"""From evidence to class and party; for a violation the first row that applies decides."""

BELIEF_ROWS: Final[tuple[Row, ...]] = (
    Row(
        kinds=("MissingPin",),
        evidence="told of the pin, the belief still ends before the host reads",
        class_="C05",
        fault="plan",
        applies=facts.told,
    ),
    Row(kinds=("MissingPin",), evidence="the planner was not told that the host reads it", class_="C05", fault="caller"),
    Row(
        kinds=("LifetimeTooShort",),
        evidence="the last use left out is a view's",
        class_="C02",
        fault="plan",
        applies=facts.short_by_view,
    ),
    Row(kinds=("LifetimeTooShort",), evidence="an access was left out", class_="C01", fault="plan"),
    Row(kinds=("BadSize",), evidence="the believed size is too small", class_="C12", fault="plan"),
    Row(kinds=("BadShare",), evidence="the pair may not share", class_="C03", fault="plan"),
)
"""The same for beliefs that no violation of the plan has brought to light yet."""

KERNEL_UNSAFE: Final = Row(
    kinds=("K", "D"),
    evidence="a declared pair is measured unsafe, the plan uses it, and (where D ran) the result is wrong there from right operands",
    class_="C04",
    fault="kernel",
)
ASSUMED_UNSAFE: Final = Row(
    kinds=("K", "D"),
    evidence="the same, but nobody declares the pair: the plan took it to be safe",
    class_="C03",
    fault="plan",
)
TWICE_UNSAFE: Final = Row(
    kinds=("K",),
    evidence="a kernel is measured wrong where two operands are one buffer, and the program gives it one twice",
    class_="C04",
    fault="kernel",
)
UNEXPLAINED: Final = Row(
    kinds=("D",),
    evidence="a difference that no violation and no unsafe pair at that op accounts for",
    class_="unknown",
    fault="unknown",
)
SANITIZED_ROWS: Final[tuple[Row, ...]] = (
    Row(kinds=("Overrun", "Changed"), evidence="a kernel wrote outside its results", class_="C12", fault="kernel"),
    Row(kinds=("PoisonRead",), evidence="a kernel read dead bytes that it does not declare", class_="C12", fault="kernel"),
    Row(kinds=("OperandWritten",), evidence="a kernel wrote into an operand", class_="C03", fault="kernel"),
    Row(kinds=("ReadOnlyWritten",), evidence="a kernel wrote into read-only memory", class_="C03", fault="kernel"),
    Row(kinds=("ResultUnwritten",), evidence="a kernel left part of its result unwritten", class_="C14", fault="kernel"),
)
"""What P adds; `allocsim.verdict.kernels` reads them."""

MEASURED_ROWS: Final[tuple[Row, ...]] = (KERNEL_UNSAFE, ASSUMED_UNSAFE, TWICE_UNSAFE, *SANITIZED_ROWS, UNEXPLAINED)
"""What K, D and P add; `allocsim.verdict.findings` and `kernels` join them."""
