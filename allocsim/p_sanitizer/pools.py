"""Memory with red zones: one pool of bytes that holds every arena and every buffer outside them.

Convention: a *block* is a stretch of the pool for one arena (as long as its highest slot reaches)
or for one buffer with memory of its own. Between, before and behind blocks lie at least
`ZONE_BYTES` of red zone. Blocks begin at multiples of `ALIGNMENT` and so does the pool, so a slot's
alignment (up to that) holds in memory as it does in the plan, and the offsets within an arena are
the plan's. So *gaps* between slots are guarded only while they are free, and there is no red zone
between two slots that touch.

What this module does not see: what lies in a block.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.p_sanitizer import poison
from allocsim.p_sanitizer.row_actions import Bytes, pattern

ZONE_BYTES: Final = 256
ALIGNMENT: Final = 64


@dataclass(slots=True, eq=False)
class Pool:
    """A pool that blocks are cut from, one after the other."""

    memory: Bytes
    """All of it; poisoned throughout."""
    used: int = ZONE_BYTES
    """Where the next block begins."""

    @classmethod
    def of(cls, sizes: Iterable[int]) -> "Pool":
        """Make a pool with room for blocks of these sizes.

        Raises ModelError where there is not that much memory.
        """
        nbytes = ZONE_BYTES + sum(-(-size // ALIGNMENT) * ALIGNMENT + ZONE_BYTES for size in sizes)
        try:
            raw = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
        except (MemoryError, ValueError) as error:
            raise ModelError("", f"{nbytes} bytes cannot be allocated") from error
        start = -raw.ctypes.data % ALIGNMENT
        memory = raw[start : start + nbytes]
        memory[:] = pattern(0, nbytes, poison.ZONE)
        return cls(memory)

    def take(self, nbytes: int) -> Bytes:
        """Return the next block, filled with what says that nobody has written it."""
        start = self.used
        if start + nbytes + ZONE_BYTES > len(self.memory):
            raise ModelError("", f"no room for another block of {nbytes} bytes in a pool of {len(self.memory)}")
        self.used = start + -(-nbytes // ALIGNMENT) * ALIGNMENT + ZONE_BYTES
        block = self.memory[start : start + nbytes]
        block[:] = pattern(start, nbytes, poison.NEVER)
        return block

    def position(self, array: Bytes) -> int | None:
        """Return where in the pool an array begins, None if it lies elsewhere."""
        offset = int(array.__array_interface__["data"][0]) - int(self.memory.__array_interface__["data"][0])
        return offset if offset >= 0 and offset + array.nbytes <= len(self.memory) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedBlock:
    """A block once it is cut, with what it is."""

    start: int
    nbytes: int
    arena: int | None
    """None for the memory of one buffer."""
