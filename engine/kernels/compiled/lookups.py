"""The numba kernels that look up, count and draw: indices, largest elements, flags, random numbers.

Contract
--------
* Arrays are dense; one float dtype per call, float32 or float64; indices int32. Callers
  (`engine.kernels.rowwise`, `engine.kernels.indexed`) check shapes.
* Aliasing. `dropout` and `unscale` read each element before they write that element, and round each
  by itself: vectors or not, the bits are the same. No other kernel here may lie over an operand.
* An index out of range makes a NaN, never a wild read or write. NaN counts as the largest of its
  row.
* Random numbers are a function of (seed, salt, position) and nothing else: Philox2x32 with 10
  rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), the position as
  counter, seed and salt mixed into the key.
"""

# ruff: noqa: PLR0124 - a value that is not itself is a NaN, and that is how compiled code sees it

from typing import Any

import numpy as np

from engine.kernels.compiled.jit import kernel, leaf, reduction
from engine.kernels.compiled.row_primitives import copy
from engine.kernels.compiled.vectors import BLOCK

# ------------------------------------------------------------------------------------------------------- rows and indices


@kernel
def get_rows(table: Any, ids: Any, out: Any) -> None:
    """Write out[t] = table[ids[t]]; NaN where the index is out of range. table: (V, D).

    ids: (T,) int32; out: (T, D).
    """
    for t in range(ids.size):
        if 0 <= ids[t] < table.shape[0]:
            copy(table[ids[t]], out[t])
        else:
            for i in range(out.shape[1]):
                out[t, i] = np.nan


@kernel
def get_rows_back(dy: Any, ids: Any, out: Any) -> None:
    """Write out[v] = sum of dy[t] over ids[t] == v, in order of t.

    An index out of range makes row 0 NaN. out: (V, D).
    """
    for v in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[v, i] = 0
    for t in range(ids.size):
        if 0 <= ids[t] < out.shape[0]:
            for i in range(out.shape[1]):
                out[ids[t], i] = out[ids[t], i] + dy[t, i]
        else:
            for i in range(out.shape[1]):
                out[0, i] = np.nan


@kernel
def set_rows(x: Any, ids: Any, out: Any) -> None:
    """Write out[ids[t]] = x[t], in order of t; other rows stay.

    An index out of range makes row 0 NaN. x: (T, D); out: (V, D).
    """
    wild = False
    for t in range(ids.size):
        if 0 <= ids[t] < out.shape[0]:
            copy(x[t], out[ids[t]])
        else:
            wild = True
    if wild:
        for i in range(out.shape[1]):
            out[0, i] = np.nan


@kernel
def gather(x: Any, ids: Any, out: Any) -> None:
    """Write out[r, j] = x[r, ids[r, j]], NaN where the index is out of range. x: (rows, n).

    ids, out: (rows, m).
    """
    rows, n = x.shape
    for row in range(rows):
        for j in range(ids.shape[1]):
            at = ids[row, j]
            out[row, j] = x[row, at] if 0 <= at < n else np.nan


@kernel
def scatter(dy: Any, ids: Any, out: Any) -> None:
    """Write out[r, i] = sum of dy[r, j] over ids[r, j] == i, in order of j.

    An index out of range makes all of its row NaN.
    """
    rows, n = out.shape
    for row in range(rows):
        wild = False
        for i in range(n):
            out[row, i] = 0
        for j in range(ids.shape[1]):
            at = ids[row, j]
            if 0 <= at < n:
                out[row, at] += dy[row, j]
            else:
                wild = True
        if wild:
            for i in range(n):
                out[row, i] = np.nan


@kernel
def argmax(x: Any, out: Any) -> None:
    """Write out[r] = place of the first largest of row r, or of its first NaN. x: (rows, n).

    out: (rows,) int32.
    """
    rows, n = x.shape
    for row in range(rows):
        best = 0
        for i in range(1, n):
            top = x[row, best]
            if top == top and not x[row, i] <= top:
                best = i
        out[row] = best


@leaf
def _before(a: Any, b: Any) -> Any:
    """Return whether a stands before b: less, or a number before a NaN."""
    return a < b or (a == a and b != b)


@kernel
def argsort(x: Any, room: Any, out: Any) -> None:
    """Write out[r] = the places of row r in ascending order, of equals the first first, NaN last.

    By merging runs that double (von Neumann 1945): O(n log n). x: (rows, n); room: (n,) int32; out:
    (rows, n) int32.
    """
    count, n = x.shape
    for row in range(count):
        for i in range(n):
            out[row, i] = i
        width = 1
        while width < n:
            for start in range(0, n, 2 * width):
                middle, stop = min(start + width, n), min(start + 2 * width, n)
                i, j = start, middle
                for k in range(start, stop):
                    if i < middle and (j >= stop or not _before(x[row, out[row, j]], x[row, out[row, i]])):
                        room[k] = out[row, i]
                        i += 1
                    else:
                        room[k] = out[row, j]
                        j += 1
            for k in range(n):
                out[row, k] = room[k]
            width *= 2


@kernel
def count_equal(a: Any, b: Any, out: Any) -> None:
    """Write out[0] = in how many places a and b agree. a, b: (n,) int32; out: (1,) int32."""
    count = 0
    for i in range(a.size):
        count += a[i] == b[i]
    out[0] = count


# ---------------------------------------------------------------------------------------------------------- flags, errors


@reduction
def _spoiled(x: Any) -> Any:
    """Return 0, or NaN if an element is not finite."""
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i] * x.dtype.type(0)
    return total


@kernel
def all_finite(x: Any, out: Any) -> None:
    """Write out[0] = 1 if every element is finite, else 0. x: (n,)."""
    out[0] = 1 if _spoiled(x) == 0 else 0


@kernel
def unscale(g: Any, scale: Any, out: Any) -> None:
    """Write out = g / scale[0] where that is finite, 0 elsewhere. g, out: (n,); scale: (1,)."""
    zero = g.dtype.type(0)
    for i in range(g.size):
        value = g[i] / scale[0]
        out[i] = value if value - value == zero else zero


@reduction
def _squares(a: Any, b: Any) -> Any:
    total = a.dtype.type(0)
    for i in range(a.size):
        total += (a[i] - b[i]) * (a[i] - b[i])
    return total


@kernel
def mean_squared_error(prediction: Any, target: Any, out: Any) -> None:
    """Write out[0] = mean of (prediction - target)**2.

    Sums of blocks are added in float64. prediction, target: (n,).
    """
    total = 0.0
    for start in range(0, prediction.size, BLOCK):
        total += _squares(prediction[start : start + BLOCK], target[start : start + BLOCK])
    out[0] = total / prediction.size


# ---------------------------------------------------------------------------------------------------------- random numbers


@leaf
def _bits(key: Any, position: Any) -> Any:
    """Return 64 random bits: Philox2x32-10 of the position under a 32-bit key."""
    low, high = np.uint32(position & 0xFFFFFFFF), np.uint32(position >> 32)
    for _ in range(10):
        product = np.uint64(low) * np.uint64(0xD256D193)
        low, high = (
            np.uint32(np.uint32(product >> np.uint64(32)) ^ key ^ high),
            np.uint32(product & np.uint64(0xFFFFFFFF)),
        )
        key = np.uint32(key + np.uint32(0x9E3779B9))
    return (np.uint64(high) << np.uint64(32)) | np.uint64(low)


@leaf
def _key(seed: Any, salt: Any) -> Any:
    """Return the key of a stream.

    Seed and salt, mixed so that neighbours have nothing in common (the finaliser of MurmurHash3).
    """
    mixed = np.uint64(np.uint32(seed)) | (np.uint64(np.uint32(salt)) << np.uint64(32))
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return np.uint32((mixed ^ (mixed >> np.uint64(33))) & np.uint64(0xFFFFFFFF))


@leaf
def _uniform(key: Any, position: Any) -> Any:
    """Return a number in (0, 1): 23 random bits and a half, which float32 holds exactly.

    So both dtypes draw the same numbers.
    """
    return (np.float64(_bits(key, np.uint64(position)) >> np.uint64(41)) + 0.5) * 2.0**-23


@kernel
def uniform(seed: Any, salt: Any, out: Any) -> None:
    """Write random numbers in (0, 1). seed: (1,) int32; out: (n,)."""
    key = _key(seed[0], salt)
    for i in range(out.size):
        out[i] = _uniform(key, i)


@kernel
def dropout(x: Any, seed: Any, salt: Any, p: Any, keep: Any, out: Any) -> None:  # noqa: PLR0917 - compiled
    """Write out = x * keep where the uniform number of that place is at least p, 0 elsewhere.

    NaN stays. x, out: (n,).
    """
    key = _key(seed[0], salt)
    zero = x.dtype.type(0)
    for i in range(x.size):
        value = x[i]
        out[i] = value * keep if _uniform(key, i) >= p or value != value else zero
