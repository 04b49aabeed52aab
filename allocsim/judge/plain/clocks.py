"""Which ops happen before which, in one run and in several.

Op `i` happens before op `j` of its run if both are on one stream and `i < j`, or `j` waits for `i`
(`after`), transitively; and before all of a run that waits for its run. The `host.read` ops of a
run with `read_after: k` are *late*: each is on a stream of its own, after what stands before it in
its run and after run k, and before every run that waits for k.

A clock says how far an op knows each stream: `(run, stream) -> the last step of it that happens
before the op, or is the op`.

Complexity: O(ops x streams), and O(runs x streams) for each late read.

What this module does not see: which bytes are touched.
"""

from allocsim.judge.plain.on_trial import OnTrial

Clock = dict[tuple[int, int], int]
Node = tuple[int, int]
"""Run and step."""


class Clocks:
    """The order of the ops of the runs of one memory."""

    def __init__(self, trial: OnTrial, runs: range) -> None:
        self.trial = trial
        self._at_start: dict[int, Clock] = {}
        self._inner: dict[int, list[dict[int, int]]] = {}
        self._late: dict[Node, Clock] = {}
        for run in runs:
            self._add(run)

    def is_late(self, node: Node) -> bool:
        """Return whether an op is a read that comes after a later run."""
        run, step = node
        late = self.trial.document.runs[run].read_after is not None
        return late and self.trial.program(run).ops[step].kind == "host.read"

    def before(self, one: Node, other: Node) -> bool:
        """Return whether one op happens before another."""
        (run, step), (later, _) = one, other
        if self.is_late(other):
            return self._knows(self._late[other], one)
        if not self.is_late(one) and run == later:
            return self._inner[run][other[1]].get(self._stream(one), -1) >= step
        return self._knows(self._at_start[later], one)

    def _knows(self, clock: Clock, one: Node) -> bool:
        return clock.get((one[0], self._stream(one)), -1) >= one[1]

    def _stream(self, node: Node) -> int:
        program = self.trial.program(node[0])
        return program.streams + node[1] if self.is_late(node) else program.ops[node[1]].stream

    def _add(self, run: int) -> None:
        waits = self.trial.document.waits[run] if self.trial.document.joined else frozenset[int]()
        start: Clock = {}
        for earlier in waits:
            _merge(start, self._whole(earlier))
        self._at_start[run] = start
        for node, clock in self._late.items():
            if self.trial.document.runs[node[0]].read_after in waits:
                _merge(start, clock)
                start[node[0], self._stream(node)] = node[1]
        self._inner[run] = self._clocks(run)
        self._finish_late(run)

    def _clocks(self, run: int) -> list[dict[int, int]]:
        """Return how far each op of a run knows the streams of the run, late reads left out."""
        last: dict[int, dict[int, int]] = {}
        found: list[dict[int, int]] = []
        for step, op in enumerate(self.trial.program(run).ops):
            known = dict(last.get(op.stream, {}))
            for earlier in op.after:
                if not self.is_late((run, earlier)):
                    _merge(known, found[earlier])
            if not self.is_late((run, step)):
                known[op.stream] = step
                last[op.stream] = known
            found.append(known)
        return found

    def _whole(self, run: int) -> Clock:
        """Return the clock of what waits for all of a run, late reads left out."""
        clock = dict(self._at_start[run])
        for step, op in enumerate(self.trial.program(run).ops):
            if not self.is_late((run, step)):
                clock[run, op.stream] = step
        return clock

    def _finish_late(self, run: int) -> None:
        """Order the late reads that come right after a run."""
        for earlier in range(run):
            if earlier in self._at_start and self.trial.document.runs[earlier].read_after == run:
                for step in range(len(self.trial.program(earlier).ops)):
                    if self.is_late((earlier, step)):
                        clock = dict(self._at_start[earlier])
                        _merge(clock, {(earlier, stream): at for stream, at in self._inner[earlier][step].items()})
                        _merge(clock, self._whole(run))
                        self._late[earlier, step] = clock


def _merge(clock: dict, other: dict) -> None:  # type: ignore[type-arg]
    for key, step in other.items():
        clock[key] = max(clock.get(key, -1), step)
