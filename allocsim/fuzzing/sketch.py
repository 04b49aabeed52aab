"""A program under construction that tracks the last writer of each byte, with values by register.

Recipes (`program_recipes`) are carried out on a `Sketch`: they add buffers, values and ops, and
pick what they read by register. What can be picked is initialised and current, so that what reads
it is no defect of the program. Buffers are at most a few dozen bytes.

What this module does not see: what recipes there are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from allocsim.model import HOST_WRITE, VIEW, Role, Value
from allocsim.model.layout import contiguous_strides
from allocsim.programs.builder import Pair, ProgramBuilder

REGISTERS = 8

DTYPES = (("f32", 4), ("u8", 1), ("f16", 2))
SHAPES: tuple[tuple[int, ...], ...] = ((2,), (2, 2), (), (1,), (4,), (1, 2), (2, 3), (0,), (3,), (2, 0))
ALIGNMENTS = (None, 4, 1, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchedValue(Value):
    """A value as the sketch remembers it."""

    made: bool
    """Whether an op other than `view` produced it."""
    places: frozenset[int]
    """Bytes of the buffer it touches, outside ones left out."""

    def layout(self) -> dict[str, Any]:
        """Return what a value of equal layout is built from."""
        return {"dtype": self.dtype, "shape": self.shape, "strides": self.strides, "offset": self.offset}


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
    """A program under construction, with who wrote each byte of it last."""

    builder: ProgramBuilder
    arenas: int = 1
    streams: int = 1
    rows: list[SketchedValue] = field(default_factory=list)
    registers: dict[int, SketchedValue] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    writer: dict[tuple[int, int], int] = field(default_factory=dict)
    """(buffer, byte) -> value that wrote it last, -1 for content."""
    names: dict[str, int] = field(default_factory=dict)
    """Persistent buffers by name."""
    kinds: list[str] = field(default_factory=list)
    choices: Choices = field(default_factory=Choices)
    """Of the recipe that is carried out: how many operands, arenas, alignments, streams, waits."""

    def buffer(self, nbytes: int, *, name: str | None = None, **keywords: Any) -> int:
        """Add a buffer; its arena and alignment are drawn where they are not given."""
        if "arena" not in keywords:
            keywords["arena"] = self.choices.draw(self.arenas)
        if "alignment" not in keywords:
            keywords["alignment"] = ALIGNMENTS[self.choices.draw(len(ALIGNMENTS))]
        self.sizes.append(nbytes)
        return self.builder.buffer(name or f"b{len(self.sizes) - 1}", nbytes, **keywords)

    def value(
        self,
        buffer: int,
        dtype: str,
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
        *,
        offset: int = 0,
        made: bool = True,
    ) -> SketchedValue:
        """Add a value; the caller adds the op that makes it."""
        itemsize = dict(DTYPES)[dtype]
        steps = tuple(strides) if strides is not None else contiguous_strides(tuple(shape), itemsize)
        elements = (
            offset + sum(i * s for i, s in zip(index, steps, strict=True))
            for index in product(*(range(n) for n in shape))
        )
        name = f"v{len(self.rows)}"
        row = SketchedValue(
            index=self.builder.value(name, buffer, dtype, shape, strides=steps, offset=offset),
            name=name,
            buffer=buffer,
            dtype=dtype,
            itemsize=itemsize,
            shape=tuple(shape),
            strides=steps,
            offset=offset,
            width=8 * itemsize,
            bit_offset=0,
            made=made,
            places=frozenset(
                byte for start in elements for byte in range(start, start + itemsize) if 0 <= byte < self.sizes[buffer]
            ),
        )
        self.rows.append(row)
        return row

    def fresh(self, dtype: str, shape: Sequence[int], **buffer: Any) -> SketchedValue:
        """Add a contiguous value in a new buffer that fits it."""
        nbytes = dict(DTYPES)[dtype] * prod(shape)
        return self.value(self.buffer(nbytes, **buffer), dtype, shape)

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
        after = range(max(len(self.kinds) - 1, 0), len(self.kinds)) if waits else ()
        self.builder.op(
            kind, [r.index for r in operands], [r.index for r in results], in_place=in_place, stream=stream, after=after
        )
        self.kinds.append(kind)
        if kind != VIEW:
            self.writer.update({(row.buffer, byte): row.index for row in results for byte in row.places})

    def given(self, dtype: str, shape: Sequence[int]) -> SketchedValue:
        """Add an input that the host writes."""
        row = self.fresh(dtype, shape, role=Role.INPUT)
        self.op(HOST_WRITE, (), (row,))
        return row

    def readable(self, row: SketchedValue) -> bool:
        """Return whether a value can be read without a defect: its bytes are written, and by no
        other op since its own.
        """
        found = [self.writer.get((row.buffer, byte)) for byte in row.places]
        return all(writer == row.index for writer in found) if row.made else None not in found

    def pick(self, *choices: int) -> list[SketchedValue]:
        """Return a readable value for each register, the next one's where it holds none.

        Makes an input where no register does.
        """
        kept = {place: row for place, row in self.registers.items() if self.readable(row)}
        if not kept:
            kept[0] = self.registers[0] = self.given(DTYPES[0][0], SHAPES[0])
        return [kept[min(kept, key=lambda place: (place - choice) % REGISTERS)] for choice in choices]


def clear_of(results: Sequence[SketchedValue], operands: Iterable[SketchedValue]) -> list[SketchedValue]:
    """Return the operands that share no byte with the results or coincide with them exactly."""
    return [
        operand
        for operand in operands
        if all(
            operand.buffer != result.buffer
            or not operand.places & result.places
            or (operand.offset == result.offset and operand.same_layout(result))
            for result in results
        )
    ]


def equal_pairs(operands: Sequence[SketchedValue], results: Sequence[SketchedValue]) -> list[tuple[int, int]]:
    """Return every (operand position, result position) of equal layout."""
    return [
        (o, r) for o, operand in enumerate(operands) for r, result in enumerate(results) if operand.same_layout(result)
    ]
