"""Accesses that nothing orders: `Race`.

Two ops, neither of which happens before the other, touch a byte where the plan puts it,
and at least one writes it. Whole bytes count, for hardware writes bytes. A pair of a `same` that
stays where it is writes nothing. One record for each (pair of runs, pair of ops, pair of buffers):
`op` and `buffer` are of the later op as the list has them, `other_*` of the earlier one, `value`
the first of the later op's values that takes part, `bytes` all they share, within `buffer`.

Op `i` happens before op `j` of its run if both are on one stream and `i < j`, or `j` waits for `i`
(`after`), transitively; and before all of a run that waits for its run. The `host.read` ops of a
run with `read_after: k` are *late*: each is on a stream of its own, after what stands before it in
its run and after run k, and before every run that waits for k.

Complexity: O(accesses log accesses + accesses that meet + ops x streams).

What this module does not see: how long ops take.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final, NamedTuple

from allocsim.judge.plain.document_records import ProgramRecord
from allocsim.judge.plain.on_trial import OnTrial, stays
from allocsim.judge.plain.overlap import meeting
from allocsim.judge.plain.ranges import Ranges, in_bytes, meet, merged, moved
from allocsim.judge.violations import Violation

SCHEDULE_LIMIT: Final = 1 << 20
"""Ops in all schedules of one memory."""

HAZARDS: Final = {
    (False, True): "write after read",
    (True, False): "read after write",
    (True, True): "write after write",
}
"""Whether the earlier op writes, and the later one -> what they do."""

Clock = dict[tuple[int, int], int]
Node = tuple[int, int]
"""Run and step."""

Key = tuple[Node, Node, int, int]
"""The later op, the earlier one, and the buffer of each."""


class RacingAccess(NamedTuple):
    """One op's read or write of one value, as planned."""

    node: Node
    position: int
    writes: bool
    value: int
    buffer: int
    space: int
    base: int
    """First byte of the buffer in its space."""
    ranges: Ranges
    """Bytes within the space."""

    def apart(self) -> Ranges:
        """Return the bytes within the buffer."""
        return moved(self.ranges, -self.base)


Met = list[tuple[RacingAccess, RacingAccess, Ranges]]
"""An access of the later op, one of the earlier, and the bytes they share."""


def check_races(trial: OnTrial, runs: range) -> Iterator[Violation]:
    """Yield the races among the runs of one memory."""
    if _in_order(trial, runs):
        return
    clocks = Clocks(trial, runs)
    accesses = [access for run in runs for access in _accesses(trial, run)]
    of_op: dict[tuple[Node, int], list[RacingAccess]] = {}
    of_space: dict[int, list[int]] = {}
    for index, access in enumerate(accesses):
        of_op.setdefault((access.node, access.buffer), []).append(access)
        of_space.setdefault(access.space, []).append(index)
    pairs: dict[Key, Met] = {}
    for indices in of_space.values():
        hulls = [(accesses[i].ranges[0][0], accesses[i].ranges[-1][1], 0, 1, i) for i in indices]
        for one, other in meeting(hulls):
            first, later = sorted((accesses[one[4]], accesses[other[4]]), key=lambda access: access.node)
            if first.node == later.node or not (first.writes or later.writes):
                continue
            ranges = moved(meet(first.ranges, later.ranges), -later.base)
            if ranges and not clocks.before(first.node, later.node) and not clocks.before(later.node, first.node):
                key = later.node, first.node, later.buffer, first.buffer
                pairs.setdefault(key, []).append((later, first, ranges))
    left = SCHEDULE_LIMIT
    for key, met in sorted(pairs.items()):
        sides = product(of_op[key[0], key[2]], of_op[key[1], key[3]])
        in_apart = any((one.writes or other.writes) and meet(one.apart(), other.apart()) for one, other in sides)
        record = _record(trial, key, met, in_apart=in_apart, left=left)
        left -= len(record.schedule or ())
        yield record


def _in_order(trial: OnTrial, runs: range) -> bool:
    """Return whether every op happens before all that stand behind it in the list."""
    document = trial.document
    chained = all(len(document.waits[run]) == run and document.runs[run].read_after is None for run in runs)
    return (chained or not document.joined) and all(len(trial.program(run).streams) == 1 for run in runs)


def _accesses(trial: OnTrial, run: int) -> Iterator[RacingAccess]:
    """Yield the accesses of a run."""
    program, place = trial.program(run), trial.place(run)
    for step in trial.live(run).steps:
        op = program.ops[step]
        moves = [i for i in range(len(op.results)) if not (op.same and stays(program, op, i, place))]
        sides = [(False, value) for value in op.operands] + [(True, op.results[i]) for i in moves]
        for position, (writes, value) in enumerate(sides):
            if program.bits[value]:
                buffer = program.values[value].buffer
                space, base = place(buffer)
                ranges = moved(in_bytes(program.bits[value]), base // 8)
                yield RacingAccess((run, step), position, writes, value, buffer, space, base // 8, ranges)


def _record(trial: OnTrial, key: Key, met: Met, *, in_apart: bool, left: int) -> Violation:
    (run, step), (other_run, other_step), buffer, other_buffer = key
    met.sort(key=lambda row: (row[0].position, row[1].position))
    identities = trial.document.identities
    schedule = None
    if run == other_run and trial.document.runs[run].read_after is None:
        schedule = exchanged(trial.program(run), other_step, step)
    return trial.record(
        "Race",
        run,
        step,
        value=met[0][0].value,
        buffer=buffer,
        other_run=other_run,
        other_op=other_step,
        other_buffer=other_buffer,
        bytes=merged(part for _, _, ranges in met for part in ranges),
        in_apart=in_apart and identities[run][buffer] == identities[other_run][other_buffer],
        hazards=tuple(dict.fromkeys(HAZARDS[first.writes, later.writes] for later, first, _ in met)),
        schedule=schedule if schedule is not None and len(schedule) <= left else None,
    )


def exchanged(program: ProgramRecord, earlier: int, later: int) -> tuple[int, ...]:
    """Return a legal order in which `later` runs before `earlier`: what it waits for of the ops
    between the two, itself, then `earlier`; ops before them keep their place, the others come
    behind.
    """
    needed: set[int] = set()
    streams = {program.ops[later].stream}
    for step in range(later, earlier, -1):
        op = program.ops[step]
        if step == later or step in needed or op.stream in streams:
            needed.add(step)
            streams.add(op.stream)
            needed.update(before for before in op.after if before > earlier)
    return (*sorted(needed), earlier)


class Clocks:
    """The order of the ops of the runs of one memory.

    A clock says how far an op knows each stream: `(run, stream) -> the last step of it that happens
    before the op, or is the op`.
    """

    def __init__(self, trial: OnTrial, runs: range) -> None:
        self.trial = trial
        self._at_start: dict[int, Clock] = {}
        self._inner: dict[Node, Clock] = {}
        """Of each op, how far it knows the streams of its own run."""
        self._late: dict[Node, Clock] = {}
        self._whole: dict[int, Clock] = {}
        """Of each run, the clock of what waits for all of it, late reads left out."""
        for run in runs:
            self._add(run)

    def is_late(self, node: Node) -> bool:
        """Return whether an op is a read that comes after a later run."""
        run, step = node
        late = self.trial.document.runs[run].read_after is not None
        return late and self.trial.program(run).ops[step].kind == "host.read"

    def before(self, one: Node, other: Node) -> bool:
        """Return whether one op happens before another."""
        if self.is_late(other):
            clock = self._late[other]
        elif one[0] == other[0] and not self.is_late(one):
            clock = self._inner[other]
        else:
            clock = self._at_start[other[0]]
        return clock.get((one[0], self._stream(one)), -1) >= one[1]

    def _stream(self, node: Node) -> int:
        program = self.trial.program(node[0])
        return len(program.streams) + node[1] if self.is_late(node) else program.ops[node[1]].stream

    def _add(self, run: int) -> None:
        document, ops = self.trial.document, self.trial.program(run).ops
        waits = document.waits[run] if document.joined else frozenset[int]()
        known = [clock for node, clock in self._late.items() if document.runs[node[0]].read_after in waits]
        self._at_start[run] = _latest([*(self._whole[earlier] for earlier in waits), *known])
        last: dict[int, Clock] = {}
        for step, op in enumerate(ops):
            waited = [self._inner[run, earlier] for earlier in op.after if not self.is_late((run, earlier))]
            clock = _latest([last.get(op.stream, {}), *waited])
            if not self.is_late((run, step)):
                clock[run, op.stream] = step
                last[op.stream] = clock
            self._inner[run, step] = clock
        self._whole[run] = _latest([self._at_start[run], *last.values()])
        done = self._whole[run] if last else {}  # without ops there is nothing to be late for
        for earlier in range(run):
            if earlier in self._at_start and document.runs[earlier].read_after == run:
                for step in range(len(self.trial.program(earlier).ops)):
                    node = (earlier, step)
                    if self.is_late(node):
                        clock = _latest([self._at_start[earlier], self._inner[node], done])
                        self._late[node] = {**clock, (earlier, self._stream(node)): step}


def _latest(clocks: Iterable[Clock]) -> Clock:
    """Return how far several clocks know each stream together."""
    found: Clock = {}
    for clock in clocks:
        for stream, step in clock.items():
            found[stream] = max(found.get(stream, -1), step)
    return found
