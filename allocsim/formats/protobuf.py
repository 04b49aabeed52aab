"""The wire format of Protocol Buffers, read field by field. Every length is checked against the
bytes that are there.

    message = Message(data)
    for part in message.messages(3):
        print(part.text(1), part.number(5), part.numbers(36))

A message is a table from field number to values; the caller knows what a field means. Of several
values of a single field the last counts, as the format says. Numbers are unsigned, of at most 64
bits; packed and unpacked lists are read alike. Only texts are copied.

Raises ValueError with the byte at which the data breaks the format. O(bytes of the message); the
fields of an inner message are read when it is asked for.

This module does not examine schemas, groups (refused), signed and floating-point numbers.

Source: protobuf.dev, "Encoding".
"""

from collections.abc import Iterator
from typing import Final

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

MAX_TEXT: Final = 1 << 12
"""The most bytes of a text."""


class Message:
    """The fields of a message, which lies in a range of a larger file's bytes."""

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
        """Return the number in a field, 0 where the field is not there."""
        found = self._fields.get(field)
        if not found:
            return 0
        if not isinstance(found[-1], int):
            raise self._other(field, "a number")
        return found[-1]

    def numbers(self, field: int) -> list[int]:
        """Return the numbers of a repeated field, packed or not."""
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
        """Return the text in a field, "" where the field is not there."""
        found = self._fields.get(field)
        if not found:
            return ""
        if isinstance(found[-1], int) or found[-1][1] - found[-1][0] > MAX_TEXT:
            raise self._other(field, f"a text of at most {MAX_TEXT} bytes")
        return self._data[found[-1][0] : found[-1][1]].decode("utf-8", "replace")

    def messages(self, field: int) -> Iterator["Message"]:
        """Yield the messages of a field."""
        for value in self._fields.get(field, ()):
            if isinstance(value, int):
                raise self._other(field, "a message")
            yield Message(self._data, *value)

    def message(self, field: int) -> "Message":
        """Return the one message of a field, an empty one where it is not there."""
        found = self._fields.get(field)
        if not found:
            return Message(b"")
        if isinstance(found[-1], int):
            raise self._other(field, "a message")
        return Message(self._data, *found[-1])

    def _other(self, field: int, wanted: str) -> ValueError:
        return ValueError(f"byte {self._begin}: field {field} of the message that begins here is not {wanted}")


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the varint at byte `at` (seven bits a byte), and the byte behind its end."""
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
