"""The sanitizer itself: runs the rows of a trace beside the ops, and turns what comes out bad into incidents.

    monitor.begin(skip=())
    for step in range(ops):
        monitor.before(step); <the op>; monitor.after(step)      # or, after each op: monitor.between(step), which also does the next `before`
    monitor.end()

Traces are kept: a run that begins as an earlier one began (same pieces, same uploads left out) is not traced again. From the second or third step
on a training loop costs only its rows.

What is told: reads that the trace finds wrong, when their op is reached; bad rows, when they come out. A change of bytes is pinned on one op
where only one op ran since the bytes were known to be right; otherwise it is a `Changed` with its suspects, and in the next run these bytes
are verified after each of them, so that the run after names the op. `incidents` then leaves out the vague ones. A change is told once: what comes
of it later is not told again.

Invariants: rows touch dead bytes only (poison), so that a run of a sound plan with honest kernels leaves the same bits as without.

Complexity: for each op one call that reads its operands and results about twice; O(pool) once a run.

What this module does not see: kernels, and writes that put back what was there.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.layout import Int64s
from allocsim.sanitizer import poison
from allocsim.sanitizer.facts import ELSEWHERE, Facts, Range
from allocsim.sanitizer.incidents import KINDS, Incident
from allocsim.sanitizer.memory import Block
from allocsim.sanitizer.pieces import Pieces
from allocsim.sanitizer.rows import EXPECT, HASH, HASH4, HASH8, SAME, SNAP, VERIFY, Bytes, Executor, Plain, Rows, pattern
from allocsim.sanitizer.telling import tell
from allocsim.sanitizer.trace import NEVER, ZONE, Entry, Trace, Tracer, Watch, Wrong, gone

LIMIT: Final = 10_000
"""Incidents listed; others are only counted."""

NARROW: Final = 4096
"""Steps a suspicion may span and still be followed up in the next run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Following:
    """What a run leaves to the next."""

    entry: Entry
    keys: list[int]
    """Of its live pieces, in order."""
    sources: Int64s
    """For each write of the entry its place among those this run started with, -1 for a write of this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """A trace with its rows as columns, and what comes after it."""

    trace: Trace
    rows: Rows
    following: _Following


class Monitor:
    """Watches the runs of one program in one pool."""

    def __init__(
        self,
        facts: Facts,
        pool: Bytes,
        blocks: Sequence[Block],
        *,
        executor: Callable[[Bytes], Executor] = Plain,
        outside: Mapping[int, Bytes] | None = None,
        every_op: bool = False,
    ) -> None:
        """Take over a pool whose content has been laid and whose other bytes are as `memory.Pool` left them.

        Args:
            facts: the program, laid into the pool.
            pool: the bytes.
            blocks: what lies where in it, sorted.
            executor: who carries rows out.
            outside: memory of the buffers that are `ELSEWHERE`; looked at for poison only.
            every_op: verify everything after each op: each change is pinned on its op at once, at O(pool) for each op.
        """
        self._facts, self._pool, self._blocks, self._every = facts, pool, tuple(blocks), every_op
        self._outside = dict(outside or {})
        self._executor = executor(pool)
        self._traces: dict[object, _Loaded] = {}
        self._entries: dict[object, Entry] = {}
        self._watch: tuple[Watch, ...] = ()
        self._found: list[Incident] = []
        self._hurt: list[tuple[int, int, int]] = []
        self._tainted: set[int] = set()
        self._run = -1
        self._now: _Loaded | None = None
        self._skip: frozenset[int] = frozenset()
        self.count = 0
        """Incidents met, listed or not."""
        self._entry = self._first_entry()
        live = [(low, high) for low, high, tag, _ in self._entry.planned.rows() if tag >= 0]
        rows = Rows.of([(HASH, low, high - low, key) for key, (low, high) in enumerate(live)])
        self._executor.load(rows, hashes=len(live), snaps=0)
        self._executor.run(0, len(live))
        self._loaded: _Loaded | None = None

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """All incidents in order of run and step, without the vague ones that a later run has pinned on an op."""
        pinned = [(i.buffer, i.arena, i.op) for i in self._found if i.suspects is None and i.op is not None]
        kept = [
            i
            for i in self._found
            if i.suspects is None
            or not any(
                (b, a) == (i.buffer, i.arena) and i.suspects[0] <= op < i.suspects[1] for b, a, op in pinned if op is not None
            )
        ]
        order = {kind: place for place, kind in enumerate(KINDS)}
        step = lambda i: i.op if i.op is not None else i.suspects[0] if i.suspects else -1  # noqa: E731
        return tuple(sorted(kept, key=lambda i: (i.run, step(i), order[i.kind])))

    @property
    def runs(self) -> int:
        """Runs begun."""
        return self._run + 1

    @property
    def traced(self) -> int:
        """Runs that had to be traced; the others began as one of these."""
        return len(self._traces)

    # --- a run

    def begin(self, skip: Collection[int] = ()) -> None:
        """Begin a run in which the host leaves out the uploads at the steps of `skip`, and do what comes before its first op."""
        if self._now is not None:
            raise ModelError("", f"run {self._run} has not ended")
        self._run += 1
        self._skip = frozenset(skip)
        key = (self._skip, self._watch, self._entry)
        if key not in self._traces:
            traced = self._tracer().trace()
            following = _following(self._entry, traced, self._facts)
            known = self._entries.setdefault(following.entry.key(), following.entry)
            following = replace(following, entry=known)
            self._traces[key] = _Loaded(trace=traced, rows=Rows.of(traced.rows), following=following)
        self._now = self._traces[key]
        if self._now is not self._loaded:
            trace = self._now.trace
            self._executor.load(self._now.rows, hashes=trace.hashes, snaps=trace.snaps)
            self._loaded = self._now
        self._hurt.clear()
        self._tainted = {b for b in self._tainted if self._facts.persistent[b] or b in self._facts.carried}
        self.before(0)

    def before(self, step: int) -> None:
        """Do what comes before an op (for step 0, `begin` did)."""
        if step > 0 or self._now is not None:
            self._phases(2 * step, 2 * step + 1)
        self._tell_wrong(step)

    def after(self, step: int) -> None:
        """Do what comes after an op."""
        self._phases(2 * step + 1, 2 * step + 2)

    def between(self, step: int) -> None:
        """Do what comes after an op and before the next, or at the end."""
        self._phases(2 * step + 1, 2 * step + 3)
        self._tell_wrong(step + 1)

    def observer(self) -> Callable[[int, Any, Any], None]:
        """Return `between` for the run that has begun, as the engine's runtime calls it: with two arguments it does not need, and fast."""
        starts, wrong, count = self._loading().trace.starts, self._loading().trace.wrong, self._executor.counter()
        bounds = list(zip(starts[1::2], starts[3::2], strict=False))

        def observe(step: int, _operands: Any, _results: Any) -> None:
            low, high = bounds[step]
            if low < high:
                bad = count(low, high)
                if bad:
                    self._bad_rows(self._executor.bad(bad), high)
            if step + 1 in wrong:
                self._tell_wrong(step + 1)

        return observe

    def end(self) -> None:
        """End the run."""
        following = self._loading().following
        self._run_of = np.append(self._run_of, self._run)[following.sources]
        self._entry = following.entry
        self._executor.move(following.keys)
        self._now = None

    def digest(self, memory: Bytes) -> int:
        """Return a hash of memory outside the pool."""
        return self._executor.digest(memory)

    def outside_changed(self, buffer: int, steps: Range) -> None:
        """Report that the memory of a buffer outside the pool changed while the ops of a range of steps ran."""
        suspects = [step for step in range(*steps) if self._may_write(step)]
        told: dict[str, object] = {"buffer": buffer, "bytes": ((0, int(self._facts.program.buffers.nbytes[buffer])),)}
        if len(suspects) == 1:
            self._report(told, kind="ReadOnlyWritten", op=suspects[0])
        else:
            self._report(told, kind="ReadOnlyWritten", suspects=(suspects[0], suspects[-1] + 1) if suspects else steps)

    def _may_write(self, step: int) -> bool:
        """Return whether a kernel ran at a step: no view, no upload."""
        facts = self._facts
        return bool(facts.results[step]) and step not in self._skip and not facts.uploads[step]

    def _loading(self) -> _Loaded:
        if self._now is None:
            raise ModelError("", "no run has begun")
        return self._now

    def _phases(self, first: int, stop: int) -> None:
        now = self._loading()
        starts = now.trace.starts
        low, high = starts[first], starts[stop]
        if low < high:
            self._bad_rows(self._executor.run(low, high), high)

    def _tracer(self) -> Tracer:
        return Tracer(self._facts, self._entry, skip=self._skip, watch=self._watch, every_op=self._every)

    def _first_entry(self) -> Entry:
        """Content is laid in buffer order; nobody has written anything else."""
        facts, count = self._facts, len(self._facts.program.values)
        planned = Pieces(len(self._pool), ZONE)
        for block in self._blocks:
            if block.nbytes:
                planned.put(block.start, block.start + block.nbytes, NEVER)
        laid, apart = [], {}
        for buffer, persistent in enumerate(facts.persistent):
            nbytes = int(facts.program.buffers.nbytes[buffer])
            if not persistent or not nbytes:
                continue
            tag = count + len(laid)
            laid.append(buffer)
            apart[buffer] = Pieces(nbytes, tag)
            if facts.origin[buffer] != ELSEWHERE:
                planned.put(facts.origin[buffer], facts.origin[buffer] + nbytes, tag)
        self._run_of = np.full(len(laid), -1, dtype=np.int64)
        return Entry(planned=planned, apart=apart, values=(None,) * len(laid), buffers=tuple(laid))

    # --- what went wrong

    def _tell_wrong(self, step: int) -> None:
        for wrong in self._loading().trace.wrong.get(step, ()):
            self._tainted.add(self._facts.owner[wrong.value])
            self._report(self._misread(wrong))

    def _misread(self, wrong: Wrong) -> dict[str, object]:
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

    def _bad_rows(self, rows: Sequence[int], stop: int) -> None:
        """Tell of bad rows among those carried out before row `stop`, repairing dead bytes."""
        if not rows:
            return
        now = self._loading()
        for row in rows:
            self._bad(row, now)
        # bands for the next op may have been copied before the repair
        last = now.trace.guards[stop - 1][0]
        row = stop - 1
        while row >= 0 and now.trace.guards[row][0] == last:
            if now.trace.rows[row][0] == SNAP:
                self._executor.run(row, row + 1)
            row -= 1

    def _bad(self, row: int, now: _Loaded) -> None:
        action, at, nbytes, key = now.trace.rows[row]
        phase, tag, since, value = now.trace.guards[row]
        if action in (HASH4, HASH8):
            self._poisoned((phase - 1) // 2, value, (at, at + nbytes))
        elif action == SAME:
            self._overran((phase - 1) // 2, value, _ranges(self._executor.copy(key, nbytes) != 0, at))
        elif action == EXPECT:
            wanted = pattern(at, nbytes, key)
            changed = _ranges(self._pool[at : at + nbytes] != wanted, at)
            self._pool[at : at + nbytes] = wanted
            self._changed(_outside(changed, self._hurt), tag, (since, phase))
        elif action == VERIFY and not any(low < at + nbytes and at < high and p >= since for low, high, p in self._hurt):
            self._changed([(at, at + nbytes)], tag, (since, phase))

    def _overran(self, step: int, value: int, changed: list[Range]) -> None:
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
        if suspects and span[1] - span[0] <= NARROW:
            low, high = ranges[0][0], ranges[-1][1]
            self._watch = (*self._watch, Watch(low=low, high=high, first=span[0], stop=span[1]))

    def _poisoned(self, step: int, value: int, place: Range) -> None:
        """A result holds poison: it was read in an operand, left where it was, or read somewhere else."""
        facts = self._facts
        buffer = facts.owner[value]
        if facts.uploads[step] or self._poison_came_in(step):
            self._tainted.add(buffer)
            return
        self._tainted.add(buffer)
        low, high = place
        dtype = np.float32 if facts.scanned[value] == 4 else np.float64  # noqa: PLR2004 - bytes of an element
        words = poison.found(self._pool[low:high].view(dtype))
        before = self._tracer().trace(stop=step).planned.within(low, high)
        tracer = self._tracer()
        left = [(a, b) for a, b, tag, _ in before if tag < 0 and tracer.word(tag) in words]
        left = [r for a, b in left for r in _ranges(self._pool[a:b] == pattern(a, b - a, tracer.word(_tag_at(before, a))), a)]
        left = [(a, b) for a, b in left if b - a >= facts.scanned[value]]
        tag = self._whose(words)
        kind = "ResultUnwritten" if left else "PoisonRead"
        told = self._written(left or [place], NEVER if tag is None else tag, value=value)
        base = facts.origin[buffer]
        told |= {"buffer": buffer, "bytes": tuple((a - base, b - base) for a, b in (left or [place]))}
        self._report(told, op=step, kind=kind)

    def _poison_came_in(self, step: int) -> bool:
        """Return whether an operand may have held poison: it was told of before, came from outside, or passed through values not searched."""
        facts = self._facts
        tainted = set(self._tainted)
        for reads, writes in zip(facts.operands[:step], facts.results[:step], strict=True):
            if any(facts.owner[value] in tainted for value in reads):
                tainted.update(facts.owner[value] for value in writes if not facts.scanned[value])
        return any(facts.owner[v] in tainted or self._content_has_poison(v) for v in facts.operands[step])

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
        for tag in {tag for tag in self._loading().trace.planned.tags if tag < ZONE}:
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

    def _written(self, ranges: Iterable[Range], tag: int, *, value: int | None = None) -> dict[str, object]:
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

    def _write(self, name: str, tag: int) -> dict[str, object]:
        """Return run, op and value of the write of a tag, under names that begin with `name`."""
        if tag < 0:
            return {}
        count = len(self._facts.owner)
        run, value = (self._run, tag) if tag < count else (int(self._run_of[tag - count]), self._entry.values[tag - count])
        op = None if value is None else int(self._facts.program.producer[value])
        return {f"{name}_run": None if value is None else run, f"{name}_op": op, f"{name}_value": value}

    def _place(self, buffer: int, offset: int) -> dict[str, object]:
        if self._facts.origin[buffer] == ELSEWHERE:
            return {}
        position = self._facts.origin[buffer] + offset
        arena, origin = self._home(position)
        return {"arena": arena, "address": position - origin}

    def _home(self, position: int) -> tuple[int | None, int]:
        """Return the arena of a position and where it begins; a red zone belongs to the nearest block."""
        near = min(self._blocks, key=lambda b: max(b.start - position, position - (b.start + b.nbytes - 1), 0), default=None)
        return (None, 0) if near is None else (near.arena, near.start)

    def _report(self, told: dict[str, object], **more: object) -> None:
        self.count += 1
        if len(self._found) < LIMIT:
            incident = Incident(run=self._run, **{**told, **more})  # type: ignore[arg-type]
            self._found.append(tell(self._facts, incident))


def _following(entry: Entry, trace: Trace, facts: Facts) -> _Following:
    """Return what the next run starts with."""
    count = len(facts.owner)
    numbers: dict[int, int] = {}
    values: list[int | None] = []
    buffers: list[int] = []
    sources: list[int] = []

    def renamed(tag: int) -> int:
        if tag in (NEVER, ZONE):
            return tag
        if tag < 0:
            return gone(renamed(gone(tag)))
        if tag not in numbers:
            numbers[tag] = count + len(values)
            old = tag - count
            values.append(tag if old < 0 else entry.values[old])
            buffers.append(facts.owner[tag] if old < 0 else entry.buffers[old])
            sources.append(max(old, -1))
        return numbers[tag]

    planned, keys = Pieces(trace.planned.size, NEVER), []
    starts, tags = [], []
    for low, _, tag, key in trace.planned.rows():
        new = renamed(tag)
        if new < 0 and tags and tags[-1] == new:
            continue  # free neighbours of one word are one piece
        starts.append(low)
        tags.append(new)
        if new >= 0:
            keys.append(key)
    planned.starts, planned.tags, planned.keys = starts, tags, [-1] * len(starts)
    apart: dict[int, Pieces] = {}
    for buffer, line in sorted(trace.apart.items()):
        if facts.persistent[buffer] or buffer in facts.carried:  # no later run reads what is left in others
            apart[buffer] = fresh = line.copy()
            fresh.tags = [renamed(tag) for tag in line.tags]
    following = Entry(planned=planned, apart=apart, values=tuple(values), buffers=tuple(buffers))
    return _Following(entry=following, keys=keys, sources=np.array(sources, dtype=np.int64))


def _ranges(mask: np.ndarray, at: int) -> list[Range]:  # type: ignore[type-arg]
    """Return the ranges where a mask holds, moved by `at`."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))) + at
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _outside(ranges: list[Range], hurt: list[tuple[int, int, int]]) -> list[Range]:
    return [(low, high) for low, high in ranges if not any(a < high and low < b for a, b, _ in hurt)]


def _tag_at(pieces: list[tuple[int, int, int, int]], position: int) -> int:
    return next(tag for low, high, tag, _ in pieces if low <= position < high)
