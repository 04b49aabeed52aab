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

A front names what was waited for, and not what that had waited for itself; `before` is asked for
all of it, since it is kept beside the fronts.

Complexity: O(streams) for each call, O(1) for an op that nothing new comes before; `given_out`
O(memory that is owed). What this module does not see: what ops touch, and how long they take.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
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
        self.marks: dict[Hashable, HostMark] = {}
        self.assumed = 0
        """Returns that only the allocator's next answer tells of."""
        self.known = HostMark({}, {})
        """What the host knows to be done."""
        self._news = 0
        """How often that has grown."""
        self._heard: dict[int, int] = {}
        """By stream, how much of that its last op comes after."""
        self._last: Front = {}
        self._seen: dict[int, Front] = {}
        """By stream, what its last op comes after."""
        self._waiting: dict[int, Front] = {}
        """By stream, what its next op waits for."""
        self._all: dict[int, Front] = {}
        """By stream, the last op of each other one that comes before its next; never changed in
        place.
        """
        self.owes: dict[Hashable, tuple[DeviceBytes, HostMark]] = {}
        """Memory that went back while other streams were to use it, by its owner."""

    def stream(self, name: Hashable) -> int:
        """Return the number of a stream."""
        return self.streams.setdefault(name, len(self.streams))

    def put(self, stream: int, op: int) -> Sequence[int]:
        """Put an op on a stream; return the ops of other streams that it waits for, sorted."""
        self._last[stream] = op
        waiting = self._waiting.pop(stream, None)
        if waiting is None and self._heard.get(stream, 0) == self._news:
            return []
        needs = dict(self.known.front)
        _later(needs, waiting or {})
        if self._heard.get(stream, 0) != self._news:
            self._heard[stream] = self._news
            self._reach(stream, self.known.all)
        seen = self._seen.get(stream, {})
        after = {other: last for other, last in needs.items() if other != stream and last > seen.get(other, -1)}
        self._seen[stream] = {**seen, **after}
        return sorted(after.values())

    def before(self, stream: int) -> Front:
        """Return the last op of each other stream that comes before what a stream is given next, or
        was given last; not to be changed.
        """
        return self._all.get(stream, {})

    def record(self, mark: Hashable, stream: int) -> None:
        """HostMark what a stream has been given so far; a mark that is recorded again is moved."""
        self.marks[mark] = self._here(stream)

    def forget(self, mark: Hashable) -> None:
        """Drop a mark. Nothing where it is not known."""
        self.marks.pop(mark, None)

    def wait(self, mark: Hashable, stream: int) -> None:
        """Put what a stream is given from now on behind a mark.

        A mark that nobody recorded orders nothing, as on a device.
        """
        if mark in self.marks:
            self._wait(stream, self.marks[mark])

    def join(self, streams: Iterable[int], behind: Iterable[int] | None = None) -> None:
        """Put what each of these streams is given from now on behind all that the streams `behind`,
        or any, were given so far.
        """
        marks = [self._here(other) for other in (self.streams.values() if behind is None else behind)]
        for stream in streams:
            for mark in marks:
                self._wait(stream, mark)

    def synchronize(self, *streams: int) -> None:
        """Let the host know that these streams, or all where none is named, have done what they
        were given so far.
        """
        for stream in streams or self.streams.values():
            self._know(self._here(stream))

    def synchronize_mark(self, mark: Hashable) -> None:
        """Let the host know that what a mark marks is done."""
        if mark in self.marks:
            self._know(self.marks[mark])

    def front(self, stream: int) -> Front:
        """Return what a stream has been given so far, with what the next op is to wait for."""
        front = dict(self._waiting.get(stream, {}))
        if stream in self._last:
            front[stream] = self._last[stream]
        return front

    def freed(self, owner: Hashable, memory: DeviceBytes, streams: Iterable[int]) -> None:
        """Note that memory went back while these streams were recorded to use it."""
        _, owed = self.owes.get(owner, (memory, HostMark({}, {})))
        for stream in sorted(streams):
            owed = owed.with_(self._here(stream))
        if owed.front:
            self.owes[owner] = memory, owed

    def returned(self, owner: Hashable) -> None:
        """Let the host know that the recorded uses of memory that went back have ended."""
        if owner in self.owes:
            self._know(self.owes.pop(owner)[1])

    def given_out(self, memory: DeviceBytes) -> None:
        """Note that memory was given out: the uses recorded of its bytes have ended."""
        if not self.owes:
            return
        met = [owner for owner, (owed, _) in self.owes.items() if _meet(owed, memory)]
        self.assumed += len(met)
        for owner in met:
            self.returned(owner)

    def _here(self, stream: int) -> "HostMark":
        """Return a mark of what a stream has been given so far."""
        last = {stream: self._last[stream]} if stream in self._last else {}
        return HostMark(self.front(stream), {**self._all.get(stream, {}), **last})

    def _wait(self, stream: int, mark: "HostMark") -> None:
        _later(self._waiting.setdefault(stream, {}), mark.front)
        self._reach(stream, mark.all)

    def _know(self, mark: "HostMark") -> None:
        self.known = self.known.with_(mark)
        self._news += 1

    def _reach(self, stream: int, front: Front) -> None:
        """Let what a stream is given next come after a front."""
        mine = self._all.get(stream, {})
        fresh = {other: op for other, op in front.items() if other != stream and op > mine.get(other, -1)}
        if fresh:
            self._all[stream] = {**mine, **fresh}


class HostMark(NamedTuple):
    """What a stream had been given at a time."""

    front: Front
    """What is waited for by name."""
    all: Front
    """That, and all that it comes after."""

    def with_(self, other: "HostMark") -> "HostMark":
        """Return both together."""
        front, whole = dict(self.front), dict(self.all)
        _later(front, other.front)
        _later(whole, other.all)
        return HostMark(front, whole)


def _meet(one: DeviceBytes, other: DeviceBytes) -> bool:
    return one.device == other.device and one.low < other.high and other.low < one.high


def _later(known: Front, seen: Mapping[int, int]) -> None:
    """Add to what is known of each stream what was seen of it, if that is later."""
    for stream, op in seen.items():
        known[stream] = max(op, known.get(stream, -1))


__all__ = ["DeviceBytes", "Front", "HostMark", "HostOrder"]
