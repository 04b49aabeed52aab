"""The element types a value may have: names, item sizes in bytes, widths in bits.

Elements narrower than a byte (`i4 u4 i2 u2 f4`) are *packed*: several stand in one byte, the first
in its lowest bits. `ITEMSIZES` gives the bytes that hold one element, so 1 for these; code that
counts or compares elements uses `WIDTHS`.

What this module does not see: values of elements, and the names of dtypes in other libraries.
"""

from typing import Final

import numpy as np

_BITS: Final[tuple[tuple[str, int], ...]] = (
    ("f64", 64), ("f32", 32), ("f16", 16), ("bf16", 16), ("i64", 64), ("i32", 32), ("i16", 16), ("i8", 8),
    ("u64", 64), ("u32", 32), ("u16", 16), ("u8", 8), ("bool", 8),
    ("c64", 64), ("c128", 128), ("f8_e4m3", 8), ("f8_e5m2", 8), ("i4", 4), ("u4", 4), ("i2", 2), ("u2", 2), ("f4", 4),
)  # fmt: skip

DTYPES: Final[tuple[tuple[str, int], ...]] = tuple((name, max(bits // 8, 1)) for name, bits in _BITS)
"""Name and item size in bytes of each dtype.

A value's `dtype` column is an index into this table.
"""

DTYPE_CODES: Final = {name: code for code, (name, _) in enumerate(DTYPES)}

ITEMSIZES: Final = np.array([size for _, size in DTYPES], dtype=np.int64)

WIDTHS: Final = np.array([bits for _, bits in _BITS], dtype=np.int64)
"""Bits of one element, by code; below 8 for packed dtypes."""

FIRST_OF_VERSION_2: Final = DTYPE_CODES["c64"]
"""The first code of a dtype that only version 2 of the document has; so have all later codes."""
