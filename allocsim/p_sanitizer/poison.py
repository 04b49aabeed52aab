"""Poison: quiet NaNs in dead and guarding bytes, with a payload that names their buffer.

A word is 4 bytes at a multiple of 4 in the pool, the same everywhere in a range:

    1 11111111 1111 01101 iiiiiiiiiiiiii        bits 31, 30-23, 22-19, 18-14, 13-0
    sign, exponent, quiet  mark   index

Read as f32 it is a quiet NaN; two of them, read as f64, are one as well; half of what an f16 reads
are NaNs; as an i32 it is about -470,000. Arithmetic hands the payload of a NaN on, so that poison
read as a number shows in what was computed from it, with the index: the buffer (modulo `INDICES`)
that was released there, `NEVER` where nobody has written yet, `ZONE` in a red zone.

What this module does not see: who puts words where.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

BASE: Final = 0xFFF80000 | 0b01101 << 14
MASK: Final = 0x7FFFC000
"""Sign and index do not matter: arithmetic may flip the one, and the other is the message."""
INDICES: Final = (1 << 14) - 2
NEVER: Final = BASE | INDICES
ZONE: Final = BASE | (INDICES + 1)


def released(buffer: int) -> int:
    """Return the word for bytes a buffer has left."""
    return BASE | buffer % INDICES


def found(values: NDArray[Any]) -> list[int]:
    """Return the distinct words of poison among the elements of a float array, without their sign.

    Empty for other dtypes.
    """
    if values.dtype not in (np.dtype("f4"), np.dtype("f8")):
        return []
    words = np.ascontiguousarray(values).view(np.uint32)
    if values.dtype.itemsize == 8:
        words = words.reshape(-1, 2)
        words = words[((words & MASK) == BASE & MASK).all(axis=1)].ravel()
    hits = words[(words & MASK) == BASE & MASK]
    kept: list[int] = np.unique(hits | 1 << 31).tolist()
    return kept
