"""Columns as a page carries them: one block of bytes, and where each column lies in it.

    block = ColumnBlock()
    block.add("plan0.start", numbers)      # int32 where all fit, else int64; float64; uint8
    block.add_names("program0.names", names)
    block.directory                        # name -> [dtype, first byte, entries]
    block.encoded()                        # zlib, then base64

Bytes are little-endian, each column starts at a multiple of 8, equal columns are stored once. Names
are one text in UTF-8 (`.text`) and the end of each in UTF-16 units (`.ends`), which is how a
browser counts; what is no Unicode in a name is replaced.

What this module does not see: what the columns mean.
"""

import zlib
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

import numpy as np

WIDTH: Final = 8
"""Bytes of the widest entry: no column starts in between."""

QUICK: Final = 1
"""Level of zlib: a page is made once and the time to make it counts."""


class ColumnBlock:
    """Columns, collected; O(bytes) in all."""

    def __init__(self) -> None:
        """Start empty."""
        self.directory: dict[str, list[Any]] = {}
        self._parts: list[bytes] = []
        self._places: dict[bytes, int] = {}
        self._length = 0

    def add(self, name: str, numbers: Any) -> None:
        """Add an array of one dimension: whole numbers up to 64 bits, or floats."""
        column = _narrowed(np.asarray(numbers))
        data = column.tobytes()
        key = sha256(data).digest()
        if key not in self._places:
            self._places[key] = self._length
            self._parts.append(data + bytes(-len(data) % WIDTH))
            self._length += len(self._parts[-1])
        self.directory[name] = [column.dtype.str[1:], self._places[key], len(column)]

    def add_names(self, name: str, names: Sequence[str]) -> None:
        """Add a column of texts."""
        text = "".join(names)
        if text.isascii():
            lengths = [len(each) for each in names]
        else:
            names = [each.encode("utf-8", "replace").decode() for each in names]
            text, lengths = "".join(names), [len(each.encode("utf-16-le")) // 2 for each in names]
        self.add(f"{name}.text", np.frombuffer(text.encode(), dtype=np.uint8))
        self.add(f"{name}.ends", np.cumsum(np.array(lengths, dtype=np.int64)))

    def encoded(self) -> str:
        """Return the block as text of the base64 alphabet."""
        packer = zlib.compressobj(QUICK)
        return b64encode(b"".join([*map(packer.compress, self._parts), packer.flush()])).decode()


def _narrowed(column: Any) -> Any:
    if column.dtype == np.uint8:
        return column
    if column.dtype.kind == "f":
        return column.astype("<f8")
    small = not len(column) or (int(column.min()) >= -(2**31) and int(column.max()) < 2**31)
    return column.astype("<i4" if small else "<i8")
