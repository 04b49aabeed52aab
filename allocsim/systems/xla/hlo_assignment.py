"""Reads XLA's `buffer-assignment.txt`, which has the allocation and offset of each value.

    allocation 3: size 65536, parameter 5, shape |f32[256,64]| at ShapeIndex {}, maybe-live-out:
     value: <994 ynn_fusion.27 @0> (size=16384,offset=0): f32[2,4,32,16]{3,2,1,0}

Each allocation is a separate arena with XLA's name, so offsets are XLA's offsets. If an allocation
has values of several colours (memory spaces), each colour is a separate arena. The key of a value
is its instruction and its index in the instruction's shape.

Source: XLA `buffer_assignment.cc`, `BufferAllocation::ToString`, `HloValue::ToShortString`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from allocsim.errors import DocumentError
from allocsim.model import Arena
from allocsim.model.layout import LIMIT
from allocsim.systems.xla.hlo_text import Index

ALIGNMENT: Final = 64
"""The alignment in bytes of values in an allocation of XLA's CPU backend (`Align` in
`xla/backends/cpu/alignment.h`). The GPU backend uses multiples of this alignment."""

_ALLOCATION: Final = re.compile(r"allocation (\d{1,9}): size (\d{1,19})(.*?):?$")
_VALUE: Final = re.compile(
    r"\s+value: <\d+ ([\w.\-]+)(?:\{([\d,]*)\})?( \(phi\))? @(\d{1,9})> \(size=(\d{1,19}),offset=(\d{1,19})\)"
)


@dataclass(frozen=True, slots=True)
class Assigned:
    """The arena, offset and size in bytes of a value, and whether it is a phi or a constant."""

    arena: int
    offset: int
    nbytes: int
    phi: bool
    constant: bool


@dataclass(frozen=True, slots=True)
class Assignment:
    """The arenas of a module, and its values by (instruction, index)."""

    arenas: tuple[Arena, ...]
    values: Mapping[tuple[str, Index], Assigned]


@dataclass(frozen=True, slots=True)
class ListedValue:
    """A value in the list of an assignment. Size, and offset in its allocation, are in bytes."""

    key: tuple[str, Index]
    colour: int
    offset: int
    nbytes: int
    phi: bool
    place: str = ""
    """The line of the list, for error messages."""


@dataclass(frozen=True, slots=True)
class ListedAllocation:
    """An allocation in the list of an assignment."""

    number: int
    size: int
    constant: bool
    values: Sequence[ListedValue]
    place: str = ""


def parse_assignment(text: str, source: str) -> Assignment:
    """Return the arenas and values in an assignment's text.

    Raises DocumentError, which names the line and the rule. O(text).
    """
    if not text.startswith("BufferAssignment:"):
        raise DocumentError(source, "line 1", "does not begin with BufferAssignment:")
    rows: list[ListedAllocation] = []
    values: list[ListedValue] = []
    inside = False
    for number, line in enumerate(text.split("\n")[1:], 2):
        allocation = _ALLOCATION.match(line)
        if allocation is not None:
            values, inside = [], True
            constant = "constant" in allocation[3]
            rows.append(ListedAllocation(int(allocation[1]), int(allocation[2]), constant, values, f"line {number}"))
            continue
        if not line.startswith(" value:"):
            if inside and line.strip():
                inside = False
            continue
        value = _VALUE.match(line)
        if value is None or not inside:
            raise DocumentError(source, f"line {number}", f"{line.strip()[:60]!r} is not a value of an allocation")
        key = value[1], tuple(int(k) for k in (value[2] or "").split(",") if k)
        colour, nbytes, offset = int(value[4]), int(value[5]), int(value[6])
        values.append(ListedValue(key, colour, offset, nbytes, value[3] is not None, f"line {number}"))
    return assigned(rows, source)


def assigned(rows: Sequence[ListedAllocation], source: str) -> Assignment:
    """Return the arenas and values of listed allocations; each colour of an allocation is an arena.

    Raises DocumentError with the place at which the list contradicts itself. O(values).
    """
    found: dict[tuple[str, Index], Assigned] = {}
    arenas: list[Arena] = []
    numbers: dict[tuple[int, int], int] = {}
    seen: set[int] = set()
    for row in rows:
        if row.number in seen:
            raise DocumentError(source, row.place, f"allocation {row.number} is listed twice")
        seen.add(row.number)
        for value in row.values:
            name = value.key[0][:60]
            if value.offset + value.nbytes > row.size:
                rule = f"{name} ends at byte {value.offset + value.nbytes}; its allocation has {row.size} bytes"
                raise DocumentError(source, value.place, rule)
            if row.size > LIMIT:
                raise DocumentError(source, value.place, "the allocation exceeds 2^62 bytes")
            place = row.number, value.colour
            numbers.setdefault(place, len(numbers))
            if numbers[place] == len(arenas):
                arenas.append(Arena(name=_named(*place), alignment=ALIGNMENT, capacity=row.size))
            if value.key in found:
                index = ",".join(map(str, value.key[1]))
                raise DocumentError(source, value.place, f"value {name}{{{index}}} is listed twice")
            found[value.key] = Assigned(numbers[place], value.offset, value.nbytes, value.phi, row.constant)
    if not found:
        raise DocumentError(source, "", "no plan here: the assignment has no values")
    return Assignment(tuple(arenas), found)


def _named(allocation: int, colour: int) -> str:
    """Return XLA's name of an arena; colour 0, the default memory, is not in the name."""
    return f"allocation {allocation}" + (f" of colour {colour}" if colour else "")


def in_common_arenas(assignments: Sequence[Assignment]) -> tuple[Assignment, ...]:
    """Return the assignments of several modules with common arenas. Arenas with the same name
    become one arena with the largest capacity of these arenas. O(values).
    """
    sizes: dict[str, int] = {}
    for row in assignments:
        for arena in row.arenas:
            sizes[arena.name] = max(sizes.get(arena.name, 0), arena.capacity or 0)
    arenas = tuple(Arena(name=name, alignment=ALIGNMENT, capacity=size) for name, size in sizes.items())
    place = {name: number for number, name in enumerate(sizes)}
    return tuple(
        Assignment(
            arenas,
            {key: replace(one, arena=place[row.arenas[one.arena].name]) for key, one in row.values.items()},
        )
        for row in assignments
    )


__all__ = [
    "ALIGNMENT",
    "Assigned",
    "Assignment",
    "ListedAllocation",
    "ListedValue",
    "assigned",
    "in_common_arenas",
    "parse_assignment",
]
