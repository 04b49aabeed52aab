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

`drawn` gives dead bytes other forms, each word drawn by its place, by the word and by the form's
number: floats of ordinary size above 0, bytes of 0 or 1, any bits, floats below 0, and any bits
from there on. A question that each form answers either way with equal chance has the same answer in
all of k forms with a chance of 2^-k. A form of its own, `AS_IT_LAY`, leaves dead bytes as they
were, so that a question for one rare value is seen where that value lay.

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


def released(buffer: int) -> int:
    """Return the word for bytes a buffer has left."""
    return BASE | buffer % INDICES


def awaited(run: int) -> int:
    """Return the word for bytes of a result that wait to be written in a run."""
    return AWAITED + run * 37 % AWAITING


FORMS: Final = 4
"""Drawn, unless told otherwise; numbered from 1."""
SIGNS: Final = {1: 0x42000000, 4: 0xC2000000}
"""Of forms that are floats the least."""
FLAGS: Final = 2
AS_IT_LAY: Final = 0
"""The form that leaves bytes as they were; those that nobody has written yet are 0."""


def drawn(first: int, count: int, word: int, form: int) -> NDArray[np.uint32]:
    """Return what words `[first, first + count)` of the pool hold in a form in place of `word`."""
    if form == AS_IT_LAY:
        return np.zeros(count, np.uint32)
    mixed = np.arange(first, first + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed += np.uint64((word * 0xBF58476D1CE4E5B9 + form * 0x94D049BB133111EB) % (1 << 64))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):  # splitmix64
        mixed = (mixed ^ mixed >> np.uint64(shift)) * np.uint64(factor)
    bits = mixed.astype(np.uint32)
    if form == FLAGS:
        return bits & np.uint32(0x01010101)
    if form in SIGNS:
        return np.uint32(SIGNS[form]) + bits % np.uint32(0x0A000000)  # from 32 to 2^25
    return bits


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
