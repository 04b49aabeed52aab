"""The executor of row actions in machine code: the answers of `row_actions.Plain`, other hashes.

A content is hashed as the sum, modulo 2^64, of its 4-byte words, each times an odd 32-bit number of
its place: sums become vectors. A change of one word always shows, and so do two words that change
places; changes of several words at once cancel with a chance of about 2^-32. Bytes before the first
and behind the last multiple of 4 are weighted on their own.

Importing this module imports numba; the first `Compiled` compiles one function (a few seconds),
kept beside the source or in the user's cache if either can be written.

What this module does not see: what rows mean.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import extending, types

from allocsim.p_sanitizer.poison import AWAITED, BASE, MASK
from allocsim.p_sanitizer.row_actions import EXPECT, FILL, HASH4, HASH8, HASHA, SAME, SNAP, VERIFY, Bytes, Rows

_LOW = np.uint64(0xFFFFFFFF)
_STEP, _ONE = np.uint64(0x9E3779B2), np.uint64(1)
_MASK, _BASE = np.uint32(MASK), np.uint32(BASE & MASK)
_MASK_TWICE, _BASE_TWICE = np.uint64(MASK << 32 | MASK), np.uint64((BASE & MASK) << 32 | BASE & MASK)


_carray: Any = numba.carray  # type: ignore[attr-defined]
_intrinsic: Any = extending.intrinsic  # numba declares it with types that no caller satisfies


@_intrinsic
def _at(_: Any, address: Any) -> Any:
    """Return an address as a pointer."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(address), codegen


def _cached(function: Callable[..., Any]) -> Any:
    """Compile, keeping the code on disk where a cache folder can be found."""
    try:
        return numba.njit(error_model="numpy", cache=True)(function)
    except RuntimeError:  # numba found no folder to write to
        return numba.njit(error_model="numpy")(function)


_inline: Any = numba.njit(error_model="numpy", inline="never")


@_inline
def _hash(pool: Any, words: Any, at: int, nbytes: int) -> Any:
    stop = at + nbytes
    head = min((at + 3) // 4 * 4, stop)
    tail = max(stop // 4 * 4, head)
    total = np.uint64(0)
    if tail > head:
        body = words[head // 4 : tail // 4]
        for i in range(len(body)):
            total += np.uint64(body[i]) * ((np.uint64(i) * _STEP & _LOW) | _ONE)
    for i in range(at, head):
        total += np.uint64(pool[i]) << np.uint64(8 * (i % 4) + 32)
    for i in range(tail, stop):
        total += np.uint64(pool[i]) << np.uint64(8 * (i % 4) + 31)
    return total


@_inline
def _clean4(words: Any, at: int, nbytes: int) -> Any:
    if at % 4 or nbytes % 4:
        return True
    body = words[at // 4 : (at + nbytes) // 4]
    hits = np.uint32(0)
    for i in range(len(body)):
        hits += np.uint32((body[i] & _MASK) == _BASE)
    return hits == 0


@_inline
def _clean8(longs: Any, at: int, nbytes: int) -> Any:
    if at % 8 or nbytes % 8:
        return True
    body = longs[at // 8 : (at + nbytes) // 8]
    hits = np.uint64(0)
    for i in range(len(body)):
        hits += np.uint64((body[i] & _MASK_TWICE) == _BASE_TWICE)
    return hits == 0


@_inline
def _none_awaited(words: Any, at: int, nbytes: int, word: int) -> Any:
    body = words[(at + 3) // 4 : max((at + nbytes) // 4, (at + 3) // 4)]
    hits, wanted = np.uint32(0), np.uint32(word)
    for i in range(len(body)):
        hits += np.uint32(body[i] == wanted)
    return hits == 0


@_inline
def _filled(pool: Any, words: Any, at: int, nbytes: int, word: int) -> Any:
    stop = at + nbytes
    head = min((at + 3) // 4 * 4, stop)
    tail = max(stop // 4 * 4, head)
    wrong = np.uint32(0)
    for i in range(at, head):
        wrong += np.uint32(pool[i] != (word >> (8 * (i % 4))) & 255)
    if tail > head:
        body, wanted = words[head // 4 : tail // 4], np.uint32(word)
        for i in range(len(body)):
            wrong |= body[i] ^ wanted
    for i in range(tail, stop):
        wrong |= np.uint32(pool[i] != (word >> (8 * (i % 4))) & 255)
    return wrong == 0


@_inline
def _fill(pool: Any, words: Any, at: int, nbytes: int, word: int) -> None:
    stop = at + nbytes
    head = min((at + 3) // 4 * 4, stop)
    tail = max(stop // 4 * 4, head)
    for i in range(at, head):
        pool[i] = (word >> (8 * (i % 4))) & 255
    if tail > head:
        words[head // 4 : tail // 4] = np.uint32(word)
    for i in range(tail, stop):
        pool[i] = (word >> (8 * (i % 4))) & 255


@_cached
def _run(state: Any, first: int, stop: int) -> int:
    """Carry out rows.

    `state` holds addresses and lengths, since handing one array over is quicker than nine.
    """
    pool = _carray(_at(state[0]), state[1], np.uint8)
    words = _carray(_at(state[0]), state[1] // 4, np.uint32)
    longs = _carray(_at(state[0]), state[1] // 8, np.uint64)
    actions = _carray(_at(state[2]), state[3], np.int8)
    ats = _carray(_at(state[4]), state[3], np.int64)
    sizes = _carray(_at(state[5]), state[3], np.int64)
    keys = _carray(_at(state[6]), state[3], np.int64)
    hashes = _carray(_at(state[7]), state[8], np.uint64)
    snaps = _carray(_at(state[9]), state[10], np.uint8)
    bad = _carray(_at(state[11]), state[3], np.int64)
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
                good = _clean8(longs, at, nbytes)
            elif action == HASHA:
                good = _none_awaited(words, at, nbytes, state[12])
            hashes[key] = content
        elif action == FILL:
            _fill(pool, words, at, nbytes, state[12] if key == AWAITED else key)
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


@_cached
def _digest(words: Any) -> Any:
    return _hash(words.view(np.uint8), words, 0, 4 * len(words))


class Compiled:
    """The executor in machine code; the pool starts at a multiple of 8 bytes and is one long."""

    def __init__(self, pool: Bytes) -> None:
        self._pool = pool
        self._hashes = np.zeros(0, dtype=np.uint64)
        self._awaited = AWAITED
        self.load(Rows.of([]), hashes=0, snaps=0)

    def load(self, rows: Rows, *, hashes: int, snaps: int) -> None:
        """Take other rows."""
        if hashes > len(self._hashes):
            self._hashes = np.concatenate([self._hashes, np.zeros(hashes - len(self._hashes), dtype=np.uint64)])
        self._snaps = np.zeros(snaps, dtype=np.uint8)
        self._bad = np.zeros(len(rows.at), dtype=np.int64)
        self._rows = rows  # kept alive with the other arrays: the state holds nothing but addresses
        columns = (rows.at, rows.nbytes, rows.key)
        self._state = np.array([
            self._pool.ctypes.data, len(self._pool), rows.action.ctypes.data, len(rows.at), *(c.ctypes.data for c in columns),
            self._hashes.ctypes.data, len(self._hashes), self._snaps.ctypes.data, snaps, self._bad.ctypes.data,
            self._awaited,
        ], dtype=np.int64)  # fmt: skip

    def await_with(self, word: int) -> None:
        """Use this word from now on for what waits to be written."""
        self._awaited = self._state[12] = word

    def run(self, first: int, stop: int) -> list[int]:
        """Carry out rows `[first, stop)` and return the bad ones."""
        return self.bad(_run(self._state, first, stop))

    def counter(self) -> Callable[[int, int], int]:
        """Return what carries out rows of the loaded table and returns how many are bad: `run`
        without a detour.
        """
        return partial(_run, self._state)

    def bad(self, count: int) -> list[int]:
        """Return the first `count` bad rows of the last call."""
        found: list[int] = self._bad[:count].tolist()
        return found

    def move(self, keys: list[int]) -> None:
        """Remember under 0, 1, ... what is remembered under each of the keys."""
        self._hashes[: len(keys)] = self._hashes[keys]

    def digest(self, memory: Bytes) -> int:
        """Return a hash of memory outside the pool."""
        if memory.__array_interface__["data"][0] % 4 or memory.nbytes % 4:
            memory = np.concatenate([memory, np.zeros(-memory.nbytes % 4, dtype=np.uint8)])
        return int(_digest(memory.view(np.uint32)))

    def copy(self, key: int, nbytes: int) -> Bytes:
        """Return what SNAP copied."""
        return self._snaps[key : key + nbytes].copy()


__all__ = ["Compiled"]
