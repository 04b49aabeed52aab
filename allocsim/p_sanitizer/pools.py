"""Memory with red zones: one pool of bytes that holds every arena and every buffer outside them.

Convention: a *block* is a stretch of the pool for one arena (as long as its highest slot reaches)
or for one buffer with memory of its own. Between, before and behind blocks lie at least
`ZONE_BYTES` of red zone. Blocks begin at multiples of `ALIGNMENT` and so does the pool, so a slot's
alignment (up to that) holds in memory as it does in the plan, and the offsets within an arena are
the plan's. So *gaps* between slots are guarded only while they are free, and there is no red zone
between two slots that touch.

The pool lies between two stretches of `GUARD_BYTES` that nobody may touch (pages without any right)
and has all between them; what no block needs of its last page is red zone. What reads or writes
further than the red zones reach, and has left the pool, ends the process there, instead of changing
the host's own memory unseen. `p_sanitizer.watched` makes an incident of that. Where a system has no
`mprotect` there are no guards (`Pool.guarded` says so).

A pool can be mapped twice (`guard`): `memory` is the checker's view of the bytes, `view` the one
that kernels are given; else they are one. It can give each block pages of its own (`Ends`), which
end or begin where a page without a block does.

What this module does not see: what lies in a block.
"""

import ctypes
import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from allocsim.errors import ModelError
from allocsim.p_sanitizer import poison
from allocsim.p_sanitizer.guard import twice
from allocsim.p_sanitizer.row_actions import Bytes, pattern

Ends = Literal["end", "begin"]
"""Where a block with pages of its own touches the page behind or before it."""

ZONE_BYTES: Final = 256
ALIGNMENT: Final = 64
GUARD_BYTES: Final = 1 << 26
"""On each side; addresses, not memory: no page of it is ever there."""
HUGE: Final = 1 << 22
"""From so many bytes on huge pages are asked for, as numpy does."""


@dataclass(slots=True, eq=False)
class Pool:
    """A pool that blocks are cut from, one after the other."""

    memory: Bytes
    """All of it, as the checker sees it; poisoned throughout."""
    view: Bytes
    """The same bytes, as kernels are given them."""
    ends: Ends | None = None
    """How blocks lie on pages of their own; None where they share pages."""
    used: int = ZONE_BYTES
    """Where the next block begins, at the earliest."""
    guarded: bool = False
    """Whether guard pages lie round it."""

    @classmethod
    def of(cls, sizes: Iterable[int], *, mapped_twice: bool = False, ends: Ends | None = None) -> "Pool":
        """Make a pool with room for blocks of these sizes.

        Raises ModelError where there is not that much memory, or no page can be mapped twice.
        """
        unit, between = (mmap.PAGESIZE, mmap.PAGESIZE) if ends else (ALIGNMENT, ZONE_BYTES)
        needed = between + sum(-(-size // unit) * unit + between for size in sizes)
        nbytes = -(-needed // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            memory, view, guarded = _between_guards(nbytes, mapped_twice=mapped_twice or ends is not None)
            memory.view("<u4")[:] = poison.ZONE
        except (MemoryError, ValueError, OverflowError, OSError) as error:
            raise ModelError("", f"{nbytes} bytes cannot be allocated") from error
        return cls(memory, view, ends, between, guarded)

    def take(self, nbytes: int, alignment: int = ALIGNMENT) -> Bytes:
        """Return the next block as kernels see it, filled with what says that nobody has written
        it.
        """
        unit, between = (mmap.PAGESIZE, mmap.PAGESIZE) if self.ends else (ALIGNMENT, ZONE_BYTES)
        start, room = self.used, -(-nbytes // unit) * unit
        if start + room + between > -(-len(self.memory) // unit) * unit:
            raise ModelError("", f"no room for another block of {nbytes} bytes in a pool of {len(self.memory)}")
        self.used = start + room + between
        if self.ends == "end":
            start += (room - nbytes) // alignment * alignment
        self.memory[start : start + nbytes] = pattern(start, nbytes, poison.NEVER)
        return self.view[start : start + nbytes]

    def position(self, array: Bytes) -> int | None:
        """Return where in the pool an array that was taken begins, None if it lies elsewhere."""
        offset = int(array.__array_interface__["data"][0]) - int(self.view.__array_interface__["data"][0])
        return offset if offset >= 0 and offset + array.nbytes <= len(self.view) else None


def _between_guards(nbytes: int, *, mapped_twice: bool) -> tuple[Bytes, Bytes, bool]:
    """Return whole pages of memory between two guards, two views of them, and whether the system
    gave any guards.

    It is private, so that what a fork writes stays the fork's, unless it is mapped twice.
    """
    size = nbytes + 2 * GUARD_BYTES
    if mapped_twice:
        views = twice(size)
    else:
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
        region = mmap.mmap(-1, size, **private)
        if nbytes >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            region.madvise(mmap.MADV_HUGEPAGE, GUARD_BYTES, nbytes)
        views = (np.frombuffer(region, dtype=np.uint8),) * 2
    guarded = all(_forbid(int(view.ctypes.data) + at) for view in views for at in (0, GUARD_BYTES + nbytes))
    memory, view = (view[GUARD_BYTES : GUARD_BYTES + nbytes] for view in views)
    return memory, view, guarded


def _forbid(address: int) -> bool:
    """Take all rights from a guard's pages; return whether that could be done."""
    try:
        protect = ctypes.CDLL(None, use_errno=True).mprotect
    except (AttributeError, OSError, TypeError):  # a system without it
        return False
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return bool(protect(address, GUARD_BYTES, 0) == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedBlock:
    """A block once it is cut, with what it is."""

    start: int
    nbytes: int
    arena: int | None
    """None for the memory of one buffer."""
