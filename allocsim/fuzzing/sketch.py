"""A program under construction that tracks what is written over, with values by register.

Recipes (`program_recipes`) are carried out on a `Sketch`: they add buffers, values and ops, and
pick what they read by register. What can be picked is initialised and current, so that what reads
it is no defect of the program. What a value covers, whether it was lost, and what is written are
kept as in `program_tables`, but by the byte and without a limit: a view of a view of a view has any
rank, and a chain of broadcasts any number of bytes.

What this module does not see: what recipes there are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from allocsim.model import HOST_WRITE, VIEW, Role
from allocsim.model.layout import contiguous_strides, same_layout
from allocsim.programs.builder import Pair, ProgramBuilder

REGISTERS = 8

ITEMSIZES = {"f32": 4, "u8": 1, "f16": 2}
DTYPES = tuple(ITEMSIZES)
SHAPES: tuple[tuple[int, ...], ...] = ((2,), (2, 2), (), (1,), (4,), (1, 2), (2, 3), (0,), (3,), (2, 0))
ALIGNMENTS = (None, 4, 1, 16)


@dataclass(slots=True, eq=False)
class SketchedValue:
    """A value as the sketch remembers it."""

    index: int
    buffer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    covers: int
    """Bytes of the buffer it touches, as bits, outside ones left out."""
    made: bool
    """Whether an op other than `view` produced it."""
    lost: bool = False
    """Whether another op wrote over it since."""

    @property
    def nbytes(self) -> int:
        """Bytes of its elements; it covers fewer where they share some or lie outside."""
        return prod(self.shape) * ITEMSIZES[self.dtype]

    def alike(self, other: "SketchedValue") -> bool:
        """Return whether two layouts are equal but for the offset."""
        items, its = ITEMSIZES[self.dtype], ITEMSIZES[other.dtype]
        return same_layout((self.shape, self.strides, items), (other.shape, other.strides, its))


class Choices:
    """A sequence of choices in one number: a draw is its remainder, the rest is for the next.

    So each choice is drawn for itself, and of 0 each is the first way.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def draw(self, bound: int) -> int:
        """Return the next choice, at least 0 and below `bound`; 0 where no number is left."""
        self.number, found = divmod(self.number, bound)
        return found


@dataclass(kw_only=True)
class Sketch:
    """A program under construction, with the bytes of it that are written."""

    builder: ProgramBuilder
    arenas: int = 1
    streams: int = 1
    rows: list[SketchedValue] = field(default_factory=list)
    registers: dict[int, SketchedValue] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    """The bytes of each buffer that are written, as bits."""
    names: dict[str, int] = field(default_factory=dict)
    """Persistent buffers by name."""
    ops: int = 0
    choices: Choices = field(default_factory=Choices)
    """Of the recipe that is carried out: how many operands, arenas, alignments, streams, waits."""

    def buffer(self, nbytes: int, *, name: str | None = None, **keywords: Any) -> int:
        """Add a buffer; its arena and alignment are drawn where they are not given."""
        if "arena" not in keywords:
            arena, at = self.choices.draw(self.arenas), self.choices.draw(len(ALIGNMENTS))
            keywords |= {"arena": arena, "alignment": ALIGNMENTS[at]}
        self.sizes.append(nbytes)
        self.written.append(0)
        return self.builder.buffer(name or f"b{len(self.sizes) - 1}", nbytes, **keywords)

    def value(
        self,
        buffer: int,
        dtype: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        *,
        offset: int = 0,
        made: bool = True,
    ) -> SketchedValue:
        """Add a value; the caller adds the op that makes it."""
        if strides is None:
            strides = contiguous_strides(shape, ITEMSIZES[dtype])
        index = self.builder.value(f"v{len(self.rows)}", buffer, dtype, shape, strides=strides, offset=offset)
        covers = covered(shape, strides, offset, ITEMSIZES[dtype]) & (1 << self.sizes[buffer]) - 1
        self.rows.append(SketchedValue(index, buffer, dtype, shape, strides, offset, covers, made))
        return self.rows[-1]

    def over(self, target: SketchedValue) -> SketchedValue:
        """Add a value exactly over another one."""
        return self.value(target.buffer, target.dtype, target.shape, target.strides, offset=target.offset)

    def fresh(self, dtype: str, shape: tuple[int, ...], **buffer: Any) -> SketchedValue:
        """Add a contiguous value in a new buffer that fits it."""
        return self.value(self.buffer(ITEMSIZES[dtype] * prod(shape), **buffer), dtype, shape)

    def like(self, operand: SketchedValue) -> SketchedValue:
        """Add a contiguous value of equal dtype and shape in a new buffer."""
        return self.fresh(operand.dtype, operand.shape)

    def op(
        self,
        kind: str,
        operands: Sequence[SketchedValue],
        results: Sequence[SketchedValue],
        in_place: Iterable[Pair] | None = (),
    ) -> None:
        """Add an op and write its results; its stream is drawn, and whether it waits."""
        stream = self.choices.draw(self.streams)
        waits = self.streams > 1 and self.choices.draw(3) > 0
        after = range(max(self.ops - 1, 0), self.ops) if waits else ()
        self.builder.op(
            kind, [r.index for r in operands], [r.index for r in results], in_place=in_place, stream=stream, after=after
        )
        self.ops += 1
        for result in results if kind != VIEW else ():
            for row in self.rows:
                if row.buffer == result.buffer and row.covers & result.covers:
                    row.lost = True
            result.lost = False
            self.written[result.buffer] |= result.covers

    def given(self, dtype: str, shape: tuple[int, ...]) -> SketchedValue:
        """Add an input that the host writes."""
        row = self.fresh(dtype, shape, role=Role.INPUT)
        self.op(HOST_WRITE, (), (row,))
        return row

    def readable(self, row: SketchedValue) -> bool:
        """Return whether a value can be read without a defect: its bytes are written, and by no
        other op since its own.
        """
        return not row.lost if row.made else row.covers & ~self.written[row.buffer] == 0

    def pick(self, *choices: int) -> list[SketchedValue]:
        """Return a readable value for each register, or that of the next register with one; without
        any, make an input.
        """
        kept = {place: row for place, row in self.registers.items() if self.readable(row)}
        if not kept:
            kept[0] = self.registers[0] = self.given(DTYPES[0], SHAPES[0])
        return [kept[min(kept, key=lambda place: (place - choice) % REGISTERS)] for choice in choices]


def covered(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, itemsize: int) -> int:
    """Return the bytes that a layout covers from byte 0 on, as bits."""
    mask, low = (1 << itemsize) - 1, offset
    for length, stride in zip(shape, strides, strict=True):
        low += min(stride * (length - 1), 0)
        mask, element = 0, mask
        for number in range(length):
            mask |= element << abs(stride) * number
    return mask << low if low >= 0 else mask >> -low
