"""The kinds of defect that a check can report, and the record that names one defect with its
witnesses.

A violation is data. Its fields are indices into the document's tables (None where a field does not
apply), so that a program can act on it; `names` has the same for people. `step` is the index of
the op in the program's list and equals `op`. `bytes` are half-open ranges of bytes within the
buffer named by `buffer`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

KINDS: Final[dict[str, tuple[str, str]]] = {
    # kind: (severity, what it means in one clause)
    "UninitialisedRead": ("violation", "a byte read was never written by any op nor laid as content"),
    "OverwrittenRead": (
        "violation",
        "the program reads a value after another value was written over it in its own buffer",
    ),
    "StaleRead": ("violation", "the plan let another value take bytes before their last read"),
    "UnsafeInPlace": ("violation", "a result lies on an operand's bytes beyond what the kernel promises"),
    "ResultsOverlap": ("violation", "two results of one op share a byte"),
    "WriteToReadOnly": ("violation", "an op writes into a read-only buffer"),
    "Overlap": ("violation", "two buffers that live at the same time share bytes"),
    "OutOfBounds": ("violation", "a slot leaves its arena, or a value its buffer"),
    "Undersized": ("violation", "a slot is smaller than its buffer"),
    "Misaligned": ("violation", "an offset is no multiple of the buffer's alignment"),
    "WrongArena": ("violation", "a slot is in another arena than its buffer"),
    "Unplaced": ("violation", "a buffer that is used has no slot"),
    "PinIgnored": ("violation", "a slot takes the bytes of a buffer that the plan was told to pin"),
    "OwnIgnored": ("violation", "a buffer that must have memory of its own has a slot in an arena"),
    "OwnUntold": ("violation", "a buffer is answered with memory of its own, and was not told so"),
    "FixedIgnored": ("violation", "a slot is not where the plan was told to have it"),
    "LifetimeIgnored": ("violation", "two buffers lie over each other while both are believed to live"),
    "SizeIgnored": ("violation", "a slot is smaller than its buffer is believed to be"),
    "EventOutsideLifetime": ("violation", "the planner's events have a buffer free while it is believed to live"),
    "LifetimeTooShort": ("violation", "a believed lifetime leaves out an access"),
    "MissingPin": ("violation", "a believed lifetime leaves out a read by the host"),
    "BadSize": ("violation", "a believed size is below the buffer's"),
    "BadShare": ("violation", "a believed pair may not lie at one address"),
    "DoubleFree": ("violation", "a buffer is freed twice"),
    "FreeOfUnallocated": ("violation", "a buffer is freed that was not allocated"),
    "AllocOverLive": ("violation", "a buffer is allocated over one that is still allocated"),
    "Race": ("violation", "two accesses to a byte, one a write, have no order"),
    "LifetimeTooLong": ("warning", "a believed lifetime is longer than the accesses need"),
    "HistoryRead": ("warning", "a byte read was written in an earlier run, outside persistent buffers"),
    "AssumedInPlace": ("warning", "an exact alias is taken to be safe though nobody knows whether the kernel is"),
}
"""Every kind of defect; violations of one step are listed in this order."""


Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Particulars:
    """What the printed sentence names beyond the fields of `Violation`; a judge may leave each
    field empty.
    """

    other_value: int | None = None
    """The value that `other_op` wrote or read; or the value that reaches outside its buffer."""
    want_value: int | None = None
    content: tuple[int, int] | None = None
    """(program, buffer) of the initial content that the read found, if it found such content."""
    want_content: tuple[int, int] | None = None
    """(program, buffer) of the initial content that the read should have found."""
    event: int | None = None
    """Index of the event at fault in `Plan.events`."""
    live: tuple[Range, ...] = ()
    """Steps at which `buffer` is live, or steps that its believed lifetime leaves out."""
    other_live: tuple[Range, ...] = ()
    """Steps at which `other_buffer` is live."""
    at: int | None = None
    """The op at which the two buffers of a believed pair may not share bytes."""
    reason: str = ""
    """Which condition fails, as a word of `allocsim.diagnostics.sentences`."""
    partial: bool = False
    """Whether some pieces of the read were not examined, so that more bytes may be wrong."""


NO_MORE: Final = Particulars()


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One defect with its witnesses.

    A judge leaves `message` and `names` empty: `allocsim.diagnostics` fills them.
    """

    kind: str
    program: int | None = None
    plan: int | None = None
    run: int | None = None
    step: int | None = None
    op: int | None = None
    """The op that read too late, or the op at fault."""
    value: int | None = None
    """The value whose bytes were lost, or the value at fault."""
    buffer: int | None = None
    other_run: int | None = None
    """Run of the write that the read found; None if nothing wrote there."""
    other_op: int | None = None
    """Op that wrote the bytes found; None for content from before the session."""
    other_buffer: int | None = None
    want_run: int | None = None
    """Run of the write that the read should have found; `want_op` is its op."""
    want_op: int | None = None
    problem: int | None = None
    bytes: tuple[tuple[int, int], ...] = ()
    more: Particulars = field(default=NO_MORE, compare=False, repr=False)
    """Fields that only the printed sentence needs."""
    message: str = field(default="", compare=False)
    names: dict[str, str] = field(default_factory=dict, compare=False)
    """`op_name`, `value_name`, `buffer_name`, `other_op_name`, `other_buffer_name`, `want_op_name`
    where they apply.
    """
    in_apart: bool | None = None
    """`Race` only: whether the race also exists with every buffer in memory of its own."""
    hazards: tuple[str, ...] | None = None
    """`Race` only: `write after read`, `read after write`, `write after write`, with the ops in
    list order.
    """
    schedule: tuple[int, ...] | None = None
    """`Race` only: a legal order in which `op` runs before `other_op`. It names ops from step
    `other_op` on; ops before that step run before it, all ops that it leaves out run after it.
    """

    ends: tuple[str, ...] | None = None
    """The ends of the buffers' size ranges at which the defect was found: `low`, `high` or both;
    None where no buffer has a size range.
    """

    @property
    def severity(self) -> str:
        """`violation` or `warning`."""
        return KINDS[self.kind][0]


KIND_ORDER: Final = {kind: position for position, kind in enumerate(KINDS)}


def in_order(records: Iterable[Violation]) -> tuple[Violation, ...]:
    """Return records in order of (run, step, kind), nulls first."""
    return tuple(sorted(records, key=_place))


def _place(record: Violation) -> tuple[int, int, int]:
    run = -1 if record.run is None else record.run
    step = -1 if record.step is None else record.step
    return run, step, KIND_ORDER[record.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Sizes of the document that was judged."""

    ops: int
    """Ops of all programs that ran."""
    buffers: int
    peak_bytes: int
    """Highest end of any slot, summed over arenas, of the plan where this sum is largest."""
    lower_bound_bytes: int
    """Largest number of bytes that live buffers with a slot need at one step of one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defects:
    """All that the checks found in one document."""

    violations: tuple[Violation, ...]
    """In order of (run, step, kind), nulls first; at most `limit` of them."""
    warnings: tuple[Violation, ...]
    count: int
    """Number of violations: exact up to 10^6, a lower bound beyond."""
    truncated: bool
    """Whether `count` is only a lower bound."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of records of each kind, warnings included; as exact as `count`."""
    unexamined: tuple[str, ...] = ()
    """Parts not examined because the step limit was reached, in words; `truncated` is then set."""

    @property
    def clean(self) -> bool:
        """Whether there are no violations; warnings do not matter."""
        return self.count == 0

    def of_kind(self, *kinds: str) -> tuple[Violation, ...]:
        """Return the violations and warnings of the kinds named."""
        return tuple(v for v in self.violations + self.warnings if v.kind in kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Defects):
    """All that the checks found in one document, and how large it is."""

    stats: Stats

    def _repr_html_(self) -> str:
        """Return a table of the kinds found and their counts, which a notebook shows."""
        from allocsim.html_table import table_of  # noqa: PLC0415 - a judgement needs none

        rows = [(kind, *KINDS[kind], number) for kind, number in self.counts.items()]
        found = "clean" if self.clean else f"{self.count} violation{'s'[: self.count != 1]}"
        return table_of(
            f"{found}, peak {self.stats.peak_bytes:,} B", ("kind", "is a", "meaning", "count"), rows, len(rows)
        )
