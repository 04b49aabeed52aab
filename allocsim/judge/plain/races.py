"""TouchedBytes that nothing orders: `Race`.

Two ops, neither of which happens before the other (`clocks`), touch a byte where the plan puts it,
and at least one writes it. Whole bytes count, for hardware writes bytes. A pair of a `same` that
stays where it is writes nothing. One record for each (pair of runs, pair of ops, pair of buffers):
`op` and `buffer` are of the later op as the list has them, `other_*` of the earlier one, `value`
the first of the later op's values that takes part, `bytes` all they share, within `buffer`.

Complexity: O(accesses log accesses + accesses that meet).

What this module does not see: how long ops take.
"""

from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

from allocsim.judge.plain.clocks import Clocks
from allocsim.judge.plain.document_records import ProgramRecord
from allocsim.judge.plain.layouts import Ranges, in_bytes, meet, merged, moved
from allocsim.judge.plain.on_trial import OnTrial, stays
from allocsim.judge.violations import Violation

WRITES: Final = 1

SCHEDULE_LIMIT: Final = 1 << 20
"""Ops in all schedules of one memory."""

Key = tuple[tuple[int, int], tuple[int, int], int, int]
"""Run and step of the later op, of the earlier one, and the buffer of each."""


class RacingAccess(NamedTuple):
    """One op's read or write of one value, as planned."""

    node: tuple[int, int]
    position: int
    writes: bool
    value: int
    buffer: int
    base: int
    """First byte of the buffer in its space."""
    ranges: Ranges
    """Bytes within the space."""

    def apart(self) -> Ranges:
        """Return the bytes within the buffer."""
        return moved(self.ranges, -self.base)


def check_races(trial: OnTrial, runs: range) -> Iterator[Violation]:
    """Yield the races among the runs of one memory."""
    if _in_order(trial, runs):
        return
    clocks = Clocks(trial, runs)
    spaces = _by_space(trial, runs)
    of_op: dict[tuple[tuple[int, int], int], list[RacingAccess]] = {}
    for access in (access for accesses in spaces.values() for access in accesses):
        of_op.setdefault((access.node, access.buffer), []).append(access)
    pairs: dict[Key, list[tuple[RacingAccess, RacingAccess, Ranges]]] = {}
    for accesses in spaces.values():
        for one, other in _meeting(accesses):
            if one.node == other.node or clocks.before(one.node, other.node) or clocks.before(other.node, one.node):
                continue
            first, later = sorted((one, other), key=lambda access: access.node)
            ranges = moved(meet(first.ranges, later.ranges), -later.base)
            key = later.node, first.node, later.buffer, first.buffer
            if ranges:
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
    alone = all(trial.program(run).streams == 1 for run in runs)
    if not document.joined:
        return alone
    chained = all(len(document.waits[run]) == run and document.runs[run].read_after is None for run in runs)
    return alone and chained


def _by_space(trial: OnTrial, runs: range) -> dict[int, list[RacingAccess]]:
    found: dict[int, list[RacingAccess]] = {}
    for run in runs:
        program, place = trial.program(run), trial.place(run)
        for step in trial.live(run).accesses.steps:
            op = program.ops[step]
            still = [op.same and stays(program, op, i, place) for i in range(len(op.results))]
            written = [False] * len(op.operands) + [True] * len(op.results)
            left_out = [False] * len(op.operands) + still
            for position, value in enumerate((*op.operands, *op.results)):
                if left_out[position] or not program.runs[value]:
                    continue
                buffer = program.values[value].buffer
                space, base = place(buffer)
                ranges = moved(in_bytes(program.runs[value]), base // 8)
                access = RacingAccess((run, step), position, written[position], value, buffer, base // 8, ranges)
                found.setdefault(space, []).append(access)
    return found


def _meeting(accesses: list[RacingAccess]) -> Iterator[tuple[RacingAccess, RacingAccess]]:
    """Yield pairs of accesses whose hulls meet and of which one writes, by a sweep over
    addresses.
    """
    active: tuple[list[RacingAccess], list[RacingAccess]] = ([], [])
    for access in sorted(accesses, key=lambda access: access.ranges[0][0]):
        low = access.ranges[0][0]
        for side in active:
            side[:] = [other for other in side if other.ranges[-1][1] > low]
        for side in active if access.writes else active[WRITES:]:
            for other in side:
                yield other, access
        active[access.writes].append(access)


def _record(
    trial: OnTrial, key: Key, met: list[tuple[RacingAccess, RacingAccess, Ranges]], *, in_apart: bool, left: int
) -> Violation:
    (run, step), (other_run, other_step), buffer, other_buffer = key
    met.sort(key=lambda row: (row[0].position, row[1].position))
    record = trial.document.runs[run]
    one = trial.document.identities[run][buffer] == trial.document.identities[other_run][other_buffer]
    schedule = None
    if run == other_run and record.read_after is None:
        schedule = exchanged(trial.program(run), other_step, step)
    return Violation(
        kind="Race",
        program=record.program,
        plan=record.plan,
        run=run,
        step=step,
        op=step,
        value=met[0][0].value,
        buffer=buffer,
        other_run=other_run,
        other_op=other_step,
        other_buffer=other_buffer,
        bytes=merged(part for _, _, ranges in met for part in ranges),
        in_apart=one and in_apart,
        hazards=tuple(dict.fromkeys(_hazard(later, first) for later, first, _ in met)),
        schedule=schedule if schedule is not None and len(schedule) <= left else None,
    )


def _hazard(later: RacingAccess, first: RacingAccess) -> str:
    if later.writes:
        return "write after write" if first.writes else "write after read"
    return "read after write"


def exchanged(program: ProgramRecord, earlier: int, later: int) -> tuple[int, ...]:
    """Return a legal order in which `later` runs before `earlier`: what it waits for of the ops
    between the two, itself, then `earlier`; ops before them keep their place, the others come
    behind.
    """
    needed: set[int] = set()
    streams: set[int] = {program.ops[later].stream}
    for step in range(later, earlier, -1):
        op = program.ops[step]
        if step == later or step in needed or op.stream in streams:
            needed.add(step)
            streams.add(op.stream)
            needed.update(before for before in op.after if before > earlier)
    return (*sorted(needed), earlier)
