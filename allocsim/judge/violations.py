"""Define the kinds of defect that a check can report, and the record of one defect with its
witnesses.

A violation is data for programs: its fields are indices into the document's tables, or None if a
field does not apply. `names` has the matching names for people. `step` is a step of the program,
and equals `op` unless `op` is None. `bytes` are half-open byte ranges within the buffer `buffer`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

KINDS: Final[dict[str, tuple[str, str]]] = {
    # kind: (severity, the meaning in one clause)
    "UninitialisedRead": ("violation", "an op reads a byte that no op wrote and that has no initial content"),
    "OverwrittenRead": (
        "violation",
        "an op reads a value after the program overwrote that value within the value's own buffer",
    ),
    "StaleRead": ("violation", "the plan let another value overwrite bytes before their last read"),
    "UnsafeInPlace": (
        "violation",
        "a result shares bytes with an operand, and the kernel does not promise that this is safe",
    ),
    "ResultsOverlap": ("violation", "two results of one op share a byte"),
    "WriteToReadOnly": ("violation", "an op writes into a read-only buffer"),
    "Overlap": ("violation", "two buffers that live at the same time share bytes"),
    "OutOfBounds": ("violation", "a slot reaches outside its arena, or a value reaches outside its buffer"),
    "Undersized": ("violation", "a slot is smaller than its buffer"),
    "Misaligned": ("violation", "an offset is not a multiple of the buffer's alignment"),
    "WrongArena": ("violation", "a slot is in another arena than its buffer belongs to"),
    "Unplaced": ("violation", "a buffer that is used has no slot"),
    "PinIgnored": ("violation", "a slot takes the bytes of a buffer that the problem pins"),
    "OwnIgnored": ("violation", "a buffer that must have memory of its own has a slot in an arena"),
    "OwnUntold": ("violation", "a buffer has memory of its own, but the problem does not state that"),
    "FixedIgnored": ("violation", "a slot is not at the offset that the problem fixes"),
    "LifetimeIgnored": ("violation", "two buffers share bytes while both are believed to live"),
    "SizeIgnored": ("violation", "a slot is smaller than the believed size of its buffer"),
    "EventOutsideLifetime": ("violation", "by the planner's events, a buffer is free while it is believed to live"),
    "LifetimeTooShort": ("violation", "a believed lifetime leaves out an access"),
    "MissingPin": ("violation", "a believed lifetime leaves out a read by the host"),
    "BadSize": ("violation", "a believed size is smaller than the buffer's size"),
    "BadShare": ("violation", "a believed pair may not be placed at one address"),
    "DoubleFree": ("violation", "a buffer is freed twice"),
    "FreeOfUnallocated": ("violation", "a buffer is freed that was not allocated before"),
    "AllocOverLive": ("violation", "a buffer is allocated over a buffer that is still allocated"),
    "Race": ("violation", "two accesses to a byte, at least one a write, have no order"),
    "LifetimeTooLong": ("warning", "a believed lifetime is longer than the accesses need"),
    "HistoryRead": ("warning", "an op reads a byte that an earlier run wrote, outside parameters and states"),
    "AssumedInPlace": ("warning", "an exact alias is assumed to be safe, but the kernel's promise is not known"),
}
"""All kinds of defect; violations of one step are listed in this order."""


Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Particulars:
    """Facts for the printed sentence in addition to the fields of `Violation`. A judge may leave
    each field empty.
    """

    other_value: int | None = None
    """The value that `other_op` wrote or read, or the value that reaches outside its buffer."""
    want_value: int | None = None
    content: tuple[int, int] | None = None
    """The (program, buffer) of the initial content that the read found, if any."""
    want_content: tuple[int, int] | None = None
    """The (program, buffer) of the initial content that the read should have found, if any."""
    event: int | None = None
    """The index of the faulty event in `Plan.events`."""
    live: tuple[Range, ...] = ()
    """The steps at which `buffer` is live, or the steps that its believed lifetime leaves out."""
    other_live: tuple[Range, ...] = ()
    """The steps at which `other_buffer` is live."""
    at: int | None = None
    """The op at which the two buffers of a believed pair must not share bytes."""
    reason: str = ""
    """The failing condition, as a key of a table in `allocsim.diagnostics.sentences`."""
    partial: bool = False
    """Whether parts of the read were not examined, so that more bytes may be wrong."""


NO_MORE: Final = Particulars()


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A defect with its witnesses.

    A judge leaves `message` and `names` empty; `allocsim.diagnostics` fills these fields.
    """

    kind: str
    program: int | None = None
    plan: int | None = None
    run: int | None = None
    step: int | None = None
    op: int | None = None
    """The op with the wrong read, or the faulty op."""
    value: int | None = None
    """The value with the lost bytes, or the faulty value."""
    buffer: int | None = None
    other_run: int | None = None
    """The run of the write that the read found; None if no run wrote the bytes."""
    other_op: int | None = None
    """The op that wrote the found bytes; None for initial content."""
    other_buffer: int | None = None
    want_run: int | None = None
    """The run of the write that the read should have found; `want_op` is the op of that write."""
    want_op: int | None = None
    problem: int | None = None
    bytes: tuple[tuple[int, int], ...] = ()
    more: Particulars = field(default=NO_MORE, compare=False, repr=False)
    """Facts that only the printed sentence needs."""
    message: str = field(default="", compare=False)
    names: dict[str, str] = field(default_factory=dict, compare=False)
    """The names under `op_name`, `value_name`, `buffer_name`, `other_op_name`, `other_buffer_name`
    and `want_op_name`, if the index is not None."""
    in_apart: bool | None = None
    """For a `Race`, whether the race also exists with every buffer in memory of its own."""
    hazards: tuple[str, ...] | None = None
    """For a `Race`, the hazards among `write after read`, `read after write` and
    `write after write`, with the ops in list order."""
    schedule: tuple[int, ...] | None = None
    """For a `Race`, a legal order in which `op` runs before `other_op`. The order names ops from
    step `other_op` on. Ops before that step run before the named ops, and all other ops run after
    them."""

    ends: tuple[str, ...] | None = None
    """The ends of the buffers' size ranges at which the defect was found: `low`, `high` or both.
    None if no buffer has a size range."""

    @property
    def severity(self) -> str:
        """The severity of the kind: `violation` or `warning`."""
        return KINDS[self.kind][0]


KIND_ORDER: Final = {kind: position for position, kind in enumerate(KINDS)}


def in_order(records: Iterable[Violation]) -> tuple[Violation, ...]:
    """Return the records, sorted by (run, step, kind), nulls first."""
    return tuple(sorted(records, key=_place))


def _place(record: Violation) -> tuple[int, int, int]:
    run = -1 if record.run is None else record.run
    step = -1 if record.step is None else record.step
    return run, step, KIND_ORDER[record.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The sizes of the judged document."""

    ops: int
    """The number of ops of all executed programs, or of all programs if nothing runs."""
    buffers: int
    peak_bytes: int
    """The highest end of any slot, summed over arenas, of the plan with the largest sum."""
    lower_bound_bytes: int
    """The largest number of bytes that live buffers with a slot need at one step of one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defects:
    """All findings of the checks in one document."""

    violations: tuple[Violation, ...]
    """At most `limit` violations, sorted by (run, step, kind), nulls first."""
    warnings: tuple[Violation, ...]
    count: int
    """The number of violations; exact up to 10^6, a lower bound beyond."""
    truncated: bool
    """Whether `count` is only a lower bound."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """The number of records of each kind, warnings included; as exact as `count`."""
    unexamined: tuple[str, ...] = ()
    """Parts not examined because the step limit was reached, in words; `truncated` is then set."""

    @property
    def clean(self) -> bool:
        """Whether there are no violations; warnings are ignored."""
        return self.count == 0

    def of_kind(self, *kinds: str) -> tuple[Violation, ...]:
        """Return the violations and warnings of the given kinds."""
        return tuple(v for v in self.violations + self.warnings if v.kind in kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Defects):
    """All findings of the checks in one document, with the document's sizes."""

    stats: Stats

    def _repr_html_(self) -> str:
        """Return an HTML table of the found kinds and their counts for notebooks."""
        from allocsim.html_table import table_of  # noqa: PLC0415 - only notebooks need it

        rows = [(kind, *KINDS[kind], number) for kind, number in self.counts.items()]
        found = "clean" if self.clean else f"{self.count} violation{'s'[: self.count != 1]}"
        return table_of(
            f"{found}, peak {self.stats.peak_bytes:,} B", ("kind", "is a", "meaning", "count"), rows, len(rows)
        )
