"""Parses HLO text: the computations of a module, their instructions, shapes and layouts.

    module = parse_module(text, "after_optimizations.txt")
    for instruction in module.instructions("main"):
        print(instruction.name, instruction.opcode, instruction.operands)

A computation is parsed on demand, because most computations of a module are fused computations that
no caller needs. A shape maps XLA's index of each leaf to the leaf: `()` is the whole shape, and
`(1, 0)` is the first part of the second part of a tuple. A layout gives the order of the strides.
An array with a tiled layout is read as bytes; its size comes from the assignment.

Source: XLA's `HloModule::ToString` and `docs/shapes.md`. Operands may have shapes in the text.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol

from allocsim.errors import DocumentError

MAX_LEAVES: Final = 1 << 16
"""The most leaves that a shape may have."""

DTYPES: Final = {
    "pred": "bool", "s2": "i2", "s4": "i4", "s8": "i8", "s16": "i16", "s32": "i32", "s64": "i64", "u2": "u2",
    "u4": "u4", "u8": "u8", "u16": "u16", "u32": "u32", "u64": "u64", "f16": "f16", "bf16": "bf16", "f32": "f32",
    "f64": "f64", "c64": "c64", "c128": "c128", "f8e5m2": "f8_e5m2", "f8e4m3": "f8_e4m3", "f8e4m3fn": "f8_e4m3",
    "f4e2m1fn": "f4",
}  # fmt: skip
"""XLA's element type -> dtype; an array of any other element type is read as bytes."""

Index = tuple[int, ...]
"""XLA's index of a leaf in a shape."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """An array, or the pointer table of a tuple (`dims` is None)."""

    kind: str
    dims: tuple[int, ...] | None
    minor_to_major: tuple[int, ...] = ()
    tiled: bool = False


Shape = Mapping[Index, Leaf]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a computation."""

    name: str
    opcode: str
    shape: Shape
    operands: tuple[str, ...]
    attributes: str
    argument: str
    """The text in the parentheses of a parameter (its number) or of a constant (its value, if
    short). A module read from a proto has only the numbers of parameters."""
    root: bool

    def called(self, attribute: str) -> tuple[str, ...]:
        """Return the names of computations in an attribute."""
        found = re.search(rf"\b{attribute}=(\{{[^}}]*\}}|%?[\w.\-]+)", self.attributes)
        return tuple(re.findall(r"[\w.\-]+", found[1])) if found else ()

    def number(self, attribute: str) -> int | None:
        """Return the integer value of an attribute, or None if it is missing."""
        found = re.search(rf"\b{attribute}=(\d{{1,9}})\b", self.attributes)
        return int(found[1]) if found else None


WITH_ARGUMENT: Final = ("parameter", "constant")

NUMBER: Final = 20
"""Arguments with more characters are not kept: a number fits, but a constant array does not."""

_HEADER: Final = re.compile(r"(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .* )?\{")
_LINE: Final = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = ")
_OPCODE: Final = re.compile(r"\s*([\w\-]+)\(")
_NAME: Final = re.compile(r"%([\w.\-]+)")
_GAP: Final = re.compile(r"(?:\s|/\*[^*]*\*/)*")
_BRACKET: Final = re.compile(r"[()]")
_ARRAY: Final = re.compile(r"([a-z]\w*)\[([\d,<=?]*)\](?:\{([^}]*)\})?")


class ReadableModule(Protocol):
    """The interface of a module that was read from text or from a proto."""

    source: str
    name: str
    entry: str
    scheduled: bool
    donated: frozenset[int]
    ranks: int

    @property
    def asynchronous(self) -> bool:
        """Whether the module has an asynchronous op (`*-start`)."""

    def instructions(self, computation: str) -> tuple[Instruction, ...]:
        """Return the instructions of a computation, in order."""


@dataclass
class HloModule:
    """A module read from text; the text is stored by computation."""

    source: str
    name: str
    entry: str
    scheduled: bool
    donated: frozenset[int]
    """The numbers of the donated parameters; an output may reuse their memory."""
    ranks: int
    """The number of partitions; 0 if it is not stated or the module has several replicas."""
    lines: Mapping[str, tuple[int, tuple[str, ...]]]
    """Computation -> (number of its first line, its lines)."""
    _read: dict[str, tuple[Instruction, ...]] = field(default_factory=dict)
    """Computation -> its instructions; a cache, because each turn of a loop reads them again."""

    @property
    def asynchronous(self) -> bool:
        """Whether the module has an asynchronous op (`*-start`)."""
        return any("-start(" in line for _, rows in self.lines.values() for line in rows)

    def instructions(self, computation: str) -> tuple[Instruction, ...]:
        """Return the instructions of a computation, in order.

        Raises DocumentError for an unknown computation and a line that is not an instruction.
        """
        if computation not in self.lines:
            raise DocumentError(self.source, f"computation {computation[:80]!r}", "does not exist")
        if computation not in self._read:
            first, lines = self.lines[computation]
            rows = (self._instruction(first + place, line) for place, line in enumerate(lines) if line.strip())
            self._read[computation] = tuple(rows)
        return self._read[computation]

    def _instruction(self, number: int, line: str) -> Instruction:
        begin = _LINE.match(line)
        place = f"line {number + 1}"
        if begin is None:
            raise DocumentError(self.source, place, f"{line.strip()[:60]!r} is not an instruction")
        try:
            shape, at = parse_shape(line, begin.end())
        except (ValueError, RecursionError) as error:
            raise DocumentError(self.source, place, f"the shape cannot be read: {error}") from None
        opcode = _OPCODE.match(line, at)
        if opcode is None:
            raise DocumentError(
                self.source, place, f"{line[at : at + 40]!r} does not begin with an op and its operands"
            )
        end = _closing(line, opcode.end())
        argument = line[opcode.end() : end]
        plain = opcode[1] in ("constant", "parameter")
        return Instruction(
            begin[2],
            opcode[1],
            shape,
            () if plain else tuple(_operands(argument)),
            line[end + 1 :],
            argument if opcode[1] in WITH_ARGUMENT and len(argument) <= NUMBER else "",
            begin[1] is not None,
        )


def _operands(argument: str) -> Iterator[str]:
    """Yield the names of operands; in the text, a shape and a `%` may precede a name."""
    if "%" in argument:
        yield from _NAME.findall(argument)
        return
    for part in argument.split(","):
        words = part.split()
        if words and re.fullmatch(r"[A-Za-z_][\w.\-]*", words[-1]):
            yield words[-1]


def _closing(line: str, at: int) -> int:
    """Return the place of the `)` for the `(` just before `at`, or the line's end without a `)`."""
    depth = 1
    for found in _BRACKET.finditer(line, at):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.start()
    return len(line)


def parse_shape(text: str, at: int = 0) -> tuple[dict[Index, Leaf], int]:
    """Return the shape that begins at character `at`, and the position after its end.

    Raises ValueError with the rule that the text breaks.
    """
    found: dict[Index, Leaf] = {}

    def skip(at: int) -> int:
        gap = _GAP.match(text, at)
        return gap.end() if gap else at

    def read(at: int, index: Index) -> int:
        if len(found) >= MAX_LEAVES or len(index) > 32:
            raise ValueError("the shape has too many parts, or is too deep")
        at = skip(at)
        if text[at : at + 1] != "(":
            array = _ARRAY.match(text, at)
            if array is None:
                raise ValueError(f"{text[at : at + 20]!r} is not the type of an array")
            found[index] = _leaf(*array.groups())
            return array.end()
        found[index] = Leaf("tuple", None)
        at, place = skip(at + 1), 0
        while text[at : at + 1] != ")":
            at = skip(read(at, (*index, place)))
            place += 1
            if text[at : at + 1] == ",":
                at = skip(at + 1)
            elif text[at : at + 1] != ")":
                raise ValueError("a tuple is not closed")
        return at + 1

    return found, read(at, ())


@lru_cache(maxsize=1 << 12)
def _leaf(dtype: str, lengths: str, layout: str | None) -> Leaf:
    """Return the leaf of an array from its text. Results are cached, because shapes repeat."""
    dims = []
    for text in lengths.split(",") if lengths else ():
        digits = text.removeprefix("<=")
        if not re.fullmatch(r"\d{1,18}", digits):
            raise ValueError(f"{text[:20]!r} is not the length of a dimension")
        dims.append(int(digits))
    minor, _, tiles = (layout or "").partition(":")
    order = tuple(int(word) for word in minor.split(",") if re.fullmatch(r"\d{1,3}", word))
    if sorted(order) != list(range(len(dims))):
        order = tuple(reversed(range(len(dims))))
    return Leaf(dtype, tuple(dims), order, "T(" in tiles)


def parse_module(text: str, source: str) -> HloModule:
    """Return the computations of a module's text.

    Raises DocumentError if there is no entry computation. O(text).
    """
    lines = text.split("\n")
    header = re.match(r"HloModule ([\w.\-]+)", lines[0])
    if header is None:
        raise DocumentError(source, "line 1", "does not begin with HloModule and a name")
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    entry, begin, name = "", -1, ""
    for number, line in enumerate(lines):
        if begin < 0:
            begins = _HEADER.match(line) if line.endswith("{") else None
            if begins is not None:
                begin, name = number + 1, begins[2]
                entry = name if begins[1] else entry
        elif line.startswith("}"):
            if name in found:
                raise DocumentError(source, f"line {begin}", f"computation {name[:80]!r} is defined twice")
            found[name] = begin, tuple(lines[begin:number])
            begin = -1
    if begin >= 0:
        raise DocumentError(source, f"line {begin}", f"computation {name[:80]!r} has no end")
    if not entry:
        raise DocumentError(source, "", "has no ENTRY computation")
    aliases = re.search(r"input_output_alias=\{(.*?)\}, [a-z_]+=", lines[0])
    donated = frozenset(int(k) for k in re.findall(r"\}: \((\d{1,9}),", aliases[1] if aliases else ""))
    told = dict(re.findall(r"\b(num_partitions|replica_count)=(\d{1,6})\b", lines[0]))
    ranks = int(told.get("num_partitions", 0)) if int(told.get("replica_count", 1)) == 1 else 0
    return HloModule(source, header[1], entry, "is_scheduled=true" in lines[0], donated, ranks, found)


__all__ = [
    "DTYPES",
    "HloModule",
    "Index",
    "Instruction",
    "Leaf",
    "ReadableModule",
    "Shape",
    "parse_module",
    "parse_shape",
]
