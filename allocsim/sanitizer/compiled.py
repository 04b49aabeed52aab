"""The executor of rows in machine code: same actions and same answers as `rows.Plain`, other hashes.

A content is hashed in four lanes of 8-byte words, `h = (h ^ w) * odd`, so that a change of one word always shows and two changes
cancel with a chance of about 2^-64; bytes before the first and behind the last multiple of 8 are hashed one by one. Poison is looked for in the
same pass.

Importing this module imports numba; the first `Compiled` compiles one function (a few seconds), kept beside the source or in the user's
cache if either can be written.

What this module does not see: what rows mean.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from allocsim.sanitizer.poison import BASE, MASK
from allocsim.sanitizer.rows import EXPECT, FILL, HASH, HASH4, HASH8, SAME, SNAP, VERIFY, Bytes, Rows

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT, _LOW, _ONE = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(0x100000001B3)
_MASK, _BASE = np.uint64(MASK), np.uint64(BASE & MASK)
_MASK_TWICE, _BASE_TWICE = np.uint64(MASK << 32 | MASK), np.uint64((BASE & MASK) << 32 | BASE & MASK)


def _cached(function: Callable[..., Any]) -> Any:
    """Compile, keeping the code on disk where a cache folder can be found."""
    try:
        return numba.njit(error_model="numpy", cache=True)(function)
    except RuntimeError:  # numba found no folder to write to
        return numba.njit(error_model="numpy")(function)


_inline: Any = numba.njit(error_model="numpy", inline="never")


@_inline
def _hash(pool: Any, words: Any, at: int, nbytes: int) -> Any:
    a = b = c = d = _MULTIPLIER
    stop = at + nbytes
    head = min((at + 7) // 8 * 8, stop)
    for i in range(at, head):
        a = (a ^ np.uint64(pool[i])) * _ONE
    first, last = head // 8, max(stop // 8, head // 8)
    if head == stop:
        last = first
    body = words[first:last]
    count = len(body)
    for i in range(0, count - 3, 4):
        a = (a ^ body[i]) * _MULTIPLIER
        b = (b ^ body[i + 1]) * _MULTIPLIER
        c = (c ^ body[i + 2]) * _MULTIPLIER
        d = (d ^ body[i + 3]) * _MULTIPLIER
    for i in range(count - count % 4, count):
        a = (a ^ body[i]) * _MULTIPLIER
    for i in range(max(last * 8, head), stop):
        b = (b ^ np.uint64(pool[i])) * _ONE
    for lane in (b, c, d):
        a = ((a ^ (a >> _SHIFT)) * _MULTIPLIER) ^ lane
    return a


@_inline
def _clean4(words: Any, at: int, nbytes: int) -> bool:
    if at % 4 or nbytes % 4:
        return True
    stop = at + nbytes
    hits = 0
    if at % 8 and nbytes:
        hits += (words[at // 8] >> _SHIFT) & _MASK == _BASE
    for word in words[(at + 7) // 8 : stop // 8]:
        hits += ((word & _MASK) == _BASE) | (((word >> _SHIFT) & _MASK) == _BASE)
    if stop % 8 and stop // 8 * 8 >= at:
        hits += (words[stop // 8] & _MASK) == _BASE
    return hits == 0


@_inline
def _clean8(words: Any, at: int, nbytes: int) -> bool:
    if at % 8 or nbytes % 8:
        return True
    hits = 0
    for word in words[at // 8 : (at + nbytes) // 8]:
        hits += (word & _MASK_TWICE) == _BASE_TWICE
    return hits == 0


@_inline
def _filled(pool: Any, words: Any, at: int, nbytes: int, word: int) -> bool:
    stop = at + nbytes
    twice = np.uint64(word) << _SHIFT | np.uint64(word)
    head = min((at + 7) // 8 * 8, stop)
    wrong = 0
    for i in range(at, head):
        wrong += pool[i] != (word >> (8 * (i % 4))) & 255
    tail = max(stop // 8 * 8, head)
    if tail > head:
        for found in words[head // 8 : tail // 8]:
            wrong += found != twice
    for i in range(tail, stop):
        wrong += pool[i] != (word >> (8 * (i % 4))) & 255
    return wrong == 0


@_inline
def _fill(pool: Any, words: Any, at: int, nbytes: int, word: int) -> None:
    stop = at + nbytes
    head = min((at + 7) // 8 * 8, stop)
    for i in range(at, head):
        pool[i] = (word >> (8 * (i % 4))) & 255
    tail = max(stop // 8 * 8, head)
    if tail > head:
        words[head // 8 : tail // 8] = np.uint64(word) << _SHIFT | np.uint64(word)
    for i in range(tail, stop):
        pool[i] = (word >> (8 * (i % 4))) & 255


@_cached
def _run(
    pool: Any, words: Any, actions: Any, ats: Any, sizes: Any, keys: Any, hashes: Any, snaps: Any, bad: Any, first: int, stop: int
) -> int:
    count = 0
    for row in range(first, stop):
        action, at, nbytes, key = actions[row], ats[row], sizes[row], keys[row]
        good = True
        if action <= VERIFY:
            content = _hash(pool, words, at, nbytes)
            if action == VERIFY:
                good = hashes[key] == content
            elif action == HASH4:
                good = _clean4(words, at, nbytes)
            elif action == HASH8:
                good = _clean8(words, at, nbytes)
            hashes[key] = content
        elif action == FILL:
            _fill(pool, words, at, nbytes, key)
        elif action == EXPECT:
            good = _filled(pool, words, at, nbytes, key)
        elif action == SNAP:
            for i in range(nbytes):
                snaps[key + i] = pool[at + i]
        elif action == SAME:
            wrong = 0
            for i in range(nbytes):
                snaps[key + i] ^= pool[at + i]
                wrong += snaps[key + i]
            good = wrong == 0
        if not good:
            bad[count] = row
            count += 1
    return count


class Compiled:
    """The executor in machine code; the pool starts at a multiple of 8 bytes and is one long."""

    def __init__(self, pool: Bytes) -> None:
        self._pool, self._words = pool, pool.view(np.uint64)
        self._hashes = np.zeros(0, dtype=np.uint64)
        self.load(Rows.of([]), hashes=0, snaps=0)

    def load(self, rows: Rows, *, hashes: int, snaps: int) -> None:
        """Take other rows."""
        if hashes > len(self._hashes):
            self._hashes = np.concatenate([self._hashes, np.zeros(hashes - len(self._hashes), dtype=np.uint64)])
        self._snaps = np.zeros(snaps, dtype=np.uint8)
        self._bad = np.zeros(len(rows.at), dtype=np.int64)
        self._arguments = (
            self._pool, self._words, rows.action, rows.at, rows.nbytes, rows.key, self._hashes, self._snaps, self._bad,
        )  # fmt: skip

    def run(self, first: int, stop: int) -> list[int]:
        """Carry out rows `[first, stop)` and return the bad ones."""
        count = _run(*self._arguments, first, stop)
        return self._bad[:count].tolist() if count else []

    def move(self, keys: list[int]) -> None:
        """Remember under 0, 1, ... what is remembered under each of the keys."""
        self._hashes[: len(keys)] = self._hashes[keys]

    def digest(self, memory: Bytes) -> int:
        """Return a hash of memory outside the pool."""
        if memory.ctypes.data % 8 or memory.nbytes % 8:
            memory = np.concatenate([memory, np.zeros(-memory.nbytes % 8, dtype=np.uint8)])
        return int(_hash(memory, memory.view(np.uint64), 0, memory.nbytes))

    def copy(self, key: int, nbytes: int) -> Bytes:
        """Return what SNAP copied."""
        return self._snaps[key : key + nbytes].copy()


__all__ = ["EXPECT", "FILL", "HASH", "SNAP", "Compiled"]
