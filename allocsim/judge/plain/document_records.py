"""What the plain judge reads: a document as frozen records, every default filled in.

Fields are called as the keys of docs/format.md; a key without a default is needed.

Everything refers to everything else by index. Ranges are half-open; strides and offsets are bytes,
widths and places of elements bits. The bits of an element are `[p, p + width)` with `p = 8 *
(offset + sum(index * stride)) + bit_offset + last * width`, the last term for packed elements
alone, whose last stride is 0.

What this module does not see: where a document comes from, and what is wrong with it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import prod
from operator import itemgetter
from typing import Any, Final

from allocsim.errors import ModelError
from allocsim.judge.plain.ranges import Range, Ranges, meet, merged, without

OWN: Final = -1
UNPLACED: Final = -2
"""Arena of a slot in memory of its own, outside all arenas, and of a buffer that has no slot."""

MAX_PIECES: Final = 1 << 22  # ranges of one layout

WIDTHS: Final = {
    **dict.fromkeys(("f64", "i64", "u64", "c64"), 64),
    **dict.fromkeys(("f32", "i32", "u32"), 32),
    **dict.fromkeys(("f16", "bf16", "i16", "u16"), 16),
    **dict.fromkeys(("i8", "u8", "bool", "f8_e4m3", "f8_e5m2"), 8),
    **dict.fromkeys(("i4", "u4", "f4"), 4),
    **dict.fromkeys(("i2", "u2"), 2),
    "c128": 128,
}

STRENGTHS: Final = ("exact", "bytes", "whole")  # what a kernel may promise of a pair, the least first
UNSAID: Final[Any] = None  # what a field has until the reader fills in a default that depends on others

Pair = tuple[int, int]  # two positions, or two buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaRecord:
    """One address space."""

    name: str = ""
    alignment: int = 1
    capacity: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferRecord:
    """A number of bytes that belong together."""

    name: str = ""
    nbytes: int
    alignment: int = 0
    arena: int = 0
    role: str = "temporary"
    read_only: bool = False
    nbytes_range: Range | None = None

    @property
    def persistent(self) -> bool:
        """Whether its content lasts from run to run."""
        return self.role in {"parameter", "state"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRecord:
    """An array in a buffer."""

    name: str = ""
    buffer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] = UNSAID
    offset: int = 0
    bit_offset: int = 0

    @property
    def width(self) -> int:
        """Bits of an element; those below 8 are packed along the last dimension."""
        return WIDTHS[self.dtype]

    @property
    def nbits(self) -> int:
        """Bits of all elements."""
        return prod(self.shape) * self.width

    @property
    def element_0(self) -> int:
        """The first bit of element 0 in the buffer."""
        return 8 * self.offset + self.bit_offset

    @property
    def dims(self) -> list[Range]:
        """Length and stride in bits of each dimension."""
        strides = [8 * stride for stride in self.strides]
        if self.width < 8:
            strides[-1:] = [self.width] * len(strides[-1:])
        return list(zip(self.shape, strides, strict=True))

    def pieces(self) -> Ranges:
        """Return the ranges of bits in row-major order of the elements, neighbours joined."""
        length, outer = _joined(self.width, self.dims[::-1], int.__eq__)
        return _at_all(self.element_0, length, outer[::-1])

    def in_one_piece(self) -> bool:
        """Return whether `pieces` has one range."""
        length, outer = _joined(self.width, self.dims[::-1], int.__eq__)
        return length > 0 and not outer

    def bits(self) -> Ranges:
        """Return the bits that the array covers."""
        if 0 in self.shape:
            return ()
        lowest = self.element_0 + sum((count - 1) * min(stride, 0) for count, stride in self.dims)
        upward = sorted(((count, abs(stride)) for count, stride in self.dims), key=itemgetter(1))
        return merged(_at_all(lowest, *_joined(self.width, upward, int.__le__)))


def _joined(length: int, dims: list[Range], meets: Callable[[int, int], bool]) -> tuple[int, list[Range]]:
    """Return the bits of a piece, and the dimensions that place pieces, the innermost first."""
    outer: list[Range] = []
    for count, stride in dims:
        if not outer and meets(stride, length):
            length += stride * (count - 1)
        elif count != 1:
            outer.append((count, stride))
    return length, outer


def _at_all(base: int, length: int, dims: list[Range]) -> Ranges:
    """Return a piece at each place of the dimensions, in row-major order."""
    if prod(count for count, _ in dims) > MAX_PIECES:
        raise ModelError("", f"a layout of more than {MAX_PIECES} ranges is not supported")
    places = product(*([index * stride for index in range(count)] for count, stride in dims))
    return tuple((base + sum(place), base + sum(place) + length) for place in places if length)


def same_layout(one: ValueRecord, other: ValueRecord) -> bool:
    """Return whether shapes, widths and all strides that matter agree, wherever element 0 lies."""
    pairs = zip(one.shape, one.strides, other.strides, strict=False)
    return (one.shape, one.width) == (other.shape, other.width) and all(n <= 1 or s == t for n, s, t in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRecord:
    """One step: it reads all operands, then writes all results."""

    name: str = ""
    kind: str
    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    in_place: tuple[tuple[Any, ...], ...] | None = ()
    stream: int = 0
    after: tuple[int, ...] = ()
    same: bool = False
    """Whether it is of kind `same`, in a document that has that kind."""


@dataclass(frozen=True, kw_only=True)
class ProgramRecord:
    """Buffers, the values in them, and the ops that read and write values."""

    name: str = ""
    buffers: tuple[BufferRecord, ...]
    values: tuple[ValueRecord, ...]
    streams: tuple[str, ...] = ("main",)
    ops: tuple[OpRecord, ...]
    path: str = ""

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each buffer."""
        return tuple(buffer.nbytes for buffer in self.buffers)

    @cached_property
    def bits(self) -> tuple[Ranges, ...]:
        """The bits of each value that lie inside its buffer."""
        return tuple(meet(value.bits(), ((0, 8 * self.sizes[value.buffer]),)) for value in self.values)

    @cached_property
    def made_by(self) -> dict[int, int]:
        """The op that produces each value; a value of none is left out."""
        return {value: step for step, op in enumerate(self.ops) for value in op.results}

    def buffers_of(self, values: Iterable[int]) -> list[int]:
        """Return the buffer of each value."""
        return [self.values[value].buffer for value in values]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRecord:
    """What a planner believes of a program; each column has an entry for each buffer."""

    program: int
    start: tuple[int, ...] = UNSAID
    stop: tuple[int, ...] = UNSAID
    nbytes: tuple[int, ...] = UNSAID
    pinned: frozenset[int] = frozenset()
    own: frozenset[int] = UNSAID
    fixed: dict[int, int] = UNSAID
    order: tuple[int, ...] = UNSAID
    may_share: tuple[Pair, ...] = UNSAID
    gaps: dict[int, Ranges] = UNSAID
    stated: frozenset[str] = frozenset()
    """Which lists the document gives."""

    def life(self, buffer: int) -> Ranges:
        """Return the steps at which a buffer is believed to live: its lifetime less its gaps."""
        return without(((self.start[buffer], self.stop[buffer]),), merged(self.gaps.get(buffer, ())))

    def relays(self, donor: int, recipient: int) -> bool:
        """Return whether the one's believed life ends at the step at which the other's begins."""
        return self.stop[donor] - 1 == self.start[recipient]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRecord:
    """Where a buffer lies: an arena, or `OWN`, or `UNPLACED`."""

    arena: int = 0
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """A slot for each buffer, and what the planner did."""

    program: int
    problem: int | None = None
    source: str = ""
    slots: tuple[SlotRecord, ...]
    events: tuple[tuple[int, str, int], ...] = ()
    """(step, `alloc` or `free`, buffer), in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One execution of a program with the slots of a plan."""

    plan: int
    program: int = -1
    skip: tuple[int, ...] = ()
    after: tuple[int, ...] | None = None
    """Earlier runs that it waits for; None is all of them."""
    read_after: int | None = None


@dataclass(frozen=True, kw_only=True)
class DocumentRecord:
    """Everything the judge looks at."""

    format: str
    version: int
    arenas: tuple[ArenaRecord, ...] = (ArenaRecord(name="cpu", alignment=32),)
    programs: tuple[ProgramRecord, ...] = ()
    problems: tuple[ProblemRecord, ...] = ()
    plans: tuple[PlanRecord, ...] = ()
    session: tuple[RunRecord, ...] | None = None
    runs: tuple[RunRecord, ...] = ()
    """The session, over one memory, or one run of each plan, each on its own."""
    kinds: dict[str, dict[Pair, str]] = field(default_factory=dict)
    """What a table of kinds says: kind -> pair -> a strength, `denied` or `unknown`."""

    @cached_property
    def waits(self) -> tuple[frozenset[int], ...]:
        """The runs that each run waits for, transitively."""
        found: list[frozenset[int]] = []
        for index, run in enumerate(self.runs):
            direct = range(index) if run.after is None else run.after
            found.append(frozenset(direct).union(*(found[earlier] for earlier in direct)))
        return tuple(found)

    @cached_property
    def owners(self) -> list[int]:
        """The run that began the memory which each run uses apart, for what does not persist."""
        found: list[int] = []
        for index, run in enumerate(self.runs):
            earlier = [before for before in self.waits[index] if self.runs[before].program == run.program]
            found.append(found[max(earlier)] if earlier else index)
        return found

    def at_end(self, end: int) -> "DocumentRecord":
        """Return the document with all sizes, but those stated, at the low (0) or high (1) end."""

        def sized(buffer: BufferRecord) -> BufferRecord:
            return replace(buffer, nbytes=buffer.nbytes_range[end]) if buffer.nbytes_range else buffer

        programs = tuple(replace(one, buffers=tuple(map(sized, one.buffers))) for one in self.programs)
        problems = [p if "nbytes" in p.stated else replace(p, nbytes=programs[p.program].sizes) for p in self.problems]
        return replace(self, programs=programs, problems=tuple(problems))
