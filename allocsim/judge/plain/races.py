"""Accesses that nothing orders: `Race`.

Two ops, neither of which happens before the other (`clocks`), touch a byte where the plan puts it,
and at least one writes it. Whole bytes count, for hardware writes bytes. A pair of a `same` that
stays where it is writes nothing. One record for each (pair of runs, pair of ops, pair of buffers):
`op` and `buffer` are of the later op as the list has them, `other_*` of the earlier one, `value`
the first of the later op's values that takes part, `bytes` all they share, within `buffer`.

Complexity: O(accesses log accesses + accesses that meet).

What this module does not see: how long ops take.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from allocsim.judge.plain.clocks import Clocks
from allocsim.judge.plain.layouts import Ranges, in_bytes, meet, merged, moved
from allocsim.judge.plain.records import Program
from allocsim.judge.plain.trial import Trial, stays
from allocsim.judge.violations import Violation

WRITES: Final = 1


class Access(NamedTuple):
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


def check_races(trial: Trial, runs: range) -> Iterator[Violation]:
    """Yield the races among the runs of one memory."""
    if _in_order(trial, runs):
        return
    clocks = Clocks(trial, runs)
    pairs: dict[tuple[tuple[int, int], tuple[int, int], int, int], list[tuple[Access, Access, Ranges]]] = {}
    for accesses in _by_space(trial, runs).values():
        for one, other in _meeting(accesses):
            if one.node == other.node or clocks.before(one.node, other.node) or clocks.before(other.node, one.node):
                continue
            first, later = sorted((one, other), key=lambda access: clocks.position(access.node))
            ranges = moved(meet(first.ranges, later.ranges), -later.base)
            key = later.node, first.node, later.buffer, first.buffer
            if ranges:
                pairs.setdefault(key, []).append((first, later, ranges))
    for key, met in sorted(pairs.items()):
        yield _record(trial, key, met)


def _in_order(trial: Trial, runs: range) -> bool:
    """Return whether every op happens before all that stand behind it in the list."""
    document = trial.document
    alone = all(trial.program(run).streams == 1 for run in runs)
    if not document.joined:
        return alone
    chained = all(len(document.waits[run]) == run and document.runs[run].read_after is None for run in runs)
    return alone and chained


def _by_space(trial: Trial, runs: range) -> dict[int, list[Access]]:
    found: dict[int, list[Access]] = {}
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
                access = Access((run, step), position, written[position], value, buffer, base // 8, ranges)
                found.setdefault(space, []).append(access)
    return found


def _meeting(accesses: list[Access]) -> Iterator[tuple[Access, Access]]:
    """Yield pairs of accesses whose hulls meet and of which one writes, by a sweep over
    addresses.
    """
    active: tuple[list[Access], list[Access]] = ([], [])
    for access in sorted(accesses, key=lambda access: access.ranges[0][0]):
        low = access.ranges[0][0]
        for side in active:
            side[:] = [other for other in side if other.ranges[-1][1] > low]
        for side in active if access.writes else active[WRITES:]:
            for other in side:
                yield other, access
        active[access.writes].append(access)


def _record(
    trial: Trial,
    key: tuple[tuple[int, int], tuple[int, int], int, int],
    met: list[tuple[Access, Access, Ranges]],
) -> Violation:
    (run, step), (other_run, other_step), buffer, other_buffer = key
    sorts = {
        "write after read": any(later.writes and not first.writes for first, later, _ in met),
        "read after write": any(first.writes and not later.writes for first, later, _ in met),
        "write after write": any(first.writes and later.writes for first, later, _ in met),
    }
    identities = trial.document.identities
    record = trial.document.runs[run]
    return Violation(
        kind="Race",
        program=record.program,
        plan=record.plan,
        run=run,
        step=step,
        op=step,
        value=min((later.position, later.value) for _, later, _ in met)[1],
        buffer=buffer,
        other_run=other_run,
        other_op=other_step,
        other_buffer=other_buffer,
        bytes=merged(part for _, _, ranges in met for part in ranges),
        in_apart=identities[run][buffer] == identities[other_run][other_buffer],
        hazards=tuple(sort for sort, found in sorts.items() if found),
        schedule=exchanged(trial.program(run), other_step, step) if run == other_run and other_step < step else None,
    )


def exchanged(program: Program, earlier: int, later: int) -> tuple[int, ...]:
    """Return the ops from `earlier` to `later` in a legal order in which `later` runs first: what
    it waits for, itself, the others.
    """
    needed = {later}
    streams = {program.ops[later].stream}
    for step in range(later, earlier - 1, -1):
        if step in needed or program.ops[step].stream in streams:
            needed.add(step)
            streams.add(program.ops[step].stream)
            needed.update(program.ops[step].after)
    between = range(earlier, later + 1)
    return (*(step for step in between if step in needed), *(step for step in between if step not in needed))
