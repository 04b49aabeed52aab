"""Read tables, vectors and texts of flatbuffers, with each bound checked before the read.

    root = open_buffer(data, source, place="program")
    for plan in root.tables(1, "execution_plan"):
        print(plan.text(0, "name"), plan.numbers(8, "sizes", "<i8"))

A schema is a table of slots. The caller passes the slot, the type, and the field name for error
messages. Before memory is allocated, every offset is compared with the file's end, and every vector
with a budget. A file may refer to one stored vector many times, so the total number of bytes read
is bounded too. A damaged file raises one `DocumentError` with the path of the field.

The package `flatbuffers` is not used, because it reads without checks (its verifier exists only in
C++). With that package, a damaged file causes `struct.error`, a negative index or a vector of 2^32
entries. The package also needs generated classes for each schema.

The layout is described in flatbuffers' page "Internals". Numbers are little endian. A table begins
with the signed distance to its vtable. A vtable has its own size, the table's size and a u16 for
each slot, which is 0 if the field is omitted. A field refers to a vector, text or table by an
unsigned distance from the field itself.

This module does not examine whether a slot has the type that the caller names.
"""

import struct
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from allocsim.errors import DocumentError

TIMES_READ: Final = 8
"""How often, on average, each byte of a file may be read; a shared vector counts for each read."""

SCALARS: Final = {
    "bool": struct.Struct("<?"), "i8": struct.Struct("<b"), "u8": struct.Struct("<B"), "i32": struct.Struct("<i"),
    "u32": struct.Struct("<I"), "i64": struct.Struct("<q"), "u64": struct.Struct("<Q"), "f64": struct.Struct("<d"),
}  # fmt: skip
"""For each type name, the storage format of a scalar field."""

_U16: Final = struct.Struct("<H")
_U32: Final = SCALARS["u32"]
_I32: Final = SCALARS["i32"]


@dataclass(slots=True)
class Bytes:
    """The bytes of a file, and the number of bytes that may still be read."""

    data: bytes
    source: str
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = TIMES_READ * len(self.data) + 4096

    def refuse(self, place: str, rule: str) -> DocumentError:
        """Return an error that names a place in the file and the rule broken at that place."""
        return DocumentError(self.source, place, rule)

    def number(self, kind: struct.Struct, at: int, place: str) -> Any:
        """Return the number stored at byte `at`; raise DocumentError if it is outside the file."""
        if not 0 <= at <= len(self.data) - kind.size:
            raise self.refuse(place, f"is at byte {at}; the file has {len(self.data)} bytes")
        return kind.unpack_from(self.data, at)[0]

    def charge(self, nbytes: int, place: str) -> None:
        """Count bytes as read; raise DocumentError if the file refers to its bytes too often."""
        self.left -= nbytes
        if self.left < 0:
            raise self.refuse(place, f"fields refer to more than {TIMES_READ} times the {len(self.data)} file bytes")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a flatbuffer, with methods that read its fields by slot."""

    file: Bytes
    at: int
    place: str

    def scalar(self, slot: int, name: str, kind: str, default: Any = 0) -> Any:
        """Return a number, or `default` if the field is omitted."""
        at = self._field(slot, name)
        return default if at is None else self.file.number(SCALARS[kind], at, self._path(name))

    def table(self, slot: int, name: str) -> "Table | None":
        """Return a table, or None if the field is omitted."""
        at = self._field(slot, name)
        return None if at is None else self._follow(at, self._path(name))

    def text(self, slot: int, name: str) -> str:
        """Return a text; return an empty text if the field is omitted."""
        return self.octets(slot, name).decode("utf-8", "replace")

    def octets(self, slot: int, name: str) -> bytes:
        """Return a vector of bytes; return an empty vector if the field is omitted."""
        return self.numbers(slot, name, "u1").tobytes()

    def numbers(self, slot: int, name: str, dtype: str) -> "np.ndarray[Any, Any]":
        """Return a vector of numbers of a numpy dtype; it is empty if the field is omitted."""
        found = self._vector(slot, name, np.dtype(dtype).itemsize)
        return np.frombuffer(self.file.data, dtype, count=found[1], offset=found[0])

    def tables(self, slot: int, name: str) -> list["Table"]:
        """Return a vector of tables; return an empty list if the field is omitted."""
        start, count = self._vector(slot, name, 4)
        return [self._follow(start + 4 * index, f"{self._path(name)}[{index}]") for index in range(count)]

    def refuse(self, rule: str, name: str = "") -> DocumentError:
        """Return an error that names this table or one of its fields, and the broken rule."""
        return self.file.refuse(self._path(name) if name else self.place, rule)

    def _path(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def _field(self, slot: int, name: str) -> int | None:
        place = self._path(name)
        vtable = self.at - self.file.number(_I32, self.at, place)
        size = self.file.number(_U16, vtable, place)
        if 4 + 2 * slot + 2 > size:
            return None
        offset = self.file.number(_U16, vtable + 4 + 2 * slot, place)
        return self.at + offset if offset else None

    def _follow(self, at: int, place: str) -> "Table":
        target = at + self.file.number(_U32, at, place)
        self.file.charge(4, place)
        self.file.number(_I32, target, place)
        return Table(self.file, target, place)

    def _vector(self, slot: int, name: str, width: int) -> tuple[int, int]:
        """Return the byte at which the elements of a vector begin, and the number of elements."""
        at, place = self._field(slot, name), self._path(name)
        if at is None:
            return 0, 0
        start = at + self.file.number(_U32, at, place)
        count = self.file.number(_U32, start, place)
        if count * width > len(self.file.data) - start - 4:
            raise self.file.refuse(place, f"has {count} entries, more than fit into the file")
        self.file.charge(count * width, place)
        return start + 4, count


def identifier(head: bytes) -> bytes:
    """Return the four bytes that name a flatbuffer's schema, given the file's first eight bytes."""
    return head[4:8]


def open_buffer(data: bytes, source: str, place: str = "") -> Table:
    """Return the root table of a flatbuffer; raise DocumentError if there is no root table."""
    file = Bytes(data, source)
    if len(data) < 8:
        raise file.refuse("", f"has {len(data)} bytes, too few for a flatbuffer")
    root = file.number(_U32, 0, "root")
    file.number(_I32, root, "root")
    return Table(file, root, place)


__all__ = ["SCALARS", "Table", "identifier", "open_buffer"]
