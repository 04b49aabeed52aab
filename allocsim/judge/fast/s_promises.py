"""Compare a plan with its own problem: does the placement keep the stated constraints and beliefs,
whatever the program does?

Kinds: `PinIgnored`, `OwnIgnored`, `OwnUntold`, `FixedIgnored`, `LifetimeIgnored`, `SizeIgnored`,
`EventOutsideLifetime`.

Every plan that some run uses and that names its problem is judged once, against that problem and
their common program. A plan without a problem is not judged here. A plan must keep the lists that
its problem states (`Problem.stated`), not the defaults of omitted lists. Unless `start` and `stop`
are both stated, only pinned buffers live, at the end of the run. Without `nbytes` there is no
`SizeIgnored`, and without `own` there is no `OwnIgnored`. Without `may_share`, the plan may use the
pairs that ops declare in place, if the donor's life ends and the recipient's life begins at the op.

    LifetimeIgnored       two slots in one arena share a byte of `[offset, offset + believed nbytes)`, the believed lifetimes of their
                          buffers, without the gaps, share a step, and neither took the other's
                          place by believed pairs
    PinIgnored            the same, but only because one of the two is pinned: it lives on to the end of the run, whatever its
                          `stop`, and may not be a donor
    SizeIgnored           the slot's nbytes are below the stated nbytes
    FixedIgnored          a buffer with a `fixed` offset, not `own`, begins at another offset of an arena; or it has no slot, though
                          it is believed to live
    OwnIgnored            a buffer stated as `own` has a slot in an arena
    OwnUntold             a buffer of at least one believed byte, believed to live or pinned, has memory of its own and is not `own` in the problem
    EventOutsideLifetime  by `events`, the buffer is free at a step in which it is believed to live

A recipient takes its donor's place by a pair of `may_share` at one address, as the result of a
`same` with an operand at that address, or by a chain of such pairs. Such a placement keeps its
promise, whatever the lifetimes are; `BadShare` reports whether the program allows the pair. A
result of a `same` may take the place of any operand with a believed life that ends where the
result's life begins, because a `same` reads everything before it writes. A pinned donor is never
allowed, because the caller requested the pin.

The events of a buffer, in list order, define when the buffer is held: from the step of an
allocation to the step of a free, both included. The buffer must not be believed to live at a step
before the first allocation, between a free and the next allocation, or after the last free. A
pinned buffer lives to the last step. A buffer is not judged if it has no events, or if its first
event is a free.

In a program without ops, `Overlap` and `Undersized` report the same as `LifetimeIgnored` and
`SizeIgnored` would, so these two kinds are not reported there.

There is one record for each (plan, buffer), each (plan, pair of buffers) and each faulty event.
`problem` is the plan's problem, and `run` is None. For a pair, `buffer` is the pinned buffer or the
lower of the two indices, `bytes` are the shared bytes within `buffer`, and `step` is the first step
in which both are believed to live. For an event, `step` is the event's step.

Complexity: O(buffers log buffers + conflicts listed + events). At most `COUNT_LIMIT` conflicts of
an arena, plus two for each pair, are listed. If there are more, the count is a lower bound.

This module does not examine the program's reads and writes. A plan that keeps every promise may be
wrong, and a plan that breaks a promise may be right.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from allocsim.judge.fast.accesses import believed_lifetimes, handed_on
from allocsim.judge.fast.intervals import TOP, among, conflicts_by
from allocsim.judge.fast.owners import Range, left_over, merged
from allocsim.judge.fast.selector import Selector
from allocsim.judge.fast.trial import COUNT_LIMIT, Findings, TrialDocument
from allocsim.judge.violations import Particulars, Violation
from allocsim.model import OWN, UNPLACED, Bools, Event, Plan, Problem, Program
from allocsim.model.layout import Int64s

PROMISE_KINDS: Final = (
    "PinIgnored",
    "OwnIgnored",
    "OwnUntold",
    "FixedIgnored",
    "LifetimeIgnored",
    "SizeIgnored",
    "EventOutsideLifetime",
)
"""The kinds of violation that show that a plan contradicts its own problem."""


def check_promises(case: TrialDocument, findings: Findings) -> None:
    """Report every slot and event that contradicts its plan's own problem, for plans in use."""
    standing_in = {
        trial.plan_index for trial in case.trials if trial.problem is not None and trial.problem is trial.plan.problem
    }
    numbers = {id(problem): index for index, problem in reversed(list(enumerate(case.document.problems)))}
    for index in sorted({trial.plan_index for trial in case.trials}):
        plan = case.document.plans[index]
        if plan.problem is None:
            continue
        book = _Promises(
            plan,
            plan.problem,
            plan_index=index,
            problem_index=numbers[id(plan.problem)],
            program=case.program_index(plan.program),
            selector=case.selector,
        )
        book.judge(findings, standing_in=index in standing_in)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meetings:
    """Pairs of buffers that share bytes while both are believed to live, in step order."""

    step: Int64s
    buffer: Int64s
    other: Int64s
    by_pin: Bools
    """Whether only the pin of `buffer` makes the pair a violation."""
    beyond: int
    """A lower bound for the number of unlisted pairs."""
    cut: bool


class _Promises:
    """Judges one plan against its problem."""

    def __init__(
        self, plan: Plan, problem: Problem, *, plan_index: int, problem_index: int, program: int, selector: Selector
    ) -> None:
        self.plan = plan
        self.selector = selector
        self.problem = problem
        self.lives = problem if {"start", "stop"} <= problem.stated else _without_lives(problem)
        """The problem with the lifetimes that the plan must keep."""
        self.index = plan_index
        self.problem_index = problem_index
        self.program = program

    def judge(self, findings: Findings, *, standing_in: bool) -> None:
        """Report broken promises; if `standing_in`, other checks judge lifetimes and sizes."""
        plan, problem = self.plan, self.problem
        keeps = ((problem.start < problem.stop) | problem.pinned) & (problem.nbytes > 0)
        at = np.array([problem.fixed.get(buffer, 0) for buffer in range(len(plan.arena))], dtype=np.int64)
        decided = np.zeros(len(plan.arena), dtype=np.bool_)
        decided[list(problem.fixed)] = True
        decided &= ~problem.own
        elsewhere = plan.placed & (plan.offset != at)
        missing = (plan.arena == UNPLACED) & (problem.start < problem.stop)
        sized = "nbytes" in problem.stated and not standing_in
        rows = (
            ("SizeIgnored", plan.placed & (plan.nbytes < problem.nbytes) & sized, self._slot),
            ("FixedIgnored", decided & (elsewhere | missing), self._slot),
            ("OwnIgnored", problem.own & plan.placed & ("own" in problem.stated), self._slot),
            ("OwnUntold", (plan.arena == OWN) & ~problem.own & keeps, self._slot),
        )
        for kind, bad, make in rows:
            for buffer in np.flatnonzero(bad).tolist():
                findings.report(kind, partial(make, kind, buffer))
        self._report_meetings(findings, standing_in=standing_in)
        for number, first in self._early_events():
            findings.report("EventOutsideLifetime", partial(self._event, number, first))

    # two buffers over each other ------------------------------------------------------------------

    def _report_meetings(self, findings: Findings, *, standing_in: bool) -> None:
        found = self._meetings()
        for row, by_pin in enumerate(found.by_pin.tolist()):
            if by_pin or not standing_in:
                findings.report("PinIgnored" if by_pin else "LifetimeIgnored", partial(self._meeting, found, row))
        if found.cut and not standing_in:
            findings.more("LifetimeIgnored", found.beyond)
        elif found.cut:
            findings.more("PinIgnored", 0)

    def _meetings(self) -> _Meetings:
        """Return the faulty pairs among the believed lifetimes. Each pinned buffer has one
        additional lifetime, from its `stop` on.
        """
        plan, problem = self.plan, self.lives
        lives = believed_lifetimes(problem)
        pinned = np.flatnonzero(problem.pinned)
        buffer = np.concatenate([lives.buffer, pinned])
        start = np.concatenate([lives.start, problem.stop[pinned]])
        stop = np.concatenate([lives.stop, np.full(len(pinned), TOP)])
        held = np.arange(len(buffer)) >= len(lives.buffer)
        handed = self._believed_pairs()
        count = len(plan.arena)
        met = conflicts_by(
            np.where(problem.nbytes[buffer] > 0, plan.arena[buffer], -1),
            (start, stop),
            plan.offset[buffer],
            problem.nbytes[buffer],
            cap=COUNT_LIMIT + 2 * len(handed) + 1,
            selector=self.selector,
        )
        left, right, beyond = met.left, met.right, met.total - len(met.left)
        pair, step = _unordered(buffer[left] * count + buffer[right], count), np.maximum(start[left], start[right])
        pin = held[left] | held[right]
        by_pair = among(pair, _unordered(handed[problem.pinned[handed // count]], count))
        fine = ~pin & ~by_pair & (self._took_its_place(pair, handed) | self._moved(pair, step))
        pin |= by_pair
        pair, step, pin = pair[~fine], step[~fine], pin[~fine]
        # a pair may conflict several times, because of gaps and pins; the record is about the first
        # conflict without a pin, or else the first one
        order = np.lexsort((step, pin, pair))
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = pair[order][1:] != pair[order][:-1]
        kept = order[first]
        kept = kept[np.lexsort((pair[kept], step[kept]))]
        pair, step, pin = pair[kept], step[kept], pin[kept]
        one, other = pair // count, pair % count
        swap = pin & ~problem.pinned[one]
        return _Meetings(
            step=step,
            buffer=np.where(swap, other, one),
            other=np.where(swap, one, other),
            by_pin=pin,
            beyond=0 if len(problem.gaps) or len(pinned) else max(beyond - len(handed), 0),
            cut=beyond > 0,
        )

    def _believed_pairs(self) -> Int64s:
        """Return the believed pairs that are at one address, as `donor * buffers + recipient`."""
        plan, problem = self.plan, self.problem
        stated = problem.may_share if "may_share" in problem.stated else _declared_hand_overs(problem)
        pairs = np.concatenate([stated.astype(np.int64), _sides(plan.program)])
        donor, recipient = pairs.T
        fine = (
            plan.placed[donor]
            & (plan.arena[donor] == plan.arena[recipient])
            & (plan.offset[donor] == plan.offset[recipient])
        )
        packed: Int64s = (donor * len(plan.arena) + recipient)[fine]
        return packed

    def _took_its_place(self, pair: Int64s, handed: Int64s) -> Bools:
        """Return which pairs of buffers are connected by a chain of believed pairs at one address.
        In a chain, each recipient is the donor of the next pair.
        """
        count = len(self.plan.arena)
        mask = among(pair, _unordered(handed, count))
        recipients: dict[int, list[int]] = defaultdict(list)
        for donor, recipient in zip((handed // count).tolist(), (handed % count).tolist(), strict=True):
            recipients[donor].append(recipient)
        asked = np.stack([pair // count, pair % count])[:, ~mask]
        donors = np.intersect1d(asked, handed // count)
        chains = [donor * count + np.fromiter(_reached(donor, recipients), np.int64) for donor in donors.tolist()]
        joined = np.concatenate([handed[:0], *chains])
        return mask | among(pair, _unordered(joined, count))

    def _moved(self, pair: Int64s, step: Int64s) -> Bools:
        """Return which pairs of buffers are believed to live together only at a `same` that reads
        one buffer and writes the other.
        """
        program, lives, count = self.plan.program, self.lives, len(self.plan.arena)
        mask = np.zeros(len(pair), dtype=np.bool_)
        rows = np.flatnonzero(step < len(program.ops))
        rows = rows[program.same_ops[step[rows]]]
        if not len(rows):
            return mask
        home, ops = program.values.buffer, program.ops
        reads, writes = (
            np.repeat(np.arange(len(ops)), np.diff(starts)) * count + home[values]
            for starts, values in ((ops.operand_starts, ops.operands), (ops.result_starts, ops.results))
        )
        at, one, other = step[rows], pair[rows] // count, pair[rows] % count
        for donor, recipient in ((one, other), (other, one)):
            ends = (lives.stop[donor] == at + 1) & (lives.start[recipient] == at)
            mask[rows] |= ends & among(at * count + donor, reads) & among(at * count + recipient, writes)
        return mask

    def _meeting(self, found: _Meetings, row: int) -> Violation:
        plan, problem, program = self.plan, self.problem, self.plan.program
        buffer, other, step = int(found.buffer[row]), int(found.other[row]), int(found.step[row])
        shift = int(plan.offset[other]) - int(plan.offset[buffer])
        shared = ((max(shift, 0), min(int(problem.nbytes[buffer]), shift + int(problem.nbytes[other]))),)
        return self._record(
            "PinIgnored" if found.by_pin[row] else "LifetimeIgnored",
            step=step,
            op=step if step < len(program.ops) else None,
            buffer=buffer,
            other_buffer=other,
            bytes=shared,
        )

    # one slot -------------------------------------------------------------------------------------

    def _slot(self, kind: str, buffer: int) -> Violation:
        return self._record(kind, buffer=buffer)

    # events ---------------------------------------------------------------------------------------

    def _early_events(self) -> list[tuple[int, int]]:
        """Return (event, step) for each event after which, or before which, a buffer is free while
        it is believed to live. `step` is the first such step. The result is in list order.
        """
        problem = self.lives
        of_buffer: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for number, (step, event, buffer) in enumerate(self.plan.events.tolist()):
            of_buffer[buffer].append((number, step, event))
        last = max(len(self.plan.program.ops), int(problem.stop.max(initial=0)))
        found = []
        for buffer, told in of_buffer.items():
            if told[0][2] == Event.FREE:
                continue
            lives = _lives(problem, buffer, last)
            idle = [(told[0][0], 0, told[0][1])]
            for place, (number, step, event) in enumerate(told):
                following = (after for after in told[place + 1 :] if after[2] == Event.ALLOC)
                if event == Event.FREE and told[place - 1][2] == Event.ALLOC:
                    idle.append((number, step + 1, next(following, (0, last, 0))[1]))
            for number, low, high in idle:
                missed = min(
                    (max(low, start) for start, stop in lives if max(low, start) < min(high, stop)), default=None
                )
                if missed is not None:
                    found.append((number, missed))
        return sorted(found)

    def _event(self, number: int, missed: int) -> Violation:
        step, event, buffer = self.plan.events[number].tolist()
        reason = "alloc" if event == Event.ALLOC else ""
        more = Particulars(event=number, reason=reason, live=((missed, missed + 1),))
        return self._record("EventOutsideLifetime", step=step, buffer=buffer, more=more)

    def _record(self, kind: str, **fields: Any) -> Violation:
        return Violation(kind=kind, program=self.program, plan=self.index, problem=self.problem_index, **fields)


def _without_lives(problem: Problem) -> Problem:
    """Return the problem with empty lifetimes at the end of the program, so that only pinned
    buffers live, from that end on.
    """
    end = np.full(len(problem.start), len(problem.program.ops), dtype=np.int64)
    return replace(problem, start=end, stop=end)


def _declared_hand_overs(problem: Problem) -> Int64s:
    """Return (donor, recipient) of every pair that an op declares in place, if the donor's believed
    life ends and the recipient's begins at the op. O(pairs).
    """
    ops, home = problem.program.ops, problem.program.values.buffer
    step = np.repeat(np.arange(len(ops), dtype=np.int64), np.diff(ops.in_place_starts))
    donor = home[ops.operands[ops.operand_starts[step] + ops.in_place[:, 0]]].astype(np.int64)
    recipient = home[ops.results[ops.result_starts[step] + ops.in_place[:, 1]]].astype(np.int64)
    there = (problem.stop[donor] == step + 1) & (problem.start[recipient] == step) & (donor != recipient)
    found: Int64s = np.stack([donor, recipient], axis=1)[there]
    return found


def _sides(program: Program) -> Int64s:
    """Return (operand's buffer, result's buffer) of every `same`. Both have equal content, so they
    may be at one address, whatever the beliefs are. O(operands of `same`).
    """
    _, source, target = handed_on(program)
    home = program.values.buffer.astype(np.int64)
    moved: Int64s = np.stack([home[source], home[target]], axis=1)[home[source] != home[target]]
    return moved


def _unordered(pair: Int64s, count: int) -> Int64s:
    """Return pairs encoded as `a * count + b`, with the lower index first."""
    one, other = pair // count, pair % count
    packed: Int64s = np.minimum(one, other) * count + np.maximum(one, other)
    return packed


def _reached(donor: int, recipients: Mapping[int, list[int]]) -> set[int]:
    """Return all buffers that a chain of pairs in `recipients` reaches from `donor`."""
    found: set[int] = set()
    waiting = [donor]
    while waiting:
        fresh = [recipient for recipient in recipients.get(waiting.pop(), ()) if recipient not in found]
        found.update(fresh)
        waiting += fresh
    return found


def _lives(problem: Problem, buffer: int, last: int) -> list[Range]:
    """Return the believed steps of a buffer without gaps; a pinned buffer lives up to `last`."""
    start, stop = int(problem.start[buffer]), int(problem.stop[buffer])
    lives = left_over([(start, stop)], merged(sorted(problem.gaps.get(buffer, ()))))
    return [*lives, (stop, last)] if problem.pinned[buffer] and stop < last else lives
