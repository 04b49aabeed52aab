"""Find the features of document version 2 that version 1 does not have. A reader of version 1
refuses these features, and a writer searches for them to choose the version.

A document of version 1 is read by the rules of version 1. A key added in version 2 is an unknown
key there, even with its default value. A document is written as version 2 only if a feature needs
version 2, so that files of version 1 stay version 1.

This module does not interpret the features.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from msgspec import UNSET

from allocsim.document import rows
from allocsim.errors import ModelError
from allocsim.model import NEWEST, SAME, Document, Program
from allocsim.model.wellformed import NEEDS_VERSION_2, newer

_NEW_DTYPES: Final = frozenset(("c64", "c128", "f8_e4m3", "f8_e5m2", "i4", "u4", "i2", "u2", "f4"))


_ABSENT: Final = frozenset((UNSET,))
_RANGE, _BIT_OFFSET, _DTYPE = map(attrgetter, ("nbytes_range", "bit_offset", "dtype"))


def refuse_newer(row: rows.DocumentRow) -> None:
    """Raise ModelError, with the place, if a version 1 document has a feature of version 2.

    O(size).
    """
    place = next(_newer(row), None) if row.version == 1 else None
    if place is not None:
        raise ModelError(place, NEEDS_VERSION_2)


def meaning_of(row: rows.DocumentRow) -> int:
    """Return the version of the rules for reading the programs. The version is 1 only if a document
    of version 1 has an op of kind `same`, because `same` has a meaning only in version 2.

    Everything else has the same meaning in both versions. So a program from a version 1 file can be
    joined with other programs, and features of version 2 may be added to the program.
    """
    if row.version == 1 and any(SAME in {op.kind for op in program.ops} for program in row.programs):
        return 1
    return NEWEST


def version_of(document: Document) -> int:
    """Return the lowest version that has all features of a document. O(size)."""
    runs = document.session or ()
    late = any(run.after is not None or run.read_after is not None for run in runs)
    return 2 if late or any(map(_needs_2, document.programs)) else 1


def _needs_2(program: Program) -> bool:
    found = newer(program.path, program.buffers, program.values, program.ops)
    return found is not None or bool(program.same_ops.any())


def _newer(row: rows.DocumentRow) -> Iterator[str]:
    for index, program in enumerate(row.programs):
        yield from (f"programs[{index}].{place}" for place in _newer_in(program))
    for index, run in enumerate(row.session or ()):
        for name in ("after", "read_after"):
            if getattr(run, name) is not UNSET:
                yield f"session[{index}].{name}"


def _newer_in(program: rows.ProgramRow) -> Iterator[str]:
    """Yield the first place of each feature of version 2 in a program.

    A table is searched for the place only if the table has the feature.
    """
    if program.path is not UNSET:
        yield "path"
    if not set(map(_RANGE, program.buffers)) <= _ABSENT:
        yield f"buffers[{_first(buffer.nbytes_range is not UNSET for buffer in program.buffers)}].nbytes_range"
    if not set(map(_BIT_OFFSET, program.values)) <= _ABSENT:
        yield f"values[{_first(value.bit_offset is not UNSET for value in program.values)}].bit_offset"
    if not _NEW_DTYPES.isdisjoint(map(_DTYPE, program.values)):
        yield f"values[{_first(value.dtype in _NEW_DTYPES for value in program.values)}].dtype"
    if not {pair.strength for op in program.ops if op.in_place for pair in op.in_place} <= _ABSENT:
        pairs = ((op, at, pair) for op, row in enumerate(program.ops) for at, pair in enumerate(row.in_place or ()))
        yield next(f"ops[{op}].in_place[{at}][2]" for op, at, pair in pairs if pair.strength is not UNSET)


def _first(found: Iterator[bool]) -> int:
    return next(index for index, one in enumerate(found) if one)
