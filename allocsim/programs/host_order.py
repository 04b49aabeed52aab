"""What ops wait for, by what the host said while it put them on streams.

    order = HostOrder()
    main, side = order.stream("main"), order.stream("side")
    order.put(main, 0)         # op 0: waits for nothing
    order.record("mark", main)
    order.wait("mark", side)
    order.put(side, 1)         # op 1: [0]

Streams are numbered in the order in which they are met. A *front* is, by stream, the last op that
something comes after. A mark holds the front of its stream when it was recorded, with what the next
op there was to wait for; a stream that waits for a mark puts its next op behind that front. What
the host knows to be done comes before all that it orders later, on any stream.

Memory that goes back to its allocator while other streams were recorded to use it (`freed`) is owed
what these were given by then. `returned` says that they are done. Where nobody says so and the
bytes are given out again (`given_out`), that is taken as proof: the allocator's word, counted in
`assumed`.

Complexity: O(streams) for each call; `given_out` O(memory that is owed). What this module does not
see: what ops touch, and how long they take.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

Front = dict[int, int]
"""Stream -> its last op."""


class DeviceBytes(NamedTuple):
    """Bytes `[low, high)` of a device."""

    device: int
    low: int
    high: int


class HostOrder:
    """Streams, marks and what the host knows, while ops come in."""

    def __init__(self) -> None:
        self.streams: dict[Hashable, int] = {}
        self.marks: dict[Hashable, Front] = {}
        self.assumed = 0
        """Returns that only the allocator's next answer tells of."""
        self._last: Front = {}
        self._seen: dict[int, Front] = {}
        """By stream, what its last op comes after."""
        self._known: Front = {}
        self._waiting: dict[int, Front] = {}
        """By stream, what its next op waits for."""
        self._owed: dict[Hashable, tuple[DeviceBytes, Front]] = {}

    def stream(self, name: Hashable) -> int:
        """Return the number of a stream."""
        return self.streams.setdefault(name, len(self.streams))

    def put(self, stream: int, op: int) -> list[int]:
        """Put an op on a stream; return the ops of other streams that it waits for, sorted."""
        needs = dict(self._known)
        _later(needs, self._waiting.pop(stream, {}))
        seen = self._seen.get(stream, {})
        after = {other: last for other, last in needs.items() if other != stream and last > seen.get(other, -1)}
        self._seen[stream] = {**seen, **after}
        self._last[stream] = op
        return sorted(after.values())

    def record(self, mark: Hashable, stream: int) -> None:
        """Mark what a stream has been given so far; a mark that is recorded again is moved."""
        self.marks[mark] = self.front(stream)

    def forget(self, mark: Hashable) -> None:
        """Drop a mark. Nothing where it is not known."""
        self.marks.pop(mark, None)

    def wait(self, mark: Hashable, stream: int) -> None:
        """Put what a stream is given from now on behind a mark.

        A mark that nobody recorded orders nothing, as on a device.
        """
        _later(self._waiting.setdefault(stream, {}), self.marks.get(mark, {}))

    def join(self, streams: Iterable[int]) -> None:
        """Put what each of these streams is given from now on behind all that any stream was given
        so far.
        """
        for stream in streams:
            for other in self.streams.values():
                _later(self._waiting.setdefault(stream, {}), self.front(other))

    def synchronize(self, *streams: int) -> None:
        """Let the host know that these streams, or all where none is named, have done what they
        were given so far.
        """
        for stream in streams or self.streams.values():
            _later(self._known, self.front(stream))

    def synchronize_mark(self, mark: Hashable) -> None:
        """Let the host know that what a mark marks is done."""
        _later(self._known, self.marks.get(mark, {}))

    def front(self, stream: int) -> Front:
        """Return what a stream has been given so far, with what the next op is to wait for."""
        front = dict(self._waiting.get(stream, {}))
        if stream in self._last:
            front[stream] = self._last[stream]
        return front

    def freed(self, owner: Hashable, memory: DeviceBytes, streams: Iterable[int]) -> None:
        """Note that memory went back while these streams were recorded to use it."""
        _, owed = self._owed.get(owner, (memory, {}))
        for stream in sorted(streams):
            _later(owed, self.front(stream))
        if owed:
            self._owed[owner] = memory, owed

    def returned(self, owner: Hashable) -> None:
        """Let the host know that the recorded uses of memory that went back have ended."""
        _later(self._known, self._owed.pop(owner, (None, {}))[1])

    def given_out(self, memory: DeviceBytes) -> None:
        """Note that memory was given out: the uses recorded of its bytes have ended."""
        met = [owner for owner, (owed, _) in self._owed.items() if _meet(owed, memory)]
        self.assumed += len(met)
        for owner in met:
            self.returned(owner)


def _meet(one: DeviceBytes, other: DeviceBytes) -> bool:
    return one.device == other.device and one.low < other.high and other.low < one.high


def _later(known: Front, seen: Mapping[int, int]) -> None:
    """Add to what is known of each stream what was seen of it, if that is later."""
    for stream, op in seen.items():
        known[stream] = max(op, known.get(stream, -1))


__all__ = ["DeviceBytes", "Front", "HostOrder"]
