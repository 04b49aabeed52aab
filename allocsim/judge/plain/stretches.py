"""When each buffer of a run is live, from writes to last reads (docs/format.md, "When a buffer is
live").

A *stretch* is `(start, stop, low, high, value)`: the bits `[low, high)` of a buffer are live in
`[start, stop)` since `value` was written, or, if that is None, since they were first read. A
*segment* is a half-open range of steps of a whole buffer; stretches that share a step are one
segment, stretches that only meet are two. What lives from the run's start starts at -1; what lives
to its end stops behind the step after the last.

Complexity: O(accesses log accesses) for a run.

What this module does not see: plans and tags.
"""

from collections.abc import Iterable
from functools import cached_property

from allocsim.judge.plain.layouts import Ranges, merged, without
from allocsim.judge.plain.memory import HeldRanges
from allocsim.judge.plain.reads_and_writes import TouchedBytes

Stretch = tuple[int, int, int, int, int | None]


class Liveness:
    """Segments and stretches of every buffer of one run."""

    def __init__(self, accesses: TouchedBytes) -> None:
        self.accesses = accesses
        self.program = accesses.program
        self._stretches: dict[int, list[Stretch]] = {}
        self._segments: dict[int, Ranges] = {}

    def segments(self, buffer: int) -> Ranges:
        """Return the segments of a buffer, in order."""
        if buffer not in self._segments:
            self._segments[buffer] = _sharing_a_step((row[0], row[1]) for row in self.stretches(buffer))
        return self._segments[buffer]

    def stretches(self, buffer: int) -> list[Stretch]:
        """Return the stretches of a buffer; those of a persistent one have all its bits."""
        if buffer not in self._stretches:
            whole = self.program.buffers[buffer].persistent
            self._stretches[buffer] = self._epochs(buffer) if whole else self._by_bits(buffer)
        return self._stretches[buffer]

    def overwrites(self, buffer: int, step: int) -> bool:
        """Return whether the results of an op cover every byte that some value covers in a
        buffer.
        """
        written = self.accesses.of_buffer.get(buffer, {}).get(step, ([], []))[1]
        ranges = merged(part for value in written for part in self.program.runs[value])
        return bool(written) and not without(self._covered.get(buffer, ()), ranges)

    @cached_property
    def _covered(self) -> dict[int, Ranges]:
        parts: dict[int, list[tuple[int, int]]] = {}
        for index, value in enumerate(self.program.values):
            if self.program.buffers[value.buffer].persistent:
                parts.setdefault(value.buffer, []).extend(self.program.runs[index])
        return {buffer: merged(found) for buffer, found in parts.items()}

    def _by_bits(self, buffer: int) -> list[Stretch]:
        found: list[Stretch] = []
        memory: HeldRanges[tuple[int, int, int | None]] = HeldRanges()
        named: dict[int, int] = {}
        for step, (reads, writes) in self.accesses.of_buffer.get(buffer, {}).items():
            for value in reads:
                runs = self.program.runs[value]
                if not runs:
                    made = self.accesses.producer(value)
                    found.append((named.setdefault(value, step) if made is None else made, step + 1, 0, 0, value))
                for low, high, held in [row for run in runs for row in memory.at(*run)]:
                    start, _, writer = held or (step, step, None)
                    memory.put(low, high, (start, step, writer))
            for value in writes:
                runs = self.program.runs[value]
                if not runs:
                    found.append((step, step + 1, 0, 0, value))
                for run in runs:
                    # of two results of one op on one bit, the later one is what it holds
                    found += [row for row in _ended(memory.at(*run)) if row[0] < step or row[4] is None]
                    memory.put(*run, (step, step, value))
        return found + _ended(memory.all())

    def _epochs(self, buffer: int) -> list[Stretch]:
        """Return when a persistent buffer is live: from the run's start or a full overwrite to the
        last read before the next full overwrite.
        """
        found: list[tuple[int, int]] = []
        start, last, late = -1, -1, list[int]()
        for step, (reads, writes) in self.accesses.of_buffer.get(buffer, {}).items():
            if reads:
                last, late = step, []
            if writes and self.overwrites(buffer, step):
                found += [(start, last + 1), *((w, w + 1) for w in late)]
                start, last, late = step, step, []
            elif writes:
                late.append(step)
        found.append((start, len(self.program.ops) + 1))
        nbits = 8 * self.program.buffers[buffer].nbytes
        return [(begin, end, 0, nbits, None) for begin, end in found if begin < end and end > 0]


def _ended(rows: Iterable[tuple[int, int, tuple[int, int, int | None] | None]]) -> list[Stretch]:
    """Return the stretches of what a memory held."""
    return [(held[0], held[1] + 1, low, high, held[2]) for low, high, held in rows if held is not None]


def _sharing_a_step(stretches: Iterable[tuple[int, int]]) -> Ranges:
    """Return ranges of steps in order, those that share a step as one."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(stretches):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return tuple(found)
