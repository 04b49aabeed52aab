"""Find each `Race`: two accesses to one byte without a happens-before order.

Two ops race if neither happens before the other, both access a byte under the plan, and at least
one writes the byte. Whole bytes count, because hardware writes bytes. A `same` does not write a
result that stays in place. There is one record for each (pair of runs, pair of ops, pair of
buffers). `op` and `buffer` belong to the later op in list order, `other_*` to the earlier op.
`value` is the first racing value of the later op, and `bytes` are all shared bytes within `buffer`.

Op `i` happens before op `j` of its run if both are on one stream and `i < j`, or `j` waits for `i`
(`after`), transitively. Op `i` happens before all ops of a run that waits for its run. The
`host.read` ops of a run with `read_after: k` are *late*: each has a stream of its own, after the
ops that it follows or waits for in its run and after run k, and before every run that waits for k.

Complexity: O(accesses log accesses + overlapping accesses + ops x streams).

This module does not examine how long ops take.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from operator import or_
from typing import Final, NamedTuple

from allocsim.judge.plain.document_records import ProgramRecord
from allocsim.judge.plain.on_trial import RunOnTrial, Space, moving
from allocsim.judge.plain.overlap import Rectangle, meeting
from allocsim.judge.plain.ranges import Ranges, in_bytes, meet, merged, moved
from allocsim.judge.violations import Violation

SCHEDULE_LIMIT: Final = 1 << 20  # the number of ops in all schedules of one memory
DOES: Final = ("read", "write")  # indexed by whether an access writes

Node = tuple[int, int]  # a run and a step

Clock = Counter[tuple[int | Node, int]]
"""One past the last step known to be done, by (run or late read, stream); `|` takes maxima."""


class RacingAccess(NamedTuple):
    """One op's read or write of one value, with its planned place."""

    node: Node
    position: int
    writes: bool
    value: int
    buffer: int
    space: Space
    base: int  # the first byte of the buffer in its space
    ranges: Ranges  # the bytes within the buffer


Met = dict[tuple[Node, Node, int, int], list[tuple[RacingAccess, RacingAccess, Ranges]]]
"""Maps (later op, earlier op, their buffers) to (later access, earlier access, shared bytes)."""


def check_races(runs: Sequence[RunOnTrial]) -> Iterator[Violation]:
    """Yield the races among the runs over one memory."""
    if _in_order(runs):
        return
    accesses = [access for run in runs for access in _accesses(run)]
    of_op: defaultdict[tuple[Node, int], list[RacingAccess]] = defaultdict(list)
    for access in accesses:
        of_op[access.node, access.buffer].append(access)
    left, of_run = SCHEDULE_LIMIT, {run.index: run for run in runs}
    for key, met in sorted(_unordered(accesses, Clocks(runs)).items()):
        (number, step), (other_number, other_step), buffer, other_buffer = key
        run, other, schedule = of_run[number], of_run[other_number], None
        if run is other and run.run.read_after is None:
            schedule = exchanged(run.program, other_step, step)
        sides = product(of_op[(number, step), buffer], of_op[(other_number, other_step), other_buffer])
        record = run.violation(
            "Race",
            step,
            value=min(met)[0].value,
            buffer=buffer,
            other_run=other_number,
            other_op=other_step,
            other_buffer=other_buffer,
            bytes=merged(part for _, _, ranges in met for part in ranges),
            in_apart=run.apart[buffer] == other.apart[other_buffer]
            and any((one.writes or two.writes) and meet(one.ranges, two.ranges) for one, two in sides),
            hazards=tuple(dict.fromkeys(f"{DOES[one.writes]} after {DOES[two.writes]}" for one, two, _ in sorted(met))),
            schedule=schedule if schedule is not None and len(schedule) <= left else None,
        )
        left -= len(record.schedule or ())
        yield record


def _in_order(runs: Sequence[RunOnTrial]) -> bool:
    """Return whether every op happens before all later ops of the list."""
    return all(
        len(run.document.waits[run.index]) == position and run.run.read_after is None and len(run.program.streams) == 1
        for position, run in enumerate(runs)
    )


def _accesses(run: RunOnTrial) -> Iterator[RacingAccess]:
    """Yield the accesses of a run that cover at least one bit."""
    program = run.program
    for step, op in run.live.ops.items():
        sides = [(False, value) for value in op.operands]
        sides += [(True, op.results[i]) for i in moving(program, op, run.planned)]
        for position, (writes, value) in enumerate(sides):
            if program.bits[value]:
                buffer = program.values[value].buffer
                space, base = run.planned[buffer]
                ranges = in_bytes(program.bits[value])
                yield RacingAccess((run.index, step), position, writes, value, buffer, space, base // 8, ranges)


def _unordered(accesses: list[RacingAccess], clocks: "Clocks") -> Met:
    """Return the pairs of unordered accesses that share a byte, if at least one is a write."""
    hulls: defaultdict[Space, list[Rectangle]] = defaultdict(list)
    for index, access in enumerate(accesses):
        low, high = access.base + access.ranges[0][0], access.base + access.ranges[-1][1]
        hulls[access.space].append((low, high, 0, 1, index))
    found: Met = defaultdict(list)
    for one, other in (pair for rows in hulls.values() for pair in meeting(rows)):
        first, later = sorted((accesses[one[4]], accesses[other[4]]))
        if first.node == later.node or not (first.writes or later.writes):
            continue
        ranges = meet(moved(first.ranges, first.base - later.base), later.ranges)
        if ranges and not clocks.before(first.node, later.node) and not clocks.before(later.node, first.node):
            found[later.node, first.node, later.buffer, first.buffer].append((later, first, ranges))
    return found


def exchanged(program: ProgramRecord, earlier: int, later: int) -> tuple[int, ...]:
    """Return a legal order: the ops after `earlier` that `later` needs, then `later`, `earlier`."""
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
    """The happens-before order of the ops over one memory; a late read counts as its own run."""

    def __init__(self, runs: Sequence[RunOnTrial]) -> None:
        self._at_start: dict[int | Node, Clock] = {}
        self._at_end: dict[int | Node, Clock] = {}  # the clock after a run without its late reads
        self._inner: dict[Node, Clock] = {}  # the clock of each op for the streams of its own run
        self._stream: dict[Node, tuple[int | Node, int]] = {}
        self._late: dict[Node, int] = {}  # the run that each late read follows
        for run in runs:
            self._add(run)

    def before(self, one: Node, other: Node) -> bool:
        """Return whether op `one` happens before op `other`."""
        stream, (run, _) = self._stream[one], self._stream[other]
        clock = self._inner[other] if stream[0] == run else self._at_start[run]
        return clock[stream] > one[1]

    def _add(self, run: RunOnTrial) -> None:
        number, waits = run.index, run.document.waits[run.index]
        known: list[int | Node] = [*waits, *(node for node, after in self._late.items() if after in waits)]
        self._at_start[number] = reduce(or_, (self._at_end[earlier] for earlier in known), Clock())
        last: dict[int, Clock] = {}
        for step, op in enumerate(run.program.ops):
            node, late = (number, step), run.run.read_after if op.kind == "host.read" else None
            self._stream[node] = (number if late is None else node), op.stream
            waited = (self._inner[number, earlier] for earlier in op.after if (number, earlier) not in self._late)
            self._inner[node] = reduce(or_, waited, last.get(op.stream, Clock()))
            if late is None:
                self._inner[node] = last[op.stream] = self._inner[node] | Clock({self._stream[node]: step + 1})
            else:
                self._late[node] = late
        self._at_end[number] = reduce(or_, last.values(), self._at_start[number])
        done = self._at_end[number] if last else Clock()  # a run without ops delays no read
        for node in [node for node, after in self._late.items() if after == number]:
            self._at_start[node] = self._at_start[node[0]] | self._inner[node] | done
            self._at_end[node] = self._at_start[node] | Clock({self._stream[node]: node[1] + 1})
