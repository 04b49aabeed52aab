"""Which bytes of this process are readable, so that a wrong pointer ends in an error line and not
in a crash.

Contract: `ReadableMemory.now()` has the mappings in `/proc/self/maps` at that moment.
`holds(address, nbytes)` tells whether a range of bytes is readable, `holds_all` the same of many
addresses, `runs(address)` whether an address is executable. It does not notice memory that another
thread unmaps afterwards.

O(log mappings) a question. Linux only. What this module does not see: the meaning of the bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

MAPS = Path("/proc/self/maps")


def mappings() -> Iterator[tuple[range, str, int, str]]:
    """Yield the mappings of this process: addresses, rights (`r-xp`), offset in the file, name."""
    for line in MAPS.read_text().splitlines():
        span, rights, offset, _, _, *name = line.split(maxsplit=5)
        yield range(*(int(end, 16) for end in span.split("-"))), rights, int(offset, 16), name[0] if name else ""


@dataclass(frozen=True, slots=True)
class ReadableMemory:
    """Ranges of addresses, sorted and joined, half-open."""

    starts: NDArray[np.uint64]
    stops: NDArray[np.uint64]
    code: tuple[range, ...]
    """Ranges that may be executed."""

    @classmethod
    def now(cls) -> Self:
        """Return what is mapped now."""
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
        """Return whether these bytes may be read."""
        return not self.outside([address], nbytes)

    def outside(self, addresses: Sequence[int], nbytes: int) -> list[int]:
        """Return those of the addresses at which fewer than `nbytes` may be read, or that are no
        multiple of 8.
        """
        wrong = [address for address in addresses if not 0 < address < 1 << 63 or address % 8]
        known = np.array([address for address in addresses if 0 < address < 1 << 63], dtype=np.uint64)
        if not known.size:
            return wrong
        place = np.searchsorted(self.starts, known, side="right")
        inside = (place > 0) & (known + np.uint64(nbytes) <= self.stops[np.maximum(place, 1) - 1])
        return wrong + [address for address in known[~inside].tolist() if address not in wrong]

    def runs(self, address: int) -> bool:
        """Return whether code may lie at this address."""
        return any(address in span for span in self.code)
