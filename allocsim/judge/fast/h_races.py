"""Report each `Race` (detector H): two accesses to one byte without a happens-before order.

Order. Op `i` happens before op `j` if both are on one stream and `i < j`, or if `j` waits for `i`
(`after`), transitively. Ops of kind `view` and left-out uploads access nothing, but keep their
position in that order. All ops of a run happen before all ops of the runs that wait for the run, by
default all later runs. Runs that do not wait overlap in time (`h_sessions`). The `host.read` ops of
a run with `read_after: k` happen after run k, and before the runs that wait for k.

Race. Two ops race if neither happens before the other, both access a common byte under the plan,
and at least one of them writes the byte. Every hazard counts: write after read, read after write,
write after write, named by list order. Bytes are exact: strided values race only if they share a
byte, not if only their hulls overlap. Values that share a byte but no bit do race, because hardware
writes bytes. Buffers outside all arenas have memory of their own. The accesses of one op are in
order, in place or not. A `same` with operand and result at one address writes nothing.

Records. There is one record for each (pair of runs, pair of ops, pair of buffers). The later op is
the op that is later by run, then by position in the list. `run`, `op`, `step` and `buffer` belong
to the later op, and `other_run`, `other_op` and `other_buffer` to the earlier op. `value` is the
first racing value of the later op (operands, then results). `bytes` are all shared bytes, within
`buffer`. `in_apart` is True if both ops, in one run or in two, access one byte of the same buffer,
so that they race under every plan. `hazards` lists every hazard found. `schedule` is a legal order
within a run in which the later op runs first (`exchanged`). Records have a schedule until all
schedules together name `SCHEDULE_LIMIT` ops.

If there is no `Race`, every read finds the same tags in every legal order of the ops as in list
order. So the findings of the other checks are valid for all legal orders. If there is a `Race`, two
legal orders differ in the tags that some read finds, or in the memory after the same ops.

Complexity: the cost of `h_clocks` and `h_pairs`, once for runs that are alike, plus the byte runs
of the listed races.

This module does not examine how long ops take, or which legal order a runtime really uses.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from allocsim.judge.fast.h_clocks import Order
from allocsim.judge.fast.h_pairs import NO_RACES, Races, races
from allocsim.judge.fast.h_sessions import RacingPair, Session, at_rest, in_bytes, part_of
from allocsim.judge.fast.owners import Range, merged, shared
from allocsim.judge.fast.trial import Findings, Trial, TrialDocument
from allocsim.judge.violations import Particulars, Violation

SCHEDULE_LIMIT: Final = 1 << 20
"""The largest number of ops that all schedules of one report name together."""


@dataclass(slots=True)
class _Budget:
    """The number of ops that further schedules may name."""

    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meeting:
    """Two racing accesses: values of the later and the earlier op, and whether each is a write."""

    value: int
    other_value: int
    writes: bool
    other_writes: bool
    bytes: tuple[Range, ...]
    """The shared bytes within the buffer of `value`."""

    @property
    def hazard(self) -> str:
        """The name of the hazard, with the ops in list order."""
        if self.writes:
            return "write after write" if self.other_writes else "write after read"
        return "read after write"


def check_order(case: TrialDocument, findings: Findings) -> None:
    """Report every race of every run."""
    budget = _Budget(left=SCHEDULE_LIMIT)
    orders: dict[int, Order] = {}
    if case.joined and any(trial.waits is not None or trial.read_after is not None for trial in case.trials):
        session = Session.of(case)
        found = races(session.parts, session.order, case.selector)
        pairs = [session.meeting(found, row) for row in range(len(found.op))]
        pairs.sort(
            key=lambda pair: (
                pair.trial.index,
                pair.op,
                pair.other_trial.index,
                pair.other_op,
                pair.buffer,
                pair.other_buffer,
            )
        )
        for pair in pairs:
            findings.report("Race", partial(_record, pair, orders, budget))
        if found.cut:
            findings.more("Race", 0)
        return
    known: dict[object, Races] = {}
    for trial in case.trials:
        if trial.alike not in known:
            orders.setdefault(trial.program_index, Order.of(trial.program.ops))
            order = orders[trial.program_index]
            known[trial.alike] = races([part_of(trial)], order, case.selector) if order.streams > 1 else NO_RACES
        found = known[trial.alike]
        listed = min(findings.room("Race"), len(found.op))
        for row in range(listed):
            one = RacingPair(
                trial=trial,
                other_trial=trial,
                op=int(found.op[row]),
                other_op=int(found.other[row]),
                buffer=int(found.buffer[row]),
                other_buffer=int(found.other_buffer[row]),
                shift=_shift(trial, int(found.buffer[row]), int(found.other_buffer[row])),
                in_apart=bool(found.buffer[row] == found.other_buffer[row]),
                listed=True,
            )
            findings.report("Race", partial(_record, one, orders, budget))
        findings.counts["Race"] += len(found.op) - listed
        if found.cut:
            findings.more("Race", 0)


def _shift(trial: Trial, buffer: int, other: int) -> int:
    """Return the offset of buffer `other` minus the offset of `buffer` in the plan of a run, in
    bytes.
    """
    return int(trial.plan.offset[other]) - int(trial.plan.offset[buffer]) if buffer != other else 0


def exchanged(order: Order, first: int, second: int) -> tuple[int, ...]:
    """Return an order of ops in which `second`, which is later in the list, runs before `first`.
    The order is legal if neither op happens before the other.

    The order names the ops between the two that must precede `second`, then `second`, then `first`.
    Ops before `first` run before these ops in list order, and all others run after these. O(named
    ops and their waits).
    """
    return (*sorted(_needed(order, first, second, len(order.stream))), second, first)


def _needed(order: Order, first: int, second: int, limit: int) -> set[int]:
    """Return the ops between `first` and `second` that happen before `second`.

    If there are more than `limit` such ops, some may be missing.
    """
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


def _record(pair: RacingPair, orders: dict[int, Order], budget: _Budget) -> Violation:
    trial, other_trial, op, other = pair.trial, pair.other_trial, pair.op, pair.other_op
    if trial.program_index not in orders:
        orders[trial.program_index] = Order.of(trial.program.ops)
    meetings = list(_meetings(pair))
    ranges = merged(sorted(part for meeting in meetings for part in meeting.bytes))
    first = meetings[0]
    return trial.record(
        "Race",
        op=op,
        value=first.value,
        buffer=pair.buffer,
        other_run=other_trial.index,
        other_op=other,
        other_buffer=pair.other_buffer,
        bytes=ranges,
        in_apart=pair.in_apart and (not pair.shift or any(True for _ in _meetings(pair, apart=True))),
        hazards=tuple(dict.fromkeys(meeting.hazard for meeting in meetings)),
        schedule=_schedule(orders[trial.program_index], other, op, budget) if pair.listed else None,
        more=Particulars(other_value=first.other_value),
    )


def _meetings(pair: RacingPair, *, apart: bool = False) -> Iterator[_Meeting]:
    """Yield the pairs of accesses, by the pair's two ops to its two buffers, that share a byte, if
    at least one access is a write. Buffers are placed as planned or, with `apart`, in memory of
    their own.
    """
    shift = 0 if apart else pair.shift
    runs = in_bytes(pair.trial), in_bytes(pair.other_trial)
    others = [
        (value, writes, [(low + shift, high + shift) for low, high in runs[1].runs(value)])
        for value, writes in _sides(pair.other_trial, pair.other_op, pair.other_buffer)
    ]
    for value, writes in _sides(pair.trial, pair.op, pair.buffer):
        for other_value, other_writes, spans in others:
            common = shared(runs[0].runs(value), spans) if writes or other_writes else ()
            if common:
                yield _Meeting(
                    value=value, other_value=other_value, writes=writes, other_writes=other_writes, bytes=common
                )


def _sides(trial: Trial, step: int, buffer: int) -> list[tuple[int, bool]]:
    """Return the distinct (value, writes) of an op's accesses to a buffer, reads first."""
    op, home = trial.program.ops[step], trial.accesses.extents.buffer
    first = int(trial.program.ops.result_starts[step])
    rest = at_rest(trial)
    sides = [(value, False) for value in op.operands]
    sides += [(value, True) for row, value in enumerate(op.results, first) if row not in rest]
    return [(value, writes) for value, writes in dict.fromkeys(sides) if home[value] == buffer]
