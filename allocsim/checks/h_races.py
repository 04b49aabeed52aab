"""Accesses that nothing orders: `Race` (detector H).

Order. Op `i` happens before op `j` if both are on one stream and `i < j`, or `j` waits for `i` (`after`), transitively. Ops of kind `view` and
uploads left out touch nothing and keep their place in that order. Runs are joined: all of one before any of the next.

A race: two ops of a run, neither of which happens before the other, touch a byte they share where the plan puts it, and at least one writes it.
Every sort of hazard counts: write after read, read after write, write after write, named by the order of the list. Bytes are exact: crossing hulls of
strided values are no race. Buffers outside all arenas have memory of their own. The accesses of one op are in order, in place or not.

Records. One for each (run, pair of ops, pair of buffers); the pair of buffers is (that of the later op in the list, that of the earlier). `op`,
`step` and `buffer` are of the later op, `other_op` and `other_buffer` of the earlier one, `value` the first of the later op's values (operands, then results)
that takes part, `bytes` all bytes they share, within `buffer`. `in_apart`: the two are in one buffer, so that they meet under every plan.
`hazards`: every sort found. `schedule`: a legal order in which the later one runs first (`exchanged`), for the first records, as long as
`SCHEDULE_LIMIT` ops in all suffice; None for the rest.

What no `Race` means: in every legal order of the ops of a run every read finds the tags it finds in the order of the list, and so the other
checks' word holds for all of them. A race means that two legal orders exist that differ in what some read finds, or in what lies in
memory after the same ops.

Complexity: `clocks` and `races`, once for runs alike; and the byte runs of what is listed.

What this module does not see: how long ops take, and which legal orders a runtime really takes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from allocsim.checks.h_clocks import Order
from allocsim.checks.h_pairs import Races, races
from allocsim.checks.owners import Range, merged, shared
from allocsim.checks.trial import Findings, Trial, TrialDocument, buffer_words, bytes_words, op_words, slot_words, value_words
from allocsim.checks.violations import Violation

SCHEDULE_LIMIT: Final = 1 << 20
"""Ops in all the schedules of one report."""


@dataclass(slots=True)
class _Budget:
    """How many ops the schedules still to be made may name."""

    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meeting:
    """Two accesses of one race: values of the later and of the earlier op, and whether each is written."""

    value: int
    other_value: int
    writes: bool
    other_writes: bool
    bytes: tuple[Range, ...]
    """Within the buffer of `value`."""

    @property
    def hazard(self) -> str:
        """What it is in the order of the list."""
        if self.writes:
            return "write after write" if self.other_writes else "write after read"
        return "read after write"


def check_order(case: TrialDocument, findings: Findings) -> None:
    """Report every pair of accesses of a run that nothing orders."""
    known: dict[object, Races] = {}
    orders: dict[int, Order] = {}
    budget = _Budget(left=SCHEDULE_LIMIT)
    for trial in case.trials:
        if trial.alike not in known:
            orders.setdefault(trial.program_index, Order.of(trial.program.ops))
            known[trial.alike] = races(trial.accesses, trial.plan, orders[trial.program_index], case.selector)
        found = known[trial.alike]
        listed = min(findings.room("Race"), len(found.op))
        for row in range(listed):
            findings.report("Race", partial(_record, trial, orders[trial.program_index], found, row, budget))
        findings.counts["Race"] += len(found.op) - listed
        if found.cut:
            findings.more("Race", 0)


def exchanged(order: Order, first: int, second: int) -> tuple[int, ...]:
    """Return how ops run from step `first` on so that `second`, later in the list, runs before it: legal if nothing orders the two.

    Earlier ops keep the order of the list, and so do those not named, after all that are. Named are what `second` needs of the ops
    between the two, `second`, then `first`. O(ops named and their waits).
    """
    return (*sorted(_needed(order, first, second, len(order.stream))), second, first)


def _needed(order: Order, first: int, second: int, limit: int) -> set[int]:
    """Return the ops between `first` and `second` that happen before `second`; not all, if they are more than `limit`."""
    found: set[int] = set()
    open_ = [second]
    while open_ and len(found) <= limit:
        op = open_.pop()
        waits = order.after[order.after_starts[op] : order.after_starts[op + 1]].tolist()
        fresh = {earlier for earlier in (*waits, int(order.previous[op])) if earlier > first} - found
        found |= fresh
        open_ += fresh
    return found


def _schedule(order: Order, first: int, second: int, budget: _Budget) -> tuple[int, ...] | None:
    needed = _needed(order, first, second, budget.left)
    budget.left -= len(needed) + 2
    return (*sorted(needed), second, first) if budget.left >= 0 else None


def _record(trial: Trial, order: Order, found: Races, row: int, budget: _Budget) -> Violation:
    program, plan = trial.program, trial.plan
    op, other, buffer, other_buffer = (int(column[row]) for column in (found.op, found.other, found.buffer, found.other_buffer))
    meetings = list(_meetings(trial, op, other, buffer, other_buffer))
    ranges = merged(sorted(part for meeting in meetings for part in meeting.bytes))
    first = meetings[0]
    verbs = {True: "writes", False: "reads"}
    streams = [program.streams[program.ops.stream[step]] for step in (op, other)]
    message = (
        f"{op_words(program, op)} on stream {streams[0]!r} {verbs[first.writes]} {bytes_words(ranges)} of {buffer_words(program, buffer)} in "
        f"{slot_words(program, plan, buffer)} as {value_words(program, first.value)}; {op_words(program, other)} on stream {streams[1]!r} "
        f"{verbs[first.other_writes]} them as {value_words(program, first.other_value)}, and neither waits for the other"
    )
    return trial.record(
        "Race",
        op=op,
        value=first.value,
        buffer=buffer,
        other_run=trial.index,
        other_op=other,
        other_buffer=other_buffer,
        bytes=ranges,
        in_apart=buffer == other_buffer,
        hazards=tuple(dict.fromkeys(meeting.hazard for meeting in meetings)),
        schedule=_schedule(order, other, op, budget),
        message=message,
    )


def _meetings(trial: Trial, op: int, other: int, buffer: int, other_buffer: int) -> Iterator[_Meeting]:
    """Yield the pairs of accesses of two ops to two buffers that share a byte and are not both reads."""
    extents, plan = trial.accesses.extents, trial.plan
    shift = int(plan.offset[other_buffer]) - int(plan.offset[buffer]) if buffer != other_buffer else 0
    others = [
        (value, writes, [(low + shift, high + shift) for low, high in extents.runs(value)])
        for value, writes in _sides(trial, other, other_buffer)
    ]
    for value, writes in _sides(trial, op, buffer):
        for other_value, other_writes, runs in others:
            common = shared(extents.runs(value), runs) if writes or other_writes else ()
            if common:
                yield _Meeting(value=value, other_value=other_value, writes=writes, other_writes=other_writes, bytes=common)


def _sides(trial: Trial, step: int, buffer: int) -> list[tuple[int, bool]]:
    """Return the values of one buffer that an op reads, then those that it writes, each once."""
    op, home = trial.program.ops[step], trial.accesses.extents.buffer
    sides = [(value, False) for value in op.operands] + [(value, True) for value in op.results]
    return [(value, writes) for value, writes in dict.fromkeys(sides) if home[value] == buffer]
