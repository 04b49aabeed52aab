"""Poison: quiet NaNs in dead and guarding bytes, with a payload that names their buffer.

A word is 4 bytes at a multiple of 4 in the pool, the same everywhere in a range:

    1 11111111 1111 01101 iiiiiiiiiiiiii        bits 31, 30-23, 22-19, 18-14, 13-0
    sign, exponent, quiet  mark   index

Read as f32 it is a quiet NaN; two of them, read as f64, are one as well; half of what an f16 reads
are NaNs; as an i32 it is about -470,000. Arithmetic hands the payload of a NaN on, so that poison
read as a number shows in what was computed from it, with the index: the buffer (modulo `INDICES`)
that was released there, `NEVER` where nobody has written yet, `ZONE` in a red zone, `awaited(run)`
in a result that its op has not written yet: no other dead bytes hold that one while the op runs, so
what is left of it in a float result was not written, and any other poison there was read. A whole
number may have the same bits; it does not change from run to run as the word does, so a result of
another dtype was left where two runs show it.

`other` gives each word two more forms: a number of ordinary size, positive where the first is a
NaN, and nought. Each byte differs from the first form's; what is computed from dead bytes differs
between a run with the one and a run with the other, in every dtype, unless it is the same for all
three.

What this module does not see: who puts words where.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

BASE: Final = 0xFFF80000 | 0b01101 << 14
MASK: Final = 0x7FFFC000
"""Sign and index do not matter: arithmetic may flip the one, and the other is the message."""
AWAITING: Final = 64
"""Words for what waits to be written: one for each of so many runs."""
INDICES: Final = (1 << 14) - 2 - AWAITING
NEVER: Final = BASE | INDICES
ZONE: Final = BASE | (INDICES + 1)
AWAITED: Final = BASE | (INDICES + 2)
"""Of the first run; in the rows of a trace it stands for that of any."""
OTHER: Final = 0x4B000000
"""Of form 1: as f32 about 8 million, as i32 about 1.3 billion, its third byte 0."""


def released(buffer: int) -> int:
    """Return the word for bytes a buffer has left."""
    return BASE | buffer % INDICES


def awaited(run: int) -> int:
    """Return the word for bytes of a result that wait to be written in a run."""
    return AWAITED + run * 37 % AWAITING


FORMS: Final = (1, 2)
"""Of a word beside its first."""


def other(word: int, form: int) -> int:
    """Return one of the other forms of a word."""
    return OTHER | ~word & (1 << 14) - 1 if form == 1 else 0


def found(values: NDArray[Any]) -> list[int]:
    """Return the distinct words of poison among the elements of a float array, without their sign.

    Empty for other dtypes.
    """
    if values.dtype not in (np.dtype("f4"), np.dtype("f8")):
        return []
    hits = np.ascontiguousarray(values).view(np.uint32).ravel()[np.repeat(marked(values), values.dtype.itemsize // 4)]
    kept: list[int] = np.unique(hits | 1 << 31).tolist()
    return kept


def marked(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return for each element, flat, whether it holds poison; none for other dtypes."""
    if values.dtype not in (np.dtype("f4"), np.dtype("f8")):
        return np.zeros(values.size, dtype=np.bool_)
    words = np.ascontiguousarray(values).view(np.uint32).reshape(values.size, -1)
    mask: NDArray[np.bool_] = ((words & MASK) == BASE & MASK).all(axis=1)
    return mask
