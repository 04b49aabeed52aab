"""From bytes that came out wrong to incidents: what happened, which op did it, and to whose bytes.

A change of bytes is pinned on one op where a guard band says so, or where only one op ran since the
bytes were known to be right; else it is a `Changed` with its suspects, and these bytes are to be
verified after each suspect in the next run (`watch`). A change is told once: bytes known to be hurt
are left out of what is found later, and dead bytes get their word back.

Poison in a result is the fault of its op only where no operand can have brought it: values whose
poison was told of are *tainted*, and so is what passed through values that are not searched. An
operand that reaches outside its buffer brings whatever lies there.

What this module does not see: rows that came out well, and the order in which rows are carried out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from mmap import PAGESIZE
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.model.layout import Int64s
from allocsim.p_sanitizer import poison
from allocsim.p_sanitizer.guard import PageFault
from allocsim.p_sanitizer.incident_words import tell
from allocsim.p_sanitizer.incidents import KINDS, Incident
from allocsim.p_sanitizer.pools import TrackedBlock
from allocsim.p_sanitizer.program_facts import ELSEWHERE, Facts, Range
from allocsim.p_sanitizer.row_actions import EXPECT, HASH4, HASH8, HASHA, SAME, VERIFY, Bytes, pattern
from allocsim.p_sanitizer.run_script import NEVER, ZONE, RunStart, Trace, WatchedBytes, Wrong, gone
from allocsim.p_sanitizer.trace import RunTracer

LIMIT: Final = 10_000
"""Incidents listed; others are only counted."""

NARROW: Final = 4096
"""Steps a suspicion may span and still be followed up in the next run."""

WATCHES: Final = 64
"""Suspicions followed up."""

Told = dict[str, Any]

_FLOATS: Final[Mapping[int, np.dtype[Any]]] = {4: np.dtype("f4"), 8: np.dtype("f8")}
"""By size, the elements that are searched for poison."""


class Blame:
    """The incidents of one monitor."""

    def __init__(self, facts: Facts, pool: Bytes, blocks: Sequence[TrackedBlock], outside: Mapping[int, Bytes]) -> None:
        self._facts, self._pool, self._blocks, self._outside = facts, pool, tuple(blocks), dict(outside)
        self._found: list[Incident] = []
        self._hurt: list[tuple[int, int, int]] = []
        self._tainted: set[int] = set()
        self._left: dict[tuple[int, int], tuple[int, list[Range]]] = {}
        """(op, value) -> the last run that ended with words there that wait, and their places."""
        self.watch: tuple[WatchedBytes, ...] = ()
        self.count = 0
        """Incidents met, listed or not."""

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """All incidents in order of run and step, without the vague ones that a later run has
        pinned on an op.
        """
        pinned = [(i.buffer, i.arena, i.op) for i in self._found if i.suspects is None and i.op is not None]
        kept = [
            i
            for i in self._found
            if i.suspects is None
            or not any((b, a) == (i.buffer, i.arena) and op in range(*i.suspects) for b, a, op in pinned)
        ]
        order = {kind: place for place, kind in enumerate(KINDS)}
        return tuple(sorted(kept, key=lambda i: (i.run, i.step, order[i.kind])))

    def begin(
        self,
        *,
        run: int,
        skip: frozenset[int],
        entry: RunStart,
        run_of: Int64s,
        trace: Trace,
        tracer: Callable[[], RunTracer],
    ) -> None:
        """Take what is known of a run that begins.

        `run_of` says of each write of the entry which run made it.
        """
        self._run, self._skip, self._entry = run, skip, entry
        self._run_of, self._trace, self._tracer = run_of, trace, tracer
        self._hurt.clear()
        self._tainted = {b for b in self._tainted if self._facts.persistent[b] or b in self._facts.carried}

    def wrong(self, wrong: Wrong) -> None:
        """Tell of a read that the run is bound to get wrong."""
        self._tainted.add(self._facts.owner[wrong.value])
        self._report(self._misread(wrong))

    def bad(self, row: int, trace: Trace, copy: Bytes) -> None:
        """Tell of a row that came out bad; `copy` is what SAME left."""
        action, at, nbytes, key = trace.rows[row]
        phase, tag, since, value = trace.guards[row]
        if action in (HASH4, HASH8, HASHA):
            self._poisoned((phase - 1) // 2, value, (at, at + nbytes))
        elif action == SAME:
            self._overran((phase - 1) // 2, value, _ranges(copy != 0, at))
        elif action == EXPECT:
            wanted = pattern(at, nbytes, key)
            changed = _ranges(self._pool[at : at + nbytes] != wanted, at)
            self._pool[at : at + nbytes] = wanted
            self._changed(_outside(changed, self._hurt), tag, (since, phase))
        elif action == VERIFY and not any(
            low < at + nbytes and at < high and p >= since for low, high, p in self._hurt
        ):
            self._changed([(at, at + nbytes)], tag, (since, phase))

    def overran(self, step: int, changed: NDArray[np.bool_]) -> None:
        """Tell of bytes of the pool that changed while op `step` ran; `changed` has all of it."""
        results = self._facts.results[step]
        self._overran(step, results[0] if results else None, _ranges(changed, 0))

    def touched(self, faults: Iterable[PageFault]) -> None:
        """Tell of accesses beyond what ops declare, as the processor saw them."""
        for fault in faults:
            position, near = fault.position, self._facts.nearest(fault.position, fault.step)
            ((_, _, tag, _),) = self._tracer().trace(stop=fault.step).planned.within(position, position + 1)
            if fault.write and fault.during is not None:  # it is no doing of the op that ran
                low = position // PAGESIZE * PAGESIZE
                self._hurt.append((low, low + PAGESIZE, 2 * fault.during + 1))
            words = (near[1] if near else "", f"instruction {fault.instruction}", fault.thread)
            self._report(
                self._written([(position, position + 1)], tag),
                op=fault.step,
                kind=self._kind(fault.step, tag) if fault.write else "UndeclaredRead",
                during=fault.during,
                witness=", ".join(word for word in words if word),
            )

    def undeclared(self, step: int, value: int, places: Sequence[Range]) -> None:
        """Tell that a result of op `step`, which has just run, depends on dead bytes of some ranges
        of the pool: bytes of its own that it left, or bytes that it read.
        """
        planned = self._tracer().trace(stop=step).planned
        own = [place for result in self._facts.results[step] for place in self._facts.places[result]]
        met = [(max(a, low), min(b, high)) for low, high in places for a, b in own if max(a, low) < min(b, high)]
        left = [span for a, b in met for span in self._waiting(a, b)]
        if left:
            self._poison_told(step, value, "ResultUnwritten", left, NEVER)
        told: dict[int, list[Range]] = {}
        for low, high in places:
            if any(a < high and low < b for a, b in left):
                continue
            for a, b, tag, _ in planned.within(low, high):
                if tag < 0:
                    told.setdefault(tag, []).append((a, b))
        for tag, ranges in told.items():
            self._report(self._written(ranges, tag, value=value), op=step, kind="UndeclaredRead")

    def _waiting(self, low: int, high: int) -> list[Range]:
        """Return the bytes of a range that still say that they wait to be written."""
        return _ranges(self._pool[low:high] == pattern(low, high - low, poison.awaited(self._run)), low)

    def outside_changed(self, buffer: int, steps: Range) -> None:
        """Report that the memory of a buffer outside the pool changed while the ops of a range of
        steps ran.
        """
        suspects = [step for step in range(*steps) if self._may_write(step)]
        told: Told = {"buffer": buffer, "bytes": ((0, int(self._facts.program.buffers.nbytes[buffer])),)}
        if len(suspects) == 1:
            self._report(told, kind="ReadOnlyWritten", op=suspects[0])
        else:
            self._report(told, kind="ReadOnlyWritten", suspects=(suspects[0], suspects[-1] + 1) if suspects else steps)

    def _may_write(self, step: int) -> bool:
        """Return whether a kernel ran at a step: no view, no upload."""
        facts = self._facts
        return bool(facts.results[step]) and step not in self._skip and not facts.uploads[step]

    def _misread(self, wrong: Wrong) -> Told:
        buffer = self._facts.owner[wrong.value]
        found = wrong.found if wrong.found >= ZONE else gone(wrong.found)
        last = self._facts.last[buffer]
        return {
            "kind": wrong.kind,
            "op": wrong.step,
            "value": wrong.value,
            "buffer": buffer,
            "bytes": wrong.bytes,
            **self._place(buffer, wrong.bytes[0][0]),
            **self._write("held", found),
            **{f"want_{name}": self._write("held", wrong.wanted).get(f"held_{name}") for name in ("run", "op")},
            "released_op": last if buffer not in self._facts.carried and not self._facts.persistent[buffer] else None,
        }

    def _overran(self, step: int, value: int | None, changed: list[Range]) -> None:
        """A guard band of op `step` changed: that op did it."""
        planned = self._tracer().trace(stop=step).planned
        told: dict[tuple[int, int], list[Range]] = {}
        for low, high in changed:
            if any(a <= low and high <= b and p == 2 * step + 1 for a, b, p in self._hurt):
                continue
            for a, b, tag, _ in planned.within(low, high):
                told.setdefault((self._holder(tag), tag), []).append((a, b))
                if tag < 0:
                    self._pool[a:b] = pattern(a, b - a, self._tracer().word(tag))
            self._hurt.append((low, high, 2 * step + 1))
        for (_, tag), ranges in told.items():
            self._report(self._written(ranges, tag, value=value), op=step, kind=self._kind(step, tag))

    def _changed(self, ranges: list[Range], tag: int, phases: tuple[int, int]) -> None:
        """Bytes changed between two phases: find who can have done it."""
        if not ranges:
            return
        first, stop = (phases[0] + 1) // 2, (phases[1] + 1) // 2
        suspects = [step for step in range(first, stop) if self._may_write(step)]
        told = self._written(ranges, tag)
        self._hurt += [(low, high, phases[1]) for low, high in ranges]
        if len(suspects) == 1:
            self._report(told, op=suspects[0], kind=self._kind(suspects[0], tag))
            return
        span = (suspects[0], suspects[-1] + 1) if suspects else (first, stop)
        protected = tag >= 0 and self._facts.protected[self._holder(tag)]
        self._report(told, kind="ReadOnlyWritten" if protected else "Changed", suspects=span)
        if suspects and span[1] - span[0] <= NARROW and len(self.watch) < WATCHES:
            low, high = ranges[0][0], ranges[-1][1]
            self.watch = (*self.watch, WatchedBytes(low=low, high=high, first=span[0], stop=span[1]))

    def _poisoned(self, step: int, value: int, place: Range) -> None:
        """A result holds poison: bytes that were not written, or that were computed from dead
        ones.
        """
        facts = self._facts
        buffer = facts.owner[value]
        came_in = facts.uploads[step] or self._poison_came_in(step)
        self._tainted.add(buffer)
        if came_in:
            return
        low, high = place
        dtype = _FLOATS.get(facts.scanned[value])
        left = self._awaited(low, high)
        if dtype is None:
            left = self._twice(step, value, left)
        if left:
            self._poison_told(step, value, "ResultUnwritten", left, NEVER)
        if dtype is None:
            return
        marked = poison.marked(self._pool[low:high].view(dtype))
        for a, b in left:
            marked[(a - low) // dtype.itemsize : -((low - b) // dtype.itemsize)] = False
        read = _ranges(np.repeat(marked, dtype.itemsize), low)
        if read:
            words = [word for a, b in read for word in poison.found(self._pool[a:b].view(dtype))]
            tag = self._whose(words)
            self._poison_told(step, value, "PoisonRead", read, NEVER if tag is None else tag)

    def _poison_told(self, step: int, value: int, kind: str, ranges: list[Range], tag: int) -> None:
        buffer = self._facts.owner[value]
        base = self._facts.origin[buffer]
        told = self._written(ranges, tag, value=value)
        told |= {"buffer": buffer, "bytes": tuple((a - base, b - base) for a, b in ranges)}
        self._report(told, op=step, kind=kind)

    def _awaited(self, low: int, high: int) -> list[Range]:
        """Return the whole words within a range that still say that they wait to be written."""
        first, stop = -(-low // 4) * 4, high // 4 * 4
        if first >= stop:
            return []
        return _ranges(np.repeat(self._pool[first:stop].view(np.uint32) == poison.awaited(self._run), 4), first)

    def _twice(self, step: int, value: int, left: list[Range]) -> list[Range]:
        """Return those of the ranges that an earlier run showed as well: a whole number may look
        like a word that waits, but not in two runs, which have different ones.
        """
        run, before = self._left.get((step, value), (self._run, []))
        self._left[step, value] = self._run, left
        if (run - self._run) % poison.AWAITING == 0:
            return []
        return [(max(a, c), min(b, d)) for a, b in left for c, d in before if max(a, c) < min(b, d)]

    def _poison_came_in(self, step: int) -> bool:
        """Return whether an operand may have held poison: it was told of before, came from outside,
        or passed through values not searched.
        """
        facts = self._facts
        tainted = set(self._tainted)
        for reads, writes in zip(facts.operands[:step], facts.results[:step], strict=True):
            if any(facts.owner[value] in tainted for value in reads):
                tainted.update(facts.owner[value] for value in writes if not facts.scanned[value])
        return any(
            facts.owner[v] in tainted or facts.reaching[v] or self._content_has_poison(v) for v in facts.operands[step]
        )

    def _content_has_poison(self, value: int) -> bool:
        buffer = self._facts.owner[value]
        if not self._facts.persistent[buffer]:
            return False
        start, nbytes = self._facts.origin[buffer], int(self._facts.program.buffers.nbytes[buffer])
        memory = self._outside.get(buffer) if start == ELSEWHERE else self._pool[start : start + nbytes]
        return memory is not None and memory.nbytes % 4 == 0 and bool(poison.found(memory.view(np.float32)))

    def _whose(self, words: list[int]) -> int | None:
        """Return the tag of a released write that poison names, as far as a run knows it."""
        tracer = self._tracer()
        for tag in {tag for tag in self._trace.planned.tags if tag < ZONE}:
            if tracer.word(tag) in words:
                return tag
        for buffer in range(len(self._facts.origin)):
            if poison.released(buffer) in words:
                values = [v for v, b in enumerate(self._facts.owner) if b == buffer and self._facts.made[v]]
                return gone(values[-1]) if values else None
        return ZONE if poison.ZONE in words else None

    # --- words for it

    def _kind(self, step: int, tag: int) -> str:
        if tag < 0:
            return "Overrun"
        buffer = self._holder(tag)
        if self._facts.protected[buffer]:
            return "ReadOnlyWritten"
        reads = {self._facts.owner[operand] for operand in self._facts.operands[step]}
        return "OperandWritten" if buffer in reads else "Overrun"

    def _holder(self, tag: int) -> int:
        return -1 if tag < 0 else self._buffer(tag)

    def _buffer(self, tag: int) -> int:
        count = len(self._facts.owner)
        return self._facts.owner[tag] if tag < count else self._entry.buffers[tag - count]

    def _written(self, ranges: Iterable[Range], tag: int, *, value: int | None = None) -> Told:
        ranges = list(ranges)
        alive = tag >= 0
        buffer = self._buffer(tag) if alive else None
        base = self._facts.origin[buffer] if buffer is not None else 0
        arena, origin = self._home(ranges[0][0])
        shift = base if buffer is not None else origin
        held = tag if tag >= ZONE else gone(tag)
        return {
            "value": value if not alive else self._write("held", tag)["held_value"],
            "buffer": buffer,
            "bytes": tuple((low - shift, high - shift) for low, high in ranges),
            "arena": arena,
            "address": ranges[0][0] - origin,
            **self._write("held", held),
            "released_op": self._facts.last[self._buffer(held)] if tag < ZONE else None,
        }

    def _write(self, name: str, tag: int) -> Told:
        """Return run, op and value of the write of a tag, under names that begin with `name`."""
        if tag < 0:
            return {}
        count = len(self._facts.owner)
        run, value = (
            (self._run, tag) if tag < count else (int(self._run_of[tag - count]), self._entry.values[tag - count])
        )
        op = None if value is None else int(self._facts.program.producer[value])
        return {f"{name}_run": None if value is None else run, f"{name}_op": op, f"{name}_value": value}

    def _place(self, buffer: int, offset: int) -> Told:
        if self._facts.origin[buffer] == ELSEWHERE:
            return {}
        position = self._facts.origin[buffer] + offset
        arena, origin = self._home(position)
        return {"arena": arena, "address": position - origin}

    def _home(self, position: int) -> tuple[int | None, int]:
        """Return the arena of a position and where it begins.

        A red zone belongs to the nearest block.
        """
        near = min(
            self._blocks, key=lambda b: max(b.start - position, position - (b.start + b.nbytes - 1), 0), default=None
        )
        return (None, 0) if near is None else (near.arena, near.start)

    def _report(self, told: Told, **more: object) -> None:
        self.count += 1
        if len(self._found) < LIMIT:
            incident = Incident(run=self._run, **{**told, **more})
            self._found.append(tell(self._facts, incident))


def _ranges(mask: NDArray[np.bool_], at: int) -> list[Range]:
    """Return the ranges where a mask holds, moved by `at`."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))) + at
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _outside(ranges: list[Range], hurt: list[tuple[int, int, int]]) -> list[Range]:
    return [(low, high) for low, high in ranges if not any(a < high and low < b for a, b, _ in hurt)]
