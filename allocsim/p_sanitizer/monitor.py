"""The monitor: it runs the row actions of a trace beside the ops, and reports incidents.

    monitor.begin(skip=())
    for step in range(ops):
        monitor.before(step); <the op>; monitor.after(step)      # or, after each op: monitor.between(step), which also does the next `before`
    monitor.end()

Traces are kept: a run that begins as an earlier one began (same pieces, same uploads left out) is
not traced again. From the second or third step on a training loop costs only its rows.

What is told: reads that the trace finds wrong, when their op is reached; bad rows, when they come
out (`culprits`).

Invariants: rows touch dead bytes only (poison), so that a run of a sound plan with honest kernels
leaves the same bits as without.

Complexity: for each op one call that reads its operands and results about twice; O(pool) once a
run.

What this module does not see: kernels, and writes that put back what was there.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np

from allocsim.errors import ModelError
from allocsim.p_sanitizer import poison
from allocsim.p_sanitizer.culprits import Blame
from allocsim.p_sanitizer.following import Following, first_entry, following
from allocsim.p_sanitizer.incidents import Incident
from allocsim.p_sanitizer.pools import TrackedBlock
from allocsim.p_sanitizer.program_facts import Facts
from allocsim.p_sanitizer.row_actions import HASH, SAME, SNAP, Bytes, Plain, RowExecutor, Rows
from allocsim.p_sanitizer.run_script import RunStart, Trace
from allocsim.p_sanitizer.trace import RunTracer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """A trace with its rows as columns, and what comes after it."""

    trace: Trace
    rows: Rows
    following: Following


class Monitor:
    """Watches the runs of one program in one pool."""

    def __init__(
        self,
        facts: Facts,
        pool: Bytes,
        blocks: Sequence[TrackedBlock],
        *,
        executor: Callable[[Bytes], RowExecutor] = Plain,
        outside: Mapping[int, Bytes] | None = None,
        every_op: bool = False,
    ) -> None:
        """Take over a pool whose content has been laid and whose other bytes are as `pools.Pool`
        left them.

        Args:
            facts: the program, laid into the pool.
            pool: the bytes.
            blocks: what lies where in it, sorted.
            executor: who carries rows out.
            outside: memory of the buffers that are `ELSEWHERE`; looked at for poison only.
            every_op: compare the whole pool after each op with a copy of it from before: each
                change is pinned on its op at once, to the byte, at two passes of the pool for each
                op.
        """
        self._facts, self._pool = facts, pool
        self._shadow = np.empty_like(pool) if every_op else None
        self.blame = Blame(facts, pool, blocks, outside or {})
        """What was found."""
        self._executor = executor(pool)
        self._traces: dict[object, _Loaded] = {}
        self._entries: dict[object, RunStart] = {}
        self._run = -1
        self._now: _Loaded | None = None
        self._skip: frozenset[int] = frozenset()
        self._entry = first_entry(facts, blocks)
        self._run_of = np.full(len(self._entry.values), -1, dtype=np.int64)
        live = [(low, high) for low, high, tag, _ in self._entry.planned.rows() if tag >= 0]
        rows = Rows.of([(HASH, low, high - low, key) for key, (low, high) in enumerate(live)])
        self._executor.load(rows, hashes=len(live), snaps=0)
        self._executor.run(0, len(live))
        self._loaded: _Loaded | None = None

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """All that was found, in order of run and step."""
        return self.blame.incidents

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
        """Begin a run in which the host leaves out the uploads at the steps of `skip`, and do what
        comes before its first op.
        """
        if self._now is not None:
            raise ModelError("", f"run {self._run} has not ended")
        self._run += 1
        self._skip = frozenset(skip)
        key = (self._skip, self.blame.watch, self._entry)
        if key not in self._traces:
            traced = self._tracer().trace()
            left = following(self._entry, traced, self._facts)
            known = self._entries.setdefault(left.entry.key(), left.entry)
            self._traces[key] = _Loaded(trace=traced, rows=Rows.of(traced.rows), following=replace(left, entry=known))
        self._now = self._traces[key]
        if self._now is not self._loaded:
            trace = self._now.trace
            self._executor.load(self._now.rows, hashes=trace.hashes, snaps=trace.snaps)
            self._loaded = self._now
        self._executor.await_with(poison.awaited(self._run))
        self.blame.begin(
            run=self._run,
            skip=self._skip,
            entry=self._entry,
            run_of=self._run_of,
            trace=self._now.trace,
            tracer=self._tracer,
        )
        self.before(0)

    def before(self, step: int) -> None:
        """Do what comes before an op (for step 0, `begin` did)."""
        if step > 0 or self._now is not None:
            self._phases(2 * step, 2 * step + 1)
        self._copy()
        self._tell_wrong(step)

    def after(self, step: int) -> None:
        """Do what comes after an op."""
        self._compare(step)
        self._phases(2 * step + 1, 2 * step + 2)

    def between(self, step: int) -> None:
        """Do what comes after an op and before the next, or at the end."""
        self._compare(step)
        self._phases(2 * step + 1, 2 * step + 3)
        self._copy()
        self._tell_wrong(step + 1)

    def observer(self) -> Callable[[int, Any, Any], None]:
        """Return `between` for the run that has begun, as the engine's runtime calls it: with two
        arguments it does not need, and fast.
        """
        if self._shadow is not None:
            return lambda step, _operands, _results: self.between(step)
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
        left = self._loading().following
        self._run_of = np.append(self._run_of, self._run)[left.sources]
        self._entry = left.entry
        self._executor.move(left.keys)
        self._now = None

    def digest(self, memory: Bytes) -> int:
        """Return a hash of memory outside the pool."""
        return self._executor.digest(memory)

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

    def _copy(self) -> None:
        if self._shadow is not None:
            self._shadow[:] = self._pool

    def _compare(self, step: int) -> None:
        """Tell of every byte that changed while an op ran and is none of its results."""
        if self._shadow is None:
            return
        for value in self._facts.results[step]:
            for low, high in self._facts.places[value]:
                self._shadow[low:high] = self._pool[low:high]
        whole = len(self._pool) // 8 * 8
        if not np.array_equal(
            self._shadow[:whole].view(np.int64), self._pool[:whole].view(np.int64)
        ) or not np.array_equal(self._shadow[whole:], self._pool[whole:]):
            self.blame.overran(step, self._shadow != self._pool)

    def _tracer(self) -> RunTracer:
        return RunTracer(self._facts, self._entry, skip=self._skip, watch=self.blame.watch)

    def _tell_wrong(self, step: int) -> None:
        for wrong in self._loading().trace.wrong.get(step, ()):
            self.blame.wrong(wrong)

    def _bad_rows(self, rows: Sequence[int], stop: int) -> None:
        """Tell of bad rows among those carried out before row `stop`, repairing dead bytes."""
        if not rows:
            return
        now = self._loading()
        for row in rows:
            action, _, nbytes, key = now.trace.rows[row]
            self.blame.bad(row, now.trace, self._executor.copy(key, nbytes if action == SAME else 0))
        # bands for the next op may have been copied before the repair
        guards = now.trace.guards
        last = guards[stop - 1][0]
        for row in takewhile(lambda row: guards[row][0] == last, reversed(range(stop))):
            if now.trace.rows[row][0] == SNAP:
                self._executor.run(row, row + 1)
