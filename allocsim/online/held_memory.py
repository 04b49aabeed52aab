"""The book that is kept beside an online allocator: which bytes are out, who used them, and when.

It is the judge of the answers, and shares no code with allocators. Blocks that are held lie sorted
by address; bytes that were given back keep the last use of each stream until they are given out
again, so the book grows with what is live and with the holes between, not with the calls so far.

What the book calls broken:

| property | an answer breaks it that |
|---|---|
| `answers` | is no address, no list of pages, or of another size than was asked |
| `inside` | ends beyond the capacity, or begins below 0 |
| `aligned` | is no multiple of the alignment |
| `disjoint` | has bytes that somebody still holds |
| `ordered` | has bytes that a stream may still use: nothing orders that use before the new owner's |

O(log blocks + blocks met) a question, and what a sorted list moves. What this module does not see:
calls, and who made them.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Final

from allocsim.online.device import Device


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that an allocator did not keep."""

    property: str
    cause: str
    """The same for all findings of a kind: no addresses, no numbers."""
    sentence: str
    """With the thing, the value and the rule."""


HANGS: Final = "the target hangs"
"""The cause of an answer that does not come."""


Uses = dict[int, tuple[int, bool]]
"""By stream, its last op somewhere, and whether the allocator was told of it."""


@dataclass(slots=True, eq=False)
class HeldBlock:
    """Bytes `[low, high)` that were given out once: a block, or a page of one."""

    low: int
    high: int
    name: str
    stream: int
    alignment: int = 1
    page: int | None = None
    holders: int = 1
    written: bool = False
    uses: Uses = field(default_factory=dict)


class GoneMemory:
    """Bytes that nobody holds any more, with who used them."""

    __slots__ = ("_lows", "_pieces")

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._pieces: dict[int, tuple[int, str, Uses]] = {}
        """By address: end, name and last uses."""

    def add(self, low: int, high: int, name: str, uses: Uses) -> None:
        """Write down whose bytes `[low, high)` were; these uses are not changed any more."""
        self._pieces[low] = high, name, uses
        insort(self._lows, low)

    def taken(self, low: int, high: int) -> list[tuple[str, Uses]]:
        """Forget what was known of `[low, high)`; return names and uses, by address."""
        lows, found = self._lows, []
        at = bisect_left(lows, low)
        if at and self._pieces[lows[at - 1]][0] > low:
            at -= 1
        stop = bisect_left(lows, high, at)
        if at == stop:
            return []
        kept: list[int] = []
        for start in lows[at:stop]:
            end, name, uses = self._pieces.pop(start)
            found.append((name, uses))
            for left, right in ((start, min(end, low)), (max(start, high), end)):
                if left < right:
                    self._pieces[left] = right, name, uses
                    kept.append(left)
        lows[at:stop] = kept
        return found


class HeldMemory:
    """What is out, and what was."""

    __slots__ = ("_gone", "_held", "_lows", "capacity", "device", "live", "most", "top")

    def __init__(self, device: Device, capacity: int | None) -> None:
        self.device = device
        self.capacity = capacity
        self.live = 0
        """Bytes that are held."""
        self.most = 0
        """The most of them so far."""
        self.top = 0
        """The highest end of an answer so far."""
        self._lows: list[int] = []
        self._held: dict[int, HeldBlock] = {}
        self._gone = GoneMemory()

    def given(self, block: HeldBlock) -> Broken | None:
        """Write a block down as held; return what is wrong with it."""
        low, high = block.low, block.high
        if low < 0 or (self.capacity is not None and high > self.capacity):
            return Broken("inside", "memory outside the capacity", f"{_bytes(block)} lies outside [0, {self.capacity})")
        if low % block.alignment:
            return Broken(
                "aligned",
                "an address that is not aligned",
                f"{_bytes(block)}: {low} is no multiple of {block.alignment}",
            )
        for other in self.meeting(block):
            sentence = f"{_bytes(block)} meets {_bytes(other)}, which is still held"
            return Broken("disjoint", "memory that is still held", sentence)
        broken = self._ordered(block)
        if broken is not None:
            return broken
        insort(self._lows, low)
        self._held[low] = block
        self.live += high - low
        self.most = max(self.most, self.live)
        self.top = max(self.top, high)
        return None

    def meeting(self, block: HeldBlock) -> list[HeldBlock]:
        """Return the blocks that are held and share a byte with this one, by address."""
        lows, found = self._lows, []
        at = max(bisect_left(lows, block.low) - 1, 0)
        while at < len(lows) and lows[at] < block.high:
            if self._held[lows[at]].high > block.low:
                found.append(self._held[lows[at]])
            at += 1
        return found

    def _ordered(self, block: HeldBlock) -> Broken | None:
        """Return whose use of the bytes may still run."""
        for name, uses in self._gone.taken(block.low, block.high):
            for stream, (number, _) in uses.items():
                if not self.device.ordered(stream, number, block.stream):
                    return Broken(
                        "ordered",
                        "memory that a stream may still use",
                        f"{_bytes(block)} is given to stream {block.stream}, but stream {stream} may still use it as "
                        f"{name}: nothing orders its op {number} before",
                    )
        return None

    def dropped(self, block: HeldBlock) -> None:
        """Write down that nobody holds a block any more; its uses may go on."""
        del self._lows[bisect_left(self._lows, block.low)], self._held[block.low]
        self.live -= block.high - block.low
        if block.high > block.low and block.uses:
            self._gone.add(block.low, block.high, block.name, dict(block.uses))


def _bytes(block: HeldBlock) -> str:
    return f"{block.name} at [{block.low}, {block.high})"
