"""Mutants of free lists: online first-fit allocators with one bug each.

Driven by `allocsim.allocators.driven_online`; each does what a first-fit allocator does but for the
bug in its name.

What this module does not see: programs.
"""

from allocsim.allocators.free_list import FreeList
from allocsim.model.layout import LIMIT


class Book:
    """First fit over a list of free ranges; right as it stands."""

    def __init__(self, capacity: int | None, alignment: int) -> None:
        self.alignment = alignment
        self.free_ranges = FreeList(0, LIMIT if capacity is None else min(capacity, LIMIT))

    def alloc(self, nbytes: int, alignment: int) -> int | None:
        """Return the lowest offset that is free."""
        for low, high in self.free_ranges:
            at = -(-low // alignment) * alignment
            if at + nbytes <= high + self.allowed(nbytes):
                self.free_ranges.take(at, at + nbytes)
                return at
        return None

    def allowed(self, nbytes: int) -> int:  # noqa: ARG002 - the seam's signature
        """Return how many bytes a range may lack."""
        return 0

    def free(self, offset: int, nbytes: int) -> None:
        """Give bytes back."""
        self.free_ranges.give(offset, offset + nbytes)


class Joining(Book):
    """Joins a freed block with the next free one above it if that is near, without a look at what
    lies between.
    """

    NEAR = 16

    def free(self, offset: int, nbytes: int) -> None:
        """Give bytes back, and what lies between them and the next free ones."""
        end = offset + nbytes
        above = next((low for low, _ in self.free_ranges if low >= end), end)
        self.free_ranges.give(offset, above if above - end <= self.NEAR else end)


class Short(Book):
    """Takes a range that lacks a word."""

    def allowed(self, nbytes: int) -> int:
        """A range may lack four bytes of more than four."""
        return 4 if nbytes > 4 and len(self.free_ranges.starts) > 1 else 0


class Twice(Book):
    """Enters a freed block in its free list twice, and hands it out from there first."""

    def __init__(self, capacity: int | None, alignment: int) -> None:
        super().__init__(capacity, alignment)
        self.bins: list[tuple[int, int]] = []

    def alloc(self, nbytes: int, alignment: int) -> int | None:
        """Return a freed block of this size if there is one, else as before."""
        for place, (offset, size) in enumerate(self.bins):
            if size == nbytes and offset % alignment == 0:
                del self.bins[place]
                return offset
        return super().alloc(nbytes, alignment)

    def free(self, offset: int, nbytes: int) -> None:
        """Put the block into its bin, twice."""
        self.bins += [(offset, nbytes)] * 2
