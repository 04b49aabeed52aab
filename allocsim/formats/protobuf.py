"""Read the wire format of Protocol Buffers field by field. Every length is checked against the end
of the data.

    message = Message(data)
    for part in message.messages(3):
        print(part.text(1), part.number(5), part.numbers(36))

A message is a table from field number to values; the caller knows the meaning of a field. If a
single field has several values, the last value counts, as the format requires. Numbers are unsigned
and have at most 64 bits. Packed and unpacked lists are read alike. Only texts are copied.

Raises ValueError with the byte at which the data breaks the format. O(bytes of the message). The
fields of an inner message are read only when the caller requests that message.

This module does not read schemas, signed numbers and floating-point numbers, and refuses groups.

Source: protobuf.dev, "Encoding".
"""

from collections.abc import Iterator
from typing import Final

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

MAX_TEXT: Final = 1 << 12
"""The largest number of bytes of a text."""


class Message:
    """The fields of a message that is stored in a range of bytes of a larger file."""

    __slots__ = ("_begin", "_data", "_fields")

    def __init__(self, data: bytes, begin: int = 0, end: int | None = None) -> None:
        self._data, self._begin = data, begin
        self._fields: dict[int, list[int | tuple[int, int]]] = {}
        end = len(data) if end is None else end
        at = begin
        while at < end:
            key, at = varint(data, at, end)
            wire = key & 7
            value: int | tuple[int, int]
            if wire == VARINT:
                value, at = varint(data, at, end)
            elif wire == BYTES:
                size, at = varint(data, at, end)
                value = at, at + size
                at += size
            elif wire in (FIXED64, FIXED32):
                size = 8 if wire == FIXED64 else 4
                value = at, at + size
                at += size
            else:
                raise ValueError(f"byte {at - 1}: there is no field of wire type {wire}")
            if at > end:
                raise ValueError(f"byte {at}: field {key >> 3} ends beyond its message, which ends at {end}")
            self._fields.setdefault(key >> 3, []).append(value)

    def number(self, field: int) -> int:
        """Return the number in a field, or 0 if the field is absent."""
        found = self._fields.get(field)
        if not found:
            return 0
        if not isinstance(found[-1], int):
            raise self._other(field, "a number")
        return found[-1]

    def numbers(self, field: int) -> list[int]:
        """Return the numbers of a repeated field, which may be packed or unpacked."""
        found: list[int] = []
        for value in self._fields.get(field, ()):
            if isinstance(value, int):
                found.append(value)
                continue
            at, end = value
            while at < end:
                one, at = varint(self._data, at, end)
                found.append(one)
        return found

    def text(self, field: int) -> str:
        """Return the text in a field, or "" if the field is absent."""
        found = self._fields.get(field)
        if not found:
            return ""
        if isinstance(found[-1], int) or found[-1][1] - found[-1][0] > MAX_TEXT:
            raise self._other(field, f"a text of at most {MAX_TEXT} bytes")
        return self._data[found[-1][0] : found[-1][1]].decode("utf-8", "replace")

    def messages(self, field: int) -> Iterator["Message"]:
        """Yield the inner messages of a repeated field."""
        for value in self._fields.get(field, ()):
            if isinstance(value, int):
                raise self._other(field, "a message")
            yield Message(self._data, *value)

    def message(self, field: int) -> "Message":
        """Return the last message of a field, or an empty message if the field is absent."""
        found = self._fields.get(field)
        if not found:
            return Message(b"")
        if isinstance(found[-1], int):
            raise self._other(field, "a message")
        return Message(self._data, *found[-1])

    def _other(self, field: int, wanted: str) -> ValueError:
        return ValueError(f"byte {self._begin}: field {field} of the message that begins here is not {wanted}")


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the varint at byte `at` (seven bits for each byte), and the first byte after it."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise ValueError(f"byte {at}: a number has more than ten bytes")
    raise ValueError(f"byte {at}: a number ends beyond its message")


__all__ = ["Message", "varint"]
