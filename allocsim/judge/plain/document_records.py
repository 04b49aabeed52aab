"""Define the plain judge's document: frozen records with every default filled in.

A field with a rule is a key of docs/format.md; a key without a default is required. A rule that
begins with `2` needs version 2 of the format. `[rule]` is a list, `[rule]+` a list that is not
empty, `[rule]buffers` a list with an entry for each buffer. `(rule,rule)` is a list with a rule for
each entry; a last entry `rule=default` may be omitted. `{rule}` is an object by buffer, `@arenas`
is an index into the arenas, and `rule?` may be null.

Records refer to each other by index. Ranges are half-open. Strides and offsets are in bytes; widths
and element positions are in bits. The bits of an element are `[p, p + width)` with
`p = 8 * (offset + sum(index * stride)) + bit_offset + last * width`; only packed elements, which
have a last stride of 0, have the last term. This module does not find defects.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import prod
from operator import itemgetter
from typing import Annotated, Any, Final

from allocsim.errors import ModelError
from allocsim.judge.plain.ranges import Range, Ranges, meet, merged, without

OWN: Final = -1
UNPLACED: Final = -2
"""`OWN` is the arena of a buffer with its own memory, `UNPLACED` of a buffer without a slot."""

MAX_PIECES: Final = 1 << 22  # the largest number of ranges of one layout

WIDTHS: Final = {
    **dict.fromkeys(("f64", "i64", "u64", "c64"), 64),
    **dict.fromkeys(("f32", "i32", "u32"), 32),
    **dict.fromkeys(("f16", "bf16", "i16", "u16"), 16),
    **dict.fromkeys(("i8", "u8", "bool", "f8_e4m3", "f8_e5m2"), 8),
    **dict.fromkeys(("i4", "u4", "f4"), 4),
    **dict.fromkeys(("i2", "u2"), 2),
    "c128": 128,
}

STRENGTHS: Final = ("exact", "bytes", "whole")  # a kernel's promises for a pair, weakest first
UNSAID: Final[Any] = None  # a field's value until the reader fills in a default that depends on other fields

Pair = tuple[int, int]  # two positions, or two buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaRecord:
    """An address space from which plans take slots."""

    name: Annotated[str, "text"] = ""
    alignment: Annotated[int, "size"] = 1
    capacity: Annotated[int | None, "count?"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferRecord:
    """A number of bytes that a plan places together."""

    name: Annotated[str, "text"] = ""
    nbytes: Annotated[int, "count"]
    alignment: Annotated[int, "size"] = 0
    arena: Annotated[int, "@arenas"] = 0
    role: Annotated[str, "role"] = "temporary"
    read_only: Annotated[bool, "flag"] = False
    nbytes_range: Annotated[Range | None, "2 (count,count)"] = None

    @property
    def persistent(self) -> bool:
        """Whether the buffer's content lasts from run to run."""
        return self.role in {"parameter", "state"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRecord:
    """An array in a buffer."""

    name: Annotated[str, "text"] = ""
    buffer: Annotated[int, "@buffers"]
    dtype: Annotated[str, "dtype"]
    shape: Annotated[tuple[int, ...], "[count]"]
    strides: Annotated[tuple[int, ...], "[number]shape"] = UNSAID
    offset: Annotated[int, "number"] = 0
    bit_offset: Annotated[int, "2 bit"] = 0

    @property
    def width(self) -> int:
        """The number of bits of an element; below 8 bits, the last dimension is packed."""
        return WIDTHS[self.dtype]

    @property
    def nbits(self) -> int:
        """The number of bits of all elements."""
        return prod(self.shape) * self.width

    @property
    def element_0(self) -> int:
        """The first bit of element 0 in the buffer."""
        return 8 * self.offset + self.bit_offset

    @property
    def dims(self) -> list[Range]:
        """The length and the stride in bits of each dimension."""
        strides = [8 * stride for stride in self.strides]
        if self.width < 8:
            strides[-1:] = [self.width] * len(strides[-1:])
        return list(zip(self.shape, strides, strict=True))

    def pieces(self) -> Ranges:
        """Return the bit ranges in row-major order of the elements, with adjacent ranges joined."""
        length, outer = _joined(self.width, self.dims[::-1], int.__eq__)
        return _at_all(self.element_0, length, outer[::-1])

    def in_one_piece(self) -> bool:
        """Return whether `pieces` returns exactly one range."""
        length, outer = _joined(self.width, self.dims[::-1], int.__eq__)
        return length > 0 and not outer

    def bits(self) -> Ranges:
        """Return the bits that the array covers, as ranges."""
        if 0 in self.shape:
            return ()
        lowest = self.element_0 + sum((count - 1) * min(stride, 0) for count, stride in self.dims)
        upward = sorted(((count, abs(stride)) for count, stride in self.dims), key=itemgetter(1))
        return merged(_at_all(lowest, *_joined(self.width, upward, int.__le__)))


def _joined(length: int, dims: list[Range], meets: Callable[[int, int], bool]) -> tuple[int, list[Range]]:
    """Return the bits of a piece, and the dimensions along which it repeats, innermost first."""
    outer: list[Range] = []
    for count, stride in dims:
        if not outer and meets(stride, length):
            length += stride * (count - 1)
        elif count != 1:
            outer.append((count, stride))
    return length, outer


def _at_all(base: int, length: int, dims: list[Range]) -> Ranges:
    """Return a range of `length` bits for each index of the dimensions, in row-major order."""
    if prod(count for count, _ in dims) > MAX_PIECES:
        raise ModelError("", f"a layout of more than {MAX_PIECES} ranges is not supported")
    places = product(*([index * stride for index in range(count)] for count, stride in dims))
    return tuple((base + sum(place), base + sum(place) + length) for place in places if length)


def same_layout(one: ValueRecord, other: ValueRecord) -> bool:
    """Return whether shapes, widths and strides of dimensions longer than 1 agree."""
    pairs = zip(one.shape, one.strides, other.strides, strict=False)
    return (one.shape, one.width) == (other.shape, other.width) and all(n <= 1 or s == t for n, s, t in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRecord:
    """A step of a program that reads all its operands, then writes all its results."""

    name: Annotated[str, "text"] = ""
    kind: Annotated[str, "text"]
    operands: Annotated[tuple[int, ...], "[@values]"] = ()
    results: Annotated[tuple[int, ...], "[@values]"] = ()
    in_place: Annotated[tuple[tuple[Any, ...], ...] | None, "[(@operands,@results,2 strength=exact)]?"] = ()
    stream: Annotated[int, "@streams"] = 0
    after: Annotated[tuple[int, ...], "[count]"] = ()
    same: bool = False
    """Whether the op has the kind `same` and the document has version 2."""


@dataclass(frozen=True, kw_only=True)
class ProgramRecord:
    """A program: buffers, values in the buffers, and ops that read and write values."""

    name: Annotated[str, "text"] = ""
    buffers: Annotated[tuple[BufferRecord, ...], "[buffer]"]
    values: Annotated[tuple[ValueRecord, ...], "[value]"]
    streams: Annotated[tuple[str, ...], "[text]+"] = ("main",)
    ops: Annotated[tuple[OpRecord, ...], "[op]"]
    path: Annotated[str, "2 text"] = ""

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The size of each buffer in bytes."""
        return tuple(buffer.nbytes for buffer in self.buffers)

    @cached_property
    def bits(self) -> tuple[Ranges, ...]:
        """The bits of each value inside its buffer."""
        return tuple(meet(value.bits(), ((0, 8 * self.sizes[value.buffer]),)) for value in self.values)

    @cached_property
    def made_by(self) -> dict[int, int]:
        """For each value that an op produces, this op."""
        return {value: step for step, op in enumerate(self.ops) for value in op.results}

    def buffers_of(self, values: Iterable[int]) -> list[int]:
        """Return the buffer of each value."""
        return [self.values[value].buffer for value in values]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRecord:
    """A planner's beliefs about a program; `start`, `stop`, `nbytes` have an entry per buffer."""

    program: Annotated[int, "@programs"]
    start: Annotated[tuple[int, ...], "[count]buffers"] = UNSAID
    stop: Annotated[tuple[int, ...], "[count]buffers"] = UNSAID
    nbytes: Annotated[tuple[int, ...], "[count]buffers"] = UNSAID
    pinned: Annotated[frozenset[int], "[@buffers]"] = frozenset()
    own: Annotated[frozenset[int], "[@buffers]"] = UNSAID
    fixed: Annotated[dict[int, int], "{number}"] = UNSAID
    order: Annotated[tuple[int, ...], "[@buffers]buffers"] = UNSAID
    may_share: Annotated[tuple[Pair, ...], "[(@buffers,@buffers)]"] = UNSAID
    gaps: Annotated[dict[int, Ranges], "{[(count,count)]}"] = UNSAID
    stated: frozenset[str] = frozenset()
    """The lists that the document states; the other lists hold defaults."""

    def life(self, buffer: int) -> Ranges:
        """Return the steps of a buffer's believed lifetime without its gaps."""
        return without(((self.start[buffer], self.stop[buffer]),), merged(self.gaps.get(buffer, ())))

    def relays(self, donor: int, recipient: int) -> bool:
        """Return whether the donor's last believed step is the recipient's first believed step."""
        return self.stop[donor] - 1 == self.start[recipient]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRecord:
    """The place of a buffer; `arena` is an index, or `OWN`, or `UNPLACED`."""

    arena: Annotated[int, "@arenas"]
    offset: Annotated[int, "number"]
    nbytes: Annotated[int, "count"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """A plan: a slot for each buffer, and the planner's alloc and free events."""

    program: Annotated[int, "@programs"]
    problem: Annotated[int | None, "@problems?"] = None
    source: Annotated[str, "text"] = ""
    slots: Annotated[tuple[SlotRecord, ...], "[slot]buffers"]
    events: Annotated[tuple[tuple[int, str, int], ...], "[(count,done,@buffers)]"] = ()
    """The events (step, `alloc` or `free`, buffer), in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """An execution of a program with the slots of a plan."""

    plan: Annotated[int, "@plans"]
    program: Annotated[int, "@programs"] = -1
    skip: Annotated[tuple[int, ...], "[@ops]"] = ()
    after: Annotated[tuple[int, ...] | None, "2 [count]?"] = None
    """The earlier runs that this run waits for; None for all earlier runs."""
    read_after: Annotated[int | None, "2 count?"] = None


@dataclass(frozen=True, kw_only=True)
class DocumentRecord:
    """The complete input of the plain judge."""

    format: Annotated[str, "format"]
    version: Annotated[int, "version"]
    arenas: Annotated[tuple[ArenaRecord, ...], "[arena]+"] = (ArenaRecord(name="cpu", alignment=32),)
    programs: Annotated[tuple[ProgramRecord, ...], "[program]"] = ()
    problems: Annotated[tuple[ProblemRecord, ...], "[problem]"] = ()
    plans: Annotated[tuple[PlanRecord, ...], "[plan]"] = ()
    session: Annotated[tuple[RunRecord, ...] | None, "[run]"] = None
    runs: tuple[RunRecord, ...] = ()
    """The session's runs over one memory, or else one run of each plan, on fresh memory."""
    kinds: dict[str, dict[Pair, str]] = field(default_factory=dict)
    """The table of kinds: for each kind and (operand, result) a strength, `denied` or `unknown`."""

    @cached_property
    def waits(self) -> tuple[frozenset[int], ...]:
        """For each run, the runs that it waits for, transitively."""
        found: list[frozenset[int]] = []
        for index, run in enumerate(self.runs):
            direct = range(index) if run.after is None else run.after
            found.append(frozenset(direct).union(*(found[earlier] for earlier in direct)))
        return tuple(found)

    @cached_property
    def owners(self) -> list[int]:
        """For each run, the owner run of its non-persistent buffers in the replay apart."""
        found: list[int] = []
        for index, run in enumerate(self.runs):
            earlier = [before for before in self.waits[index] if self.runs[before].program == run.program]
            found.append(found[max(earlier)] if earlier else index)
        return found

    def at_end(self, end: int) -> "DocumentRecord":
        """Return the document with all size ranges at the low (0) or high (1) end."""

        def sized(buffer: BufferRecord) -> BufferRecord:
            return replace(buffer, nbytes=buffer.nbytes_range[end]) if buffer.nbytes_range else buffer

        programs = tuple(replace(one, buffers=tuple(map(sized, one.buffers))) for one in self.programs)
        problems = [p if "nbytes" in p.stated else replace(p, nbytes=programs[p.program].sizes) for p in self.problems]
        return replace(self, programs=programs, problems=tuple(problems))
