"""XLA's `buffer-assignment.txt`: which value lies where, by colour.

    allocation 3: size 65536, parameter 5, shape |f32[256,64]| at ShapeIndex {}, maybe-live-out:
     value: <994 ynn_fusion.27 @0> (size=16384,offset=0): f32[2,4,32,16]{3,2,1,0}

An allocation is memory of its own. Those of one colour (memory space) are laid one after another
here, each at a multiple of 64 bytes, as one arena: offsets in it are the allocation's base and the
value's offset. A value is named by its instruction and its index in the instruction's shape.

Source: XLA `buffer_assignment.cc`, `BufferAllocation::ToString`, `HloValue::ToShortString`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from allocsim.errors import DocumentError
from allocsim.formats.hlo_text import Index
from allocsim.model import Arena
from allocsim.model.layout import LIMIT

ALIGNMENT: Final = 64
"""Of allocations; XLA's CPU and GPU backends promise at least 16 and 128 inside one."""

_ALLOCATION: Final = re.compile(r"allocation (\d{1,9}): size (\d{1,19})(.*?):?$")
_VALUE: Final = re.compile(
    r"\s+value: <\d+ ([\w.\-]+)(?:\{([\d,]*)\})?( \(phi\))? @(\d{1,9})> \(size=(\d{1,19}),offset=(\d{1,19})\)"
)


@dataclass(frozen=True, slots=True)
class Assigned:
    """Where a value lies."""

    arena: int
    offset: int
    nbytes: int
    phi: bool
    constant: bool


@dataclass(frozen=True, slots=True)
class Assignment:
    """The values of a module by instruction and index, and their arenas."""

    arenas: tuple[Arena, ...]
    values: Mapping[tuple[str, Index], Assigned]


def parse_assignment(text: str, source: str) -> Assignment:
    """Return the values of an assignment. Raises DocumentError with line and rule. O(text)."""
    if not text.startswith("BufferAssignment:"):
        raise DocumentError(source, "line 1", "is no BufferAssignment")
    found: dict[tuple[str, Index], Assigned] = {}
    ends: dict[int, int] = {}
    colours: dict[int, int] = {}
    seen: set[str] = set()
    base: dict[int, int] = {}
    size, constant, inside = 0, False, False
    for number, line in enumerate(text.split("\n")[1:], 2):

        def refuse(rule: str, number: int = number) -> DocumentError:
            return DocumentError(source, f"line {number}", rule)

        allocation = _ALLOCATION.match(line)
        if allocation is not None:
            if allocation[1] in seen:
                raise refuse(f"allocation {allocation[1]} is there twice")
            seen.add(allocation[1])
            size, constant, inside = int(allocation[2]), "constant" in allocation[3], True
            base = {}
            continue
        if not line.startswith(" value:"):
            if inside and line.strip():
                inside = False
            continue
        value = _VALUE.match(line)
        if value is None or not inside:
            raise refuse(f"{line.strip()[:60]!r} is no value of an allocation")
        colour, nbytes, offset = int(value[4]), int(value[5]), int(value[6])
        if offset + nbytes > size:
            raise refuse(f"{value[1][:60]} ends at byte {offset + nbytes} of an allocation of {size}")
        arena = colours.setdefault(colour, len(colours))
        if arena not in base:
            base[arena] = ends.get(arena, 0)
            ends[arena] = base[arena] + -(-size // ALIGNMENT) * ALIGNMENT
            if ends[arena] > LIMIT:
                raise refuse("the allocations exceed 2^62 bytes")
        key = value[1], tuple(int(k) for k in (value[2] or "").split(",") if k)
        if key in found:
            raise refuse(f"{value[1][:60]}{value[2] or ''} is there twice")
        found[key] = Assigned(arena, base[arena] + offset, nbytes, value[3] is not None, constant)
    if not found:
        raise DocumentError(source, "", "no plan here: the assignment has no values")
    arenas = [Arena(name=f"colour {colour}", alignment=1, capacity=ends[arena]) for colour, arena in colours.items()]
    return Assignment(tuple(arenas), found)


__all__ = ["ALIGNMENT", "Assigned", "Assignment", "parse_assignment"]
