"""Check which bytes of this process are readable, so that a wrong pointer ends in an error message
and not in a crash.

Contract: `ReadableMemory.now()` holds the mappings that `/proc/self/maps` lists at that moment.
`holds(address, nbytes)` returns whether a byte range is readable. `outside(addresses, nbytes)`
checks many addresses and returns the addresses that fail. `runs(address)` returns whether an
address is executable. If another thread unmaps memory afterwards, the object does not notice.

`outside` costs O(log mappings) for each address, and `runs` O(mappings). The module works on Linux
only. This module does not examine what the bytes mean.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

MAPS = Path("/proc/self/maps")


def mappings() -> Iterator[tuple[range, str, int, str]]:
    """Yield (addresses, rights, file offset, file name) of each mapping; rights are like `r-xp`."""
    for line in MAPS.read_text().splitlines():
        span, rights, offset, _, _, *name = line.split(maxsplit=5)
        yield range(*(int(end, 16) for end in span.split("-"))), rights, int(offset, 16), name[0] if name else ""


@dataclass(frozen=True, slots=True)
class ReadableMemory:
    """The readable address ranges, sorted and joined, and the executable ones; all half-open."""

    starts: NDArray[np.uint64]
    stops: NDArray[np.uint64]
    code: tuple[range, ...]
    """The executable address ranges."""

    @classmethod
    def now(cls) -> Self:
        """Return the ranges that are mapped now."""
        readable: list[list[int]] = []
        code = []
        for span, rights, _, name in mappings():
            if rights[2] == "x":
                code.append(span)
            if rights[0] != "r" or name in {"[vvar]", "[vsyscall]"}:
                continue
            if readable and readable[-1][1] == span.start:
                readable[-1][1] = span.stop
            else:
                readable.append([span.start, span.stop])
        ranges = np.array(readable, dtype=np.uint64).reshape(-1, 2)
        return cls(ranges[:, 0].copy(), ranges[:, 1].copy(), tuple(code))

    def holds(self, address: int, nbytes: int) -> bool:
        """Return whether these bytes are readable and the address is a multiple of 8."""
        return not self.outside([address], nbytes)

    def outside(self, addresses: Sequence[int], nbytes: int) -> list[int]:
        """Return each address that is no multiple of 8, or from which on not all of `nbytes` bytes
        are readable.
        """
        wrong = [address for address in addresses if not 0 < address < 1 << 63 or address % 8]
        known = np.array([address for address in addresses if 0 < address < 1 << 63], dtype=np.uint64)
        if not known.size:
            return wrong
        place = np.searchsorted(self.starts, known, side="right")
        inside = (place > 0) & (known + np.uint64(nbytes) <= self.stops[np.maximum(place, 1) - 1])
        return wrong + [address for address in known[~inside].tolist() if address not in wrong]

    def runs(self, address: int) -> bool:
        """Return whether this address is in an executable range."""
        return any(address in span for span in self.code)
