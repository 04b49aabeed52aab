"""The device that an online allocator is driven on: streams, marks, and what the host knows of
them.

A stream does what it was given in order; streams know nothing of each other. A *mark* says how far
a stream has been given work (`cudaEventRecord`), a wait puts a stream's next op behind a mark, a
mark has *passed* when all before it was done (`cudaEventQuery`). The device is simulated: an op is
done when `advance` or `synchronize` says so, never before what it waits for.

Order is kept in vector clocks (Lamport 1978; Fidge and Mattern 1988): for each stream, how many
ops of each other stream come before its next op. What the host has seen done comes before all that
it gives out later.

The clocks are kept apart from `allocsim.programs.host_order`, which orders a document of the same
events: what the one says is held against the other.

O(streams) a call. What this module does not see: memory, and allocators.
"""

from collections.abc import Callable, Sequence
from operator import le


class Device:
    """Streams numbered from 0; an allocator is given one, and may ask `record`, `passed`, `wait`
    and `synchronize` of it.
    """

    __slots__ = ("_clocks", "_done", "_heard", "_known", "_marks", "_news", "copy", "streams", "tell")

    def __init__(
        self, streams: int, tell: Callable[..., None] | None = None, copy: Callable[[int, int, int], None] | None = None
    ) -> None:
        self.streams = streams
        self.copy = copy or _nothing
        """What an allocator moves bytes with: from, to, how many."""
        self.tell = tell
        """Called with each event as `allocsim trace` reads it, by word and keys; None: nobody
        listens.
        """
        self._clocks = [[0] * streams for _ in range(streams)]
        """By stream, how many ops of each come before its next op; of its own, how many it was
        given.
        """
        self._known = [0] * streams
        self._done = [0] * streams
        self._news = 0
        """How often the host has learned what is done."""
        self._heard = [0] * streams
        """By stream, how much of that its last op comes after."""
        self._marks: list[tuple[int, ...]] = []

    def put(self, stream: int) -> int:
        """Give the stream an op; return its number there, from 1."""
        clock = self._clocks[stream]
        number = clock[stream] + 1
        if self._heard[stream] != self._news:
            clock[:] = map(max, clock, self._known)
            self._heard[stream] = self._news
        clock[stream] = number
        return number

    def ordered(self, stream: int, number: int, before: int) -> bool:
        """Return whether an op of a stream comes before the next op of the stream `before`."""
        return stream == before or number <= self._clocks[before][stream] or number <= self._known[stream]

    def before(self, stream: int) -> Sequence[int]:
        """Return how many ops of each stream come before the next op of this one, as far as its own
        waits and ops say.
        """
        return self._clocks[stream]

    def done(self, stream: int) -> int:
        """Return how many ops the stream has done."""
        return self._done[stream]

    def record(self, stream: int) -> int:
        """Mark what the stream has been given so far; return the mark.

        Raises ValueError for a stream that there is not, as all calls do for what there is not.
        """
        if not 0 <= stream < self.streams:
            raise _none("stream", stream, self.streams)
        self._marks.append(tuple(self._clocks[stream]))
        if self.tell is not None:
            self.tell("record", mark=len(self._marks) - 1, stream=stream)
        return len(self._marks) - 1

    def wait(self, mark: int, stream: int) -> None:
        """Put what the stream is given from now on behind the mark."""
        if not 0 <= stream < self.streams:
            raise _none("stream", stream, self.streams)
        if not 0 <= mark < len(self._marks):
            raise _none("mark", mark, len(self._marks))
        clock = self._clocks[stream]
        clock[:] = map(max, clock, self._marks[mark])
        if self.tell is not None:
            self.tell("wait", mark=mark, stream=stream)

    def passed(self, mark: int) -> bool:
        """Return whether the stream has done all before the mark; if so, the host knows it now."""
        if not 0 <= mark < len(self._marks):
            raise _none("mark", mark, len(self._marks))
        if not all(map(le, self._marks[mark], self._done)):
            return False
        self._know(mark)
        return True

    def synchronize(self, stream: int) -> None:
        """Let the host wait until the stream has done all it was given."""
        mark = self.record(stream)
        self.advance(stream)
        self._know(mark)

    def advance(self, stream: int) -> None:
        """Let the stream do all it was given, and what that waits for; nobody is told."""
        self._done[:] = map(max, self._done, self._clocks[stream])

    def _know(self, mark: int) -> None:
        """Let the host know that what a mark marks is done."""
        self._known[:] = map(max, self._known, self._marks[mark])
        self._news += 1
        if self.tell is not None:
            self.tell("done", mark=mark)


def _nothing(_source: int, _target: int, _nbytes: int) -> None:
    """Move no bytes."""


def _none(what: str, number: int, count: int) -> ValueError:
    return ValueError(f"{what} {number} does not exist; there are {count}")
