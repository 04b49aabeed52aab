"""Row actions: the simple actions on bytes that a trace consists of, and their executors.

A row is (action, at, nbytes, key) on the range `[at, at + nbytes)` of the pool:

| action | does | key |
|---|---|---|
| HASH | remember the content | place in `hashes` |
| HASH4, HASH8 | the same, and look for poison among elements of 4 or 8 bytes | place in `hashes` |
| HASHA | the same, and look for words of `poison.awaited`, whatever the elements | place in `hashes` |
| VERIFY | is the content still the one remembered? | place in `hashes` |
| FILL | write a word all over | the word; `poison.AWAITED` is that of the run |
| EXPECT | is the word still everywhere? | the word |
| SNAP | copy | place in `snaps` |
| SAME | is it still the copy? Leaves in its place what differs (exclusive or) | place in `snaps` |

A question answered "no" (for HASH4, HASH8 and HASHA: poison found) is a *bad row*; its number is
returned.
VERIFY then remembers what is there, so that one change is told once. Numbers of rows stand in order
of execution.

Two executors do the same, with hashes of their own: `Plain` with numpy and zlib, ready at once;
`allocsim.p_sanitizer.compiled_executor` with numba, some hundred times faster on small ranges.
Neither allocates in proportion to the pool.

What this module does not see: why a row stands where it stands.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from allocsim.model.layout import Int64s
from allocsim.p_sanitizer import poison

HASH, HASH4, HASH8, HASHA, VERIFY, FILL, EXPECT, SNAP, SAME = range(9)

Bytes = NDArray[np.uint8]
Other = tuple[int, int, int]
"""A range of the pool, and the form of poison in it (`poison.drawn`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows as columns."""

    action: NDArray[np.int8]
    at: Int64s
    nbytes: Int64s
    key: Int64s

    @classmethod
    def of(cls, rows: list[tuple[int, int, int, int]]) -> "Rows":
        """Return the columns of a list of rows."""
        table = np.array(rows, dtype=np.int64).reshape(-1, 4)
        columns = [np.ascontiguousarray(table[:, column]) for column in range(4)]
        return cls(action=columns[0].astype(np.int8), at=columns[1], nbytes=columns[2], key=columns[3])


class RowExecutor(Protocol):
    """Carries rows out over one pool."""

    def load(self, rows: Rows, *, hashes: int, snaps: int) -> None:
        """Take other rows; hashes remembered under keys below the number given are kept."""

    def await_with(self, word: int) -> None:
        """Use this word from now on for what waits to be written."""

    def run(self, first: int, stop: int) -> list[int]:
        """Carry out rows `[first, stop)` and return the bad ones."""

    def counter(self) -> Callable[[int, int], int]:
        """Return what carries out rows of the loaded table and returns how many are bad: `run`
        without a detour.
        """

    def bad(self, count: int) -> list[int]:
        """Return the first `count` bad rows of the last call."""

    def move(self, keys: list[int]) -> None:
        """Remember under 0, 1, ... what is remembered under each of the keys."""

    def digest(self, memory: Bytes) -> int:
        """Return a hash of memory outside the pool."""

    def copy(self, key: int, nbytes: int) -> Bytes:
        """Return what SNAP copied or SAME left."""


class Plain:
    """The executor without a compiler."""

    def __init__(self, pool: Bytes, other: Other | None = None) -> None:
        """Take a pool; in the range `other` of it dead bytes hold that form of poison."""
        self._pool, self._other = pool, other
        self._view = memoryview(cast("Any", pool))
        self._awaited = poison.AWAITED
        self._hashes: list[int] = []
        self._snaps = bytearray()
        self._rows: list[tuple[int, int, int, int]] = []
        self._bad: list[int] = []
        self._actions: tuple[Callable[[int, int, int], bool], ...] = (
            self._hash, partial(self._hash_floats, size=4), partial(self._hash_floats, size=8), self._hash_awaited,
            self._verify, self._fill, self._expect, self._snap, self._same,
        )  # fmt: skip

    def load(self, rows: Rows, *, hashes: int, snaps: int) -> None:
        """Take other rows."""
        columns = (rows.action, rows.at, rows.nbytes, rows.key)
        self._rows = list(zip(*(column.tolist() for column in columns), strict=True))
        self._hashes += [0] * (hashes - len(self._hashes))
        self._snaps = bytearray(snaps)

    def await_with(self, word: int) -> None:
        """Use this word from now on for what waits to be written."""
        self._awaited = word

    def run(self, first: int, stop: int) -> list[int]:
        """Carry out rows `[first, stop)` and return the bad ones."""
        self._bad = []
        for number in range(first, stop):
            action, at, nbytes, key = self._rows[number]
            if not self._actions[action](at, nbytes, key):
                self._bad.append(number)
        return self._bad

    def counter(self) -> Callable[[int, int], int]:
        """Return what carries out rows of the loaded table and returns how many are bad."""
        return lambda first, stop: len(self.run(first, stop))

    def bad(self, count: int) -> list[int]:
        """Return the first `count` bad rows of the last call."""
        return self._bad[:count]

    def move(self, keys: list[int]) -> None:
        """Remember under 0, 1, ... what is remembered under each of the keys."""
        self._hashes[: len(keys)] = [self._hashes[key] for key in keys]

    def digest(self, memory: Bytes) -> int:
        """Return a hash of memory outside the pool."""
        return zlib.crc32(cast("Any", memory))

    def copy(self, key: int, nbytes: int) -> Bytes:
        """Return what SNAP copied."""
        return np.frombuffer(bytes(self._snaps[key : key + nbytes]), dtype=np.uint8)

    def _hash(self, at: int, nbytes: int, key: int) -> bool:
        self._hashes[key] = zlib.crc32(self._view[at : at + nbytes])
        return True

    def _hash_floats(self, at: int, nbytes: int, key: int, *, size: int) -> bool:
        self._hash(at, nbytes, key)
        return not (at % size == 0 == nbytes % size and poison.found(self._pool[at : at + nbytes].view(f"f{size}")))

    def _hash_awaited(self, at: int, nbytes: int, key: int) -> bool:
        self._hash(at, nbytes, key)
        low, high = -(-at // 4) * 4, (at + nbytes) // 4 * 4
        return low >= high or not bool((self._pool[low:high].view(np.uint32) == self._awaited).any())

    def _verify(self, at: int, nbytes: int, key: int) -> bool:
        before = self._hashes[key]
        self._hash(at, nbytes, key)
        return self._hashes[key] == before

    def _fill(self, at: int, nbytes: int, key: int) -> bool:
        word = self._awaited if key == poison.AWAITED else key
        self._pool[at : at + nbytes] = self._dead(at, nbytes, word)
        return True

    def _expect(self, at: int, nbytes: int, key: int) -> bool:
        return bool((self._pool[at : at + nbytes] == self._dead(at, nbytes, key)).all())

    def _dead(self, at: int, nbytes: int, word: int) -> Bytes:
        """Return what dead bytes are to hold: what is there where they stay as they lay."""
        wanted = pattern(at, nbytes, word, self._other)
        if self._other is not None and self._other[2] == poison.AS_IT_LAY:
            low, high = max(self._other[0], at), min(self._other[1], at + nbytes)
            wanted[low - at : max(high, low) - at] = self._pool[low : max(high, low)]
        return wanted

    def _snap(self, at: int, nbytes: int, key: int) -> bool:
        self._snaps[key : key + nbytes] = self._view[at : at + nbytes]
        return True

    def _same(self, at: int, nbytes: int, key: int) -> bool:
        changed = self.copy(key, nbytes) ^ self._pool[at : at + nbytes]
        self._snaps[key : key + nbytes] = changed.tobytes()
        return not changed.any()


def pattern(at: int, nbytes: int, word: int, other: Other | None = None) -> Bytes:
    """Return what `[at, at + nbytes)` holds when it is filled with a word.

    In the range of `other` it is another form of the word.
    """
    shift = at % 4
    count = (shift + nbytes + 3) // 4
    filled: Bytes = np.full(count, word, dtype="<u4").view(np.uint8)[shift : shift + nbytes]
    if other is None:
        return filled
    low, high = max(other[0] - at, 0), min(other[1] - at, nbytes)
    if low < high:
        filled[low:high] = poison.drawn(at // 4, count, word, other[2]).view(np.uint8)[shift:][low:high]
    return filled
