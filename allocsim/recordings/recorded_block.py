"""A block of a recording, with the ops that still matter of it: its last writer, and readers since.

Bytes are half-open ranges within the block. What this module does not see: who owns a byte now, and
what is wrong with a use.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from allocsim.programs.host_order import Front

LASTING: Final = frozenset({"parameter", "state"})
"""Roles of blocks that hold something before anybody writes them."""

Use = tuple[int, int, int, tuple[Any, Any, Any], Front]
"""(op, stream, number of its event, its kind, name and stream as told, what came before it): an op,
as long as it matters. It holds no event: those of a window go with it.
"""

Ends = tuple[int, int]


class RecordedBlock:
    """A block, from its alloc until nothing later can meet it."""

    __slots__ = ("alloc", "behind", "free", "front", "high", "lasting", "low", "name", "number", "only", "parts", "reach", "readers", "row", "size", "told", "whole")  # fmt: skip

    def __init__(self, name: Any, low: int, nbytes: int, number: int, alloc: Mapping[str, Any]) -> None:
        self.name = name
        self.low = low
        self.high = low + nbytes
        self.size = nbytes
        self.number = number
        self.alloc = alloc
        self.lasting = alloc.get("role") in LASTING
        self.free: tuple[int, Mapping[str, Any]] | None = None
        self.whole: Use | None = None
        """The last op that wrote all of it."""
        self.parts: dict[Ends, Use] | None = None
        """Later ones, by the range that they wrote."""
        self.reach = 0
        """The highest end of these."""
        self.readers: dict[tuple[int, int, int], Use] = {}
        """Readers since, by stream and range."""
        self.behind: list[RecordedBlock] | None = None
        """Earlier owners of its bytes which its users must come after."""
        self.only: int | None = -1
        """The one stream that has used it; -1 before any, None once there were several."""
        self.front: Front | None = None
        """The last of its uses by stream, once it was asked for and as long as none came since."""
        self.row: Any = None
        """What is carried of it into a later window (`carried`), as long as nothing changed it."""
        self.told: list[tuple[int, Mapping[str, Any]]] | None = None
        """Events `record_stream` and `returned`."""

    def uses(self) -> Iterator[Use]:
        """Yield the ops that still matter."""
        if self.whole is not None:
            yield self.whole
        if self.parts:
            yield from self.parts.values()
        yield from self.readers.values()

    def last(self) -> Front:
        """Return the last of the uses that still matter, by stream."""
        if self.front is None:
            self.front = {}
            for op, stream, _, _, _ in self.uses():
                self.front[stream] = max(op, self.front.get(stream, -1))
        return self.front


def all_before(owners: list[RecordedBlock], stream: int, before: Front) -> bool:
    """Return whether an op comes after all uses by earlier owners."""
    for owner in owners:
        if owner.only == stream:
            continue
        for other, op in owner.last().items():
            if other != stream and before.get(other, -1) < op:
                return False
    return True


def covered(parts: dict[Ends, Use] | None, low: int, high: int) -> bool:
    """Return whether somebody wrote each byte of `[low, high)`."""
    for start, end in sorted(parts or ()):
        if start <= low < end:
            low = end
    return low >= high


__all__ = ["Ends", "RecordedBlock", "Use", "all_before", "covered"]
