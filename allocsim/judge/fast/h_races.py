"""Accesses that nothing orders: `Race` (detector H).

Order. Op `i` happens before op `j` if both are on one stream and `i < j`, or `j` waits for `i`
(`after`), transitively. Ops of kind `view` and uploads left out touch nothing and keep their place
in that order. All ops of a run happen before those of the runs that wait for it, by default all
later ones; runs that do not wait overlap in time (`h_sessions`). The `host.read` ops of a run with
`read_after: k` happen after run k, and before the runs that wait for k.

A race: two ops, neither of which happens before the other, touch a byte they share where the plan
puts it, and at least one writes it. Every sort of hazard counts: write after read, read after
write, write after write, named by the order of the list. Bytes are exact: crossing hulls of strided
values are no race; values that share a byte, each with bits of its own, do race, for hardware
writes bytes. Buffers outside all arenas have memory of their own. The accesses of one op are in
order, in place or not. A `same` between values at one address writes nothing.

Records. One for each (pair of runs, pair of ops, pair of buffers); later is what stands later in
the list of runs, then of ops. `run`, `op`, `step` and `buffer` are of the later op, `other_run`,
`other_op` and `other_buffer` of the earlier one, `value` the first of the later op's values
(operands, then results) that takes part, `bytes` all bytes they share, within `buffer`. `in_apart`:
the two are in one buffer, so that they meet under every plan; of two runs, whether both have that
buffer apart. `hazards`: every sort found. `schedule`, within a run: a legal order in which the
later one runs first (`exchanged`), for the first records, as long as `SCHEDULE_LIMIT` ops in all
suffice; None for the rest.

What no `Race` means: in every legal order of the ops of a run every read finds the tags it finds in
the order of the list, and so the other checks' word holds for all of them. A race means that two
legal orders exist that differ in what some read finds, or in what lies in memory after the same
ops.

Complexity: `h_clocks` and `h_pairs`, once for runs alike; and the byte runs of what is listed.

What this module does not see: how long ops take, and which legal orders a runtime really takes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from allocsim.judge.fast.h_clocks import Order
from allocsim.judge.fast.h_pairs import Races, races
from allocsim.judge.fast.h_sessions import NO_RACES, RacingPair, Session, at_rest, in_bytes, part_of
from allocsim.judge.fast.owners import Range, merged, shared
from allocsim.judge.fast.trial import Findings, Trial, TrialDocument
from allocsim.judge.violations import Particulars, Violation

SCHEDULE_LIMIT: Final = 1 << 20
"""Ops in all the schedules of one report."""


@dataclass(slots=True)
class _Budget:
    """How many ops the schedules still to be made may name."""

    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meeting:
    """Two accesses of a race: values of later and earlier op, and whether each is written."""

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
    """Report every pair of accesses that nothing orders."""
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
    """Return by how many bytes one buffer of a run lies behind another as planned."""
    return int(trial.plan.offset[other]) - int(trial.plan.offset[buffer]) if buffer != other else 0


def exchanged(order: Order, first: int, second: int) -> tuple[int, ...]:
    """Return how ops run from step `first` on so that `second`, later in the list, runs before it:
    legal if nothing orders the two.

    Earlier ops keep the order of the list, and so do those not named, after all that are. Named are
    what `second` needs of the ops between the two, `second`, then `first`. O(ops named and their
    waits).
    """
    return (*sorted(_needed(order, first, second, len(order.stream))), second, first)


def _needed(order: Order, first: int, second: int, limit: int) -> set[int]:
    """Return the ops between `first` and `second` that happen before `second`.

    Not all, if they are more than `limit`.
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
    """Yield the pairs of accesses of two ops to two buffers that share a byte, as planned or apart,
    and are not both reads.
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
    """Return the values of a buffer that an op reads, then those it writes, each once."""
    op, home = trial.program.ops[step], trial.accesses.extents.buffer
    first = int(trial.program.ops.result_starts[step])
    rest = at_rest(trial)
    sides = [(value, False) for value in op.operands]
    sides += [(value, True) for row, value in enumerate(op.results, first) if row not in rest]
    return [(value, writes) for value, writes in dict.fromkeys(sides) if home[value] == buffer]
