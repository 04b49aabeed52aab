"""Derives the waits of ops from the calls of the host: it puts ops on streams, records and waits.

    order = HostOrder()
    main, side = order.stream("main"), order.stream("side")
    order.put(main, 0)         # op 0: waits for nothing
    order.record("mark", main)
    order.wait("mark", side)
    order.put(side, 1)         # op 1: [0]

Streams are numbered in the order in which they are first named. A *front* has, for each stream, the
last op that happens before some point. A mark holds the front of its stream at the time when it was
recorded, including the pending waits there; if a stream waits for a mark, its next op comes after
that front. Ops that the host knows to be done happen before all ops that it issues later, on any
stream.

If memory is freed while other streams were recorded to use it (`freed`), it may be reused only
after the ops that these streams have by then. `returned` says that those ops are done. If the bytes
are allocated again (`given_out`) without that, the allocator is trusted that they are done;
`assumed` counts such cases.

A front has only the ops waited for directly; `before` also includes the ops that these waited for.

Complexity: O(streams) for each call, O(1) for an op without new waits, O(memory freed and not
returned) for `given_out`. This module does not see the accesses of ops, nor how long they take.
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
    """Streams, marks and the ops that the host knows to be done, while ops are added."""

    def __init__(self) -> None:
        self.streams: dict[Hashable, int] = {}
        self.marks: dict[Hashable, HostMark] = {}
        self.assumed = 0
        """Number of frees whose `returned` is missing and was assumed."""
        self.known = HostMark({}, {})
        """The ops that the host knows to be done."""
        self._news = 0
        """Number of times that `known` has grown."""
        self._heard: dict[int, int] = {}
        """Stream -> the value of `_news` that its last op took into account."""
        self._last: Front = {}
        self._seen: dict[int, Front] = {}
        """Stream -> front of the ops before its last op."""
        self._waiting: dict[int, Front] = {}
        """Stream -> front that its next op waits for."""
        self._all: dict[int, Front] = {}
        """Stream -> the last op of each other stream that happens before its next op; a front is
        never changed in place.
        """
        self.owes: dict[Hashable, tuple[DeviceBytes, HostMark]] = {}
        """Owner -> freed memory, and the recorded uses of other streams that must end first."""

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
        """Return the last op of each other stream that happens before the next, or the last, op of
        a stream; the caller must not change it.
        """
        return self._all.get(stream, {})

    def record(self, mark: Hashable, stream: int) -> None:
        """Record a mark after all ops of a stream so far; a mark recorded again is moved."""
        self.marks[mark] = self._here(stream)

    def forget(self, mark: Hashable) -> None:
        """Drop a mark, if it is known."""
        self.marks.pop(mark, None)

    def wait(self, mark: Hashable, stream: int) -> None:
        """Let all later ops of a stream wait for a mark.

        A mark that was not recorded orders nothing, as on a device.
        """
        if mark in self.marks:
            self._wait(stream, self.marks[mark])

    def join(self, streams: Iterable[int], behind: Iterable[int] | None = None) -> None:
        """Let all later ops of each of these streams wait for all ops so far of the streams
        `behind`, by default of all streams.
        """
        marks = [self._here(other) for other in (self.streams.values() if behind is None else behind)]
        for stream in streams:
            for mark in marks:
                self._wait(stream, mark)

    def synchronize(self, *streams: int) -> None:
        """Let the host know that all ops so far of these streams, by default of all streams, are
        done.
        """
        for stream in streams or self.streams.values():
            self._know(self._here(stream))

    def synchronize_mark(self, mark: Hashable) -> None:
        """Let the host know that all ops before a mark are done."""
        if mark in self.marks:
            self._know(self.marks[mark])

    def front(self, stream: int) -> Front:
        """Return the front of a stream: its last op, and the pending waits of its next op."""
        front = dict(self._waiting.get(stream, {}))
        if stream in self._last:
            front[stream] = self._last[stream]
        return front

    def freed(self, owner: Hashable, memory: DeviceBytes, streams: Iterable[int]) -> None:
        """Note that memory was freed while these streams were recorded to use it."""
        _, owed = self.owes.get(owner, (memory, HostMark({}, {})))
        for stream in sorted(streams):
            owed = owed.with_(self._here(stream))
        if owed.front:
            self.owes[owner] = memory, owed

    def returned(self, owner: Hashable) -> None:
        """Let the host know that the recorded uses of freed memory have ended."""
        if owner in self.owes:
            self._know(self.owes.pop(owner)[1])

    def given_out(self, memory: DeviceBytes) -> None:
        """Note that memory was allocated, so the recorded uses of its bytes are assumed ended."""
        if not self.owes:
            return
        met = [owner for owner, (owed, _) in self.owes.items() if _meet(owed, memory)]
        self.assumed += len(met)
        for owner in met:
            self.returned(owner)

    def _here(self, stream: int) -> "HostMark":
        """Return a mark after all ops of a stream so far."""
        last = {stream: self._last[stream]} if stream in self._last else {}
        return HostMark(self.front(stream), {**self._all.get(stream, {}), **last})

    def _wait(self, stream: int, mark: "HostMark") -> None:
        _later(self._waiting.setdefault(stream, {}), mark.front)
        self._reach(stream, mark.all)

    def _know(self, mark: "HostMark") -> None:
        self.known = self.known.with_(mark)
        self._news += 1

    def _reach(self, stream: int, front: Front) -> None:
        """Let the next op of a stream come after a front."""
        mine = self._all.get(stream, {})
        fresh = {other: op for other, op in front.items() if other != stream and op > mine.get(other, -1)}
        if fresh:
            self._all[stream] = {**mine, **fresh}


class HostMark(NamedTuple):
    """The ops before a point of a stream."""

    front: Front
    """The ops that are waited for directly."""
    all: Front
    """These ops, and all ops that happen before them."""

    def with_(self, other: "HostMark") -> "HostMark":
        """Return the union of both marks: for each stream the later op."""
        front, whole = dict(self.front), dict(self.all)
        _later(front, other.front)
        _later(whole, other.all)
        return HostMark(front, whole)


def _meet(one: DeviceBytes, other: DeviceBytes) -> bool:
    return one.device == other.device and one.low < other.high and other.low < one.high


def _later(known: Front, seen: Mapping[int, int]) -> None:
    """Raise each stream's op in `known` to its op in `seen`, if that is later."""
    for stream, op in seen.items():
        known[stream] = max(op, known.get(stream, -1))


__all__ = ["DeviceBytes", "Front", "HostMark", "HostOrder"]
