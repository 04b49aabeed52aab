"""Tracing a run without memory: the actions before and after each op, and which reads are wrong.

The run is traced over two lines of pieces. *Planned*, positions in the pool hold the tag
(`run_script`) of the write that wrote them last; *apart*, each buffer is a line of its own.

Each op has two phases, before and after it; phase 2k is before op k, phase 2k+1 after it, the last
one is the end of the run. A *guard* says of a row what it watches: which piece, and since which
phase its content is known. So a row that comes out bad at phase p tells that one of the ops between
did it.

| when | rows |
|---|---|
| begin | what the host read last is released |
| before an op | operands verified; what it will write verified (live) or expected to be poison (free) and, where it reads none of it, filled with `poison.AWAITED`; guard bands copied |
| after an op | guard bands compared; results remembered and searched for poison; released bytes verified and filled |
| end | everything verified, gaps and red zones as well |

What an op has left of `AWAITED` it did not write.

An operand is verified where the piece it lies in is at most twice its size (so that reading a row
of a table does not cost the table) and at most `LARGE` bytes; whatever its size, it is verified
once more at its release. Guard bands are `BAND` bytes on both sides of a result, less what other
results of the op cover, and holes of a strided result up to `HOLES` bytes.

Invariants: a trace is a function of the program, the pool, the uploads left out, what is watched,
and the pieces it starts with; nothing is done twice. What is poisoned was written by the buffer
that is released and by nobody since, or is about to be written by an op that does not read it: no
result starts as numbers that could pass for its own.

Complexity: O(accesses log pieces + pieces met) and a list splice for each write.

What this module does not see: bytes.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Final

from allocsim.p_sanitizer import poison
from allocsim.p_sanitizer.held_ranges import Piece, Pieces, union
from allocsim.p_sanitizer.program_facts import ELSEWHERE, Facts, Range
from allocsim.p_sanitizer.row_actions import EXPECT, FILL, HASH, HASH4, HASH8, HASHA, SAME, SNAP, VERIFY
from allocsim.p_sanitizer.run_script import NEVER, ZONE, RunStart, Trace, WatchedBytes, Wrong, free_since, gone

BAND: Final = 64
HOLES: Final = 4096
LARGE: Final = 1 << 20


class RunTracer:
    """Traces one run; ask `trace` once."""

    def __init__(
        self,
        facts: Facts,
        entry: RunStart,
        *,
        skip: Collection[int] = (),
        watch: Iterable[WatchedBytes] = (),
    ) -> None:
        self._facts, self._skip = facts, frozenset(skip)
        self._watch = tuple(watch)
        self._values, self._root = len(facts.program.values), facts.root
        self._buffer_of_old, self._value_of_old = entry.buffers, entry.values
        self._planned = entry.planned.copy()
        self._apart = {buffer: line.copy() for buffer, line in entry.apart.items()}
        self._keys = 0
        self._since: list[int] = []
        self._phase = 0
        self._done: set[int] = set()
        self._out = Trace()
        live = [tag >= 0 for tag in self._planned.tags]
        self._planned.keys = [self._fresh(-1) if alive else -1 for alive in live]

    def trace(self, stop: int | None = None) -> Trace:
        """Trace the run, or its ops before `stop` only."""
        facts, out = self._facts, self._out
        out.starts.append(0)
        self._begin()
        count = len(facts.operands)
        for step in range(count if stop is None else stop):
            self._before(step)
            self._next_phase()
            self._after(step)
            self._next_phase()
        if stop is None:
            self._everything()
            out.starts.append(len(out.rows))
        out.hashes, out.planned, out.apart = self._keys, self._planned, self._apart
        return out

    # --- phases

    def _next_phase(self) -> None:
        self._phase += 1
        self._out.starts.append(len(self._out.rows))
        self._done.clear()

    def _begin(self) -> None:
        for low, high, tag, key in self._planned.rows():
            if tag >= 0 and self.buffer_of(tag) in self._facts.parting:
                self._release(low, high, tag, key)
        self._done.clear()

    def _before(self, step: int) -> None:
        facts = self._facts
        if step in self._skip:
            return
        for value in facts.operands[step]:
            self._read(step, value)
        for one, two in facts.staying.get(step, ()):
            self._stay(one, two)
        results = self._moved(step)
        if not results:
            return
        written = self._union(results)
        self._prepare(written, self._union(facts.operands[step]))
        for value in results:
            self._write_apart(value)
        for low, high, value in self._bands(results, written):
            self._row(SNAP, low, high - low, self._out.snaps, value=value)
            self._out.snaps += high - low

    def _after(self, step: int) -> None:
        facts = self._facts
        if step in self._skip:
            return
        self._compare_bands()
        released = facts.released.get(step, ())
        results = self._moved(step)
        written = self._union(results)
        for value in results:
            for low, high in facts.places[value]:
                self._planned.put(low, high, value, rest=self._rest(low, high))
        for low, high in written:
            for a, b, value, _ in self._planned.meeting(low, high):
                unread = facts.owner[value] in released  # nobody reads it: whether it holds poison is no matter
                action = HASH if unread else {4: HASH4, 8: HASH8}.get(facts.scanned[value], HASHA)
                key = self._fresh(self._phase)
                self._planned.put(a, b, value, key)
                self._row(action, a, b - a, key, value=value)
        for buffer in released:
            start = facts.origin[buffer]
            for low, high, tag, key in self._planned.within(start, start + int(facts.program.buffers.nbytes[buffer])):
                if tag >= 0 and self.buffer_of(tag) == buffer:
                    self._release(low, high, tag, key)
        for watch in self._watch:
            if watch.first <= step < watch.stop:
                self._verify_all(self._planned.meeting(watch.low, watch.high))

    def _compare_bands(self) -> None:
        """Compare what the last rows of the phase before copied, the same ranges in their order."""
        out = self._out
        for number in range(out.starts[-2], out.starts[-1]):
            action, at, nbytes, key = out.rows[number]
            if action == SNAP:
                self._row(SAME, at, nbytes, key, since=self._phase - 1, value=out.guards[number][3])

    def _everything(self) -> None:
        self._verify_all(self._planned.rows())

    def _verify_all(self, pieces: list[Piece]) -> None:
        for low, high, tag, key in pieces:
            if tag >= 0:
                self._verify(low, high, tag, key)
            else:
                self._row(EXPECT, low, high - low, self.word(tag), tag=tag, since=free_since(key))
                self._planned.put(low, high, tag, -2 - self._phase)

    # --- reads

    def _read(self, step: int, value: int) -> None:
        facts = self._facts
        buffer = facts.owner[value]
        line, base, runs = self._line(buffer), facts.origin[buffer], facts.runs[value]
        size = sum(high - low for low, high in runs)
        right = len(runs) == 1
        if right:
            ((low, high),) = runs
            tag = line.one(low, high)
            right = tag is not None and tag >= 0 and (not facts.made[value] or tag == self._root[value])
            if right and base != ELSEWHERE:
                right = self._planned.one(base + low, base + high) == tag
        if not right:
            self._judge(step, value, line)
        if base == ELSEWHERE:
            return
        for low, high in runs:
            for a, b, tag, key in self._planned.meeting(base + low, base + high):
                if tag >= 0 and b - a <= min(2 * size, LARGE):
                    self._verify(a, b, tag, key)

    def _judge(self, step: int, value: int, line: Pieces) -> None:
        """Compare a read tag by tag."""
        facts = self._facts
        base = facts.origin[facts.owner[value]]
        wrong: dict[str, list[tuple[int, int, int, int]]] = {}
        for run in facts.runs[value]:
            for low, high, wanted, _ in line.within(*run):
                if wanted == NEVER:
                    wrong.setdefault("UninitialisedRead", []).append((low, high, NEVER, NEVER))
                elif facts.made[value] and self._is_other(wanted, value):
                    wrong.setdefault("OverwrittenRead", []).append((low, high, wanted, value))
                elif base != ELSEWHERE:
                    wrong.setdefault("StaleRead", []).extend(
                        (a - base, b - base, found, wanted)
                        for a, b, found, _ in self._planned.within(base + low, base + high)
                        if found != wanted
                    )
        for kind, places in wrong.items():
            if places:
                ranges = tuple(union((low, high) for low, high, _, _ in places))
                record = Wrong(kind=kind, step=step, value=value, bytes=ranges, found=places[0][2], wanted=places[0][3])
                self._out.wrong.setdefault(step, []).append(record)

    def _is_other(self, tag: int, value: int) -> bool:
        """Return whether a tag is the write of another value; content is no other value."""
        writer = tag if tag < self._values else self._value_of_old[tag - self._values]
        return writer is not None and self._root[writer] != self._root[value]

    # --- writes and releases

    def _prepare(self, written: list[Range], read: list[Range]) -> None:
        """Verify what will be written over, poison what of it is not read, and remember what is
        left of pieces that will be cut.
        """
        met = {piece[0]: piece for low, high in written for piece in self._planned.meeting(low, high)}
        for low, high, tag, key in met.values():
            lost = _near(low, high, written)
            cut = [(max(a, low), min(b, high)) for a, b in lost if max(a, low) < min(b, high)]
            if tag < 0:
                for a, b in cut:
                    self._row(EXPECT, a, b - a, self.word(tag), tag=tag, since=free_since(key))
            else:
                self._verify(low, high, tag, key)
                for a, b in _without(low, high, lost):
                    part = self._fresh(self._phase)
                    self._row(HASH, a, b - a, part, tag=tag)
                    self._done.add(part)
                    self._planned.put(a, b, tag, part, rest=(key, key))
            for a, b in cut:
                for first, stop in _without(a, b, read):
                    self._row(FILL, first, stop - first, poison.AWAITED, tag=tag)

    def _union(self, values: Iterable[int]) -> list[Range]:
        """Return where values lie in the pool, together."""
        return union(place for value in values for place in self._facts.places[value])

    def _rest(self, low: int, high: int) -> tuple[int, int]:
        """Return the keys that pieces reaching beyond `[low, high)` keep."""
        pieces = self._planned.meeting(low, high)
        return pieces[0][3], pieces[-1][3]

    def _moved(self, step: int) -> tuple[int, ...]:
        """Return the results of an op whose bytes it writes."""
        stays = {two for _, two in self._facts.staying.get(step, ())}
        return tuple(value for value in self._facts.results[step] if value not in stays)

    def _stay(self, one: int, two: int) -> None:
        """Let the buffer of a result hold what its operand's holds: the bytes are the same."""
        facts = self._facts
        theirs, ours = self._line(facts.owner[one]), self._line(facts.owner[two])
        if theirs is ours:
            return
        shift = facts.origin[facts.owner[one]] - facts.origin[facts.owner[two]]
        for low, high in facts.runs[one]:
            for a, b, tag, _ in theirs.within(low, high):
                ours.put(a + shift, b + shift, tag)

    def _write_apart(self, value: int) -> None:
        line = self._line(self._facts.owner[value])
        for low, high in self._facts.runs[value]:
            line.put(low, high, value)

    def _release(self, low: int, high: int, tag: int, key: int) -> None:
        self._verify(low, high, tag, key)
        self._row(FILL, low, high - low, self.word(gone(tag)), tag=gone(tag))
        self._planned.put(low, high, gone(tag), -2 - self._phase, rest=(key, key))

    def _bands(self, results: tuple[int, ...], written: list[Range]) -> list[tuple[int, int, int]]:
        """Return (low, high, result) of the bytes round the results that nobody may write."""
        found: list[tuple[int, int, int]] = []
        for value in results:
            places = self._facts.places[value]
            if not places:
                continue
            low, high = places[0][0], places[-1][1]
            found += [(max(low - BAND, 0), low, value), (high, min(high + BAND, self._planned.size), value)]
            holes = HOLES
            for (_, a), (b, _) in pairwise(places):
                holes -= b - a
                if holes >= 0:
                    found.append((a, b, value))
        return [(a, b, value) for low, high, value in found for a, b in _without(low, high, _near(low, high, written))]

    # --- bookkeeping

    def _line(self, buffer: int) -> Pieces:
        line = self._apart.get(buffer)
        if line is None:
            line = self._apart[buffer] = Pieces(int(self._facts.program.buffers.nbytes[buffer]), NEVER)
        return line

    def buffer_of(self, tag: int) -> int:
        """Return the buffer a write belongs to."""
        return self._facts.owner[tag] if tag < self._values else self._buffer_of_old[tag - self._values]

    def word(self, tag: int) -> int:
        """Return the word that free bytes hold."""
        if tag == NEVER:
            return poison.NEVER
        return poison.ZONE if tag == ZONE else poison.released(self.buffer_of(gone(tag)))

    def _fresh(self, since: int) -> int:
        self._since.append(since)
        self._keys += 1
        return self._keys - 1

    def _verify(self, low: int, high: int, tag: int, key: int) -> None:
        if key in self._done:
            return
        self._row(VERIFY, low, high - low, key, tag=tag, since=self._since[key])
        self._since[key] = self._phase
        self._done.add(key)

    def _row(
        self, action: int, at: int, nbytes: int, key: int, *, tag: int = NEVER, since: int = -1, value: int = -1
    ) -> None:
        self._out.rows.append((action, at, nbytes, key))
        self._out.guards.append((self._phase, tag, since, value))


def _near(low: int, high: int, sorted_ranges: list[Range]) -> list[Range]:
    """Return the ranges that may share a position with `[low, high)`."""
    return sorted_ranges[
        max(bisect_right(sorted_ranges, (low, low)) - 1, 0) : bisect_right(sorted_ranges, (high, high))
    ]


def _without(low: int, high: int, taken: list[Range]) -> list[Range]:
    """Return what is left of `[low, high)` when sorted ranges are taken out."""
    found = []
    for a, b in taken:
        if b <= low or a >= high:
            continue
        if low < a:
            found.append((low, a))
        low = max(low, b)
    if low < high:
        found.append((low, high))
    return found
