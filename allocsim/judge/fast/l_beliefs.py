"""Compare the beliefs of a planner with the program (detector L).

Kinds: `LifetimeTooShort`, `MissingPin`, `LifetimeTooLong`, `BadSize`, `BadShare`.

Every problem of the document is judged, even if no plan was made from it. The problem is compared
with the accesses of its program with no upload left out. There is one record for each (problem,
buffer), or for each (problem, pair).

    LifetimeTooShort   `start` is after the first access, or `stop` is not after the last access, or a believed gap covers a step of a segment
    MissingPin         replaces LifetimeTooShort, if readers are outside the lifetime, all these readers are `host.read`, and no gap is at fault
    LifetimeTooLong    (warning) some believed step outside the gaps is in no segment of the buffer (`live`); pinned buffers and
                       buffers without accesses are not reported
    BadSize            the believed nbytes are below the buffer's nbytes
    BadShare           a believed pair is not permissible (`s_in_place`)

For the first two kinds, `op` is the first reader outside the lifetime, or else the first writer
outside the lifetime. If only a gap is at fault, `op` is the first access in or after the gap.
`buffer` of a `BadShare` is the donor, `other_buffer` the recipient.

A program without ops has no accesses. So its lifetimes and pairs are taken as facts, and only its
sizes are judged.

Complexity: O(accesses log accesses), vectorised.

This module does not examine plans.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from allocsim.judge.fast.accesses import Accesses
from allocsim.judge.fast.intervals import among
from allocsim.judge.fast.live import LiveSegments
from allocsim.judge.fast.owners import Range, left_over, merged, shared
from allocsim.judge.fast.s_in_place import HandOvers
from allocsim.judge.fast.s_tags import agreement, spans_alone
from allocsim.judge.fast.trial import Findings, TrialDocument
from allocsim.judge.violations import Particulars, Violation
from allocsim.model import HOST_READ, Bools, Problem, Program
from allocsim.model.layout import Int64s


def check_beliefs(case: TrialDocument, findings: Findings) -> None:
    """Report every belief that the program contradicts, for every problem."""
    for index in range(len(case.document.problems)):
        for kind, bad, make in _rows(case, index):
            for row in np.flatnonzero(bad).tolist():
                findings.report(kind, partial(make, kind, row))


Make = Callable[[str, int], Violation]


def _rows(case: TrialDocument, index: int) -> list[tuple[str, Bools, Make]]:
    """Return (kind, mask of faulty buffers or pairs, function that makes the record of a row)."""
    problem = case.document.problems[index]
    accesses = case.accesses(problem.program)
    book = _Book(problem, case.hand_overs(accesses), program=case.problem_programs[index], problem_index=index)
    rows: list[tuple[str, Bools, Make]] = [("BadSize", problem.nbytes < problem.program.buffers.nbytes, book.bad_size)]
    if not len(problem.program.ops):
        return rows
    touched, live = accesses.touched, case.hand_overs(accesses).live
    gapped, dead = gaps_over_life(problem, live)
    short = touched & ((problem.start > accesses.first) | (problem.stop <= accesses.last))
    pin = short & ~gapped & _only_host_missed(problem, accesses)
    long = touched & (_believed_dead(problem, live) > dead)
    book.gapped = gapped & ~short
    bad, book.elsewhere = _bad_pairs(case, problem, accesses)
    short |= gapped
    return [
        ("LifetimeTooShort", short & ~pin, book.too_short),
        ("MissingPin", pin, book.too_short),
        ("LifetimeTooLong", long & ~problem.pinned, book.too_long),
        *rows,
        ("BadShare", bad, book.bad_share),
    ]


def _first_missed(problem: Problem, op: Int64s, buffer: Int64s) -> Int64s:
    """Return each buffer's first op outside its believed lifetime; `len(ops)` if there is none."""
    first = np.full(len(problem.start), len(problem.program.ops), dtype=np.int64)
    missed = (op < problem.start[buffer]) | (op >= problem.stop[buffer])
    np.minimum.at(first, buffer[missed], op[missed])
    return first


def gaps_over_life(problem: Problem, live: LiveSegments) -> tuple[Bools, Int64s]:
    """Return which buffers live during a believed gap. Also return, for each buffer, the number of
    steps of its believed lifetime that are in a gap and in no segment.
    """
    mask, dead = np.zeros(len(problem.start), dtype=np.bool_), np.zeros(len(problem.start), dtype=np.int64)
    for buffer, gaps in problem.gaps.items():
        believed = [(int(problem.start[buffer]), int(problem.stop[buffer]))]
        cut = list(merged(sorted(gaps)))
        mask[buffer] = bool(shared(cut, live.of(buffer)))
        inside = shared(cut, believed)
        dead[buffer] = sum(high - low for low, high in inside) - sum(
            high - low for low, high in shared(list(inside), live.of(buffer))
        )
    return mask, dead


def _believed_dead(problem: Problem, live: LiveSegments) -> Int64s:
    """Return the number of steps of each believed lifetime that are in no segment."""
    start, stop = problem.start[live.buffer], problem.stop[live.buffer]
    inside = np.maximum(np.minimum(stop, live.stop) - np.maximum(start, live.start), 0)
    steps: Int64s = np.maximum(problem.stop - problem.start, 0)
    np.subtract.at(steps, live.buffer, inside)
    return steps


def _only_host_missed(problem: Problem, accesses: Accesses) -> Bools:
    """Return which buffers have reads outside the believed lifetime, and only by `host.read`."""
    by_host = problem.program.ops.is_kind(HOST_READ)[accesses.read_op]
    never = len(problem.program.ops)
    host = _first_missed(problem, accesses.read_op[by_host], accesses.read_buffer[by_host]) < never
    other = _first_missed(problem, accesses.read_op[~by_host], accesses.read_buffer[~by_host]) < never
    mask: Bools = host & ~other
    return mask


def _bad_pairs(case: TrialDocument, problem: Problem, accesses: Accesses) -> tuple[Bools, dict[int, int]]:
    """Return which rows of `may_share` are not permissible; a repeated pair counts once.

    Return with them, for each row that some op permits, the first other step at which both live.
    """
    elsewhere: dict[int, int] = {}
    count, fine, live = len(problem.start), case.permissible(accesses), case.hand_overs(accesses).live
    pair = problem.may_share[:, 0].astype(np.int64) * count + problem.may_share[:, 1]
    bad: Bools = ~among(pair, fine.donor * count + fine.recipient)
    times = np.diff(live.rows)
    several = (times[problem.may_share] > 1).any(axis=1) | (bad & accesses.program.same_ops.any())
    for row in np.flatnonzero(several).tolist():
        donor, recipient = problem.may_share[row].tolist()
        common = shared(live.of(donor), live.of(recipient))
        steps = fine.op[(fine.donor == donor) & (fine.recipient == recipient)].tolist()
        left = left_over(common, [*((step, step + 1) for step in steps), *_agreeing(case, accesses, donor, recipient)])
        over = [max(low, 0) for low, high in left if max(low, 0) < min(high, len(accesses.program.ops))]
        bad[row] = bool(over) or not common
        if steps and over:
            elsewhere[row] = min(over)
    once = np.zeros(len(pair), dtype=np.bool_)
    once[np.unique(pair, return_index=True)[1]] = True
    return bad & once, elsewhere


def _agreeing(case: TrialDocument, accesses: Accesses, one: int, other: int) -> list[Range]:
    """Return the steps at which two buffers placed at one address hold equal content."""
    if not accesses.program.same_ops.any():
        return []
    spans = case.kept(("alone", id(accesses)), lambda: spans_alone(accesses, case.hand_overs(accesses).live))
    same, differ = agreement(spans.get(one, []), spans.get(other, []), 0)
    return left_over(same, differ)


class _Book:
    """Functions that make the records of one problem."""

    def __init__(self, problem: Problem, hand_overs: HandOvers, *, program: int, problem_index: int) -> None:
        accesses = hand_overs.accesses
        self.problem = problem
        self.program: Program = problem.program
        self.accesses = accesses
        self.index = problem_index
        self.program_index = program
        self.readers_missed = _first_missed(problem, accesses.read_op, accesses.read_buffer)
        self.writers_missed = _first_missed(problem, accesses.write_op, accesses.write_buffer)
        self.hand_overs, self.live = hand_overs, hand_overs.live
        self.gapped: Bools = np.zeros(len(problem.start), dtype=np.bool_)
        """bool (buffers,): True for buffers with a believed gap as the only fault."""
        self.elsewhere: dict[int, int] = {}
        """The step at which a bad pair lives together, beside the ops that permit it."""

    def too_short(self, kind: str, buffer: int) -> Violation:
        if self.gapped[buffer]:
            return self._gap(kind, buffer)
        late, first, last = (
            int(column[buffer]) for column in (self.readers_missed, self.accesses.first, self.accesses.last)
        )
        op = late if late < len(self.program.ops) else int(self.writers_missed[buffer])
        return self._record(kind=kind, step=op, op=op, buffer=buffer, more=Particulars(live=((first, last + 1),)))

    def _gap(self, kind: str, buffer: int) -> Violation:
        """Return the record for a buffer that lives during a believed gap."""
        gaps, accesses, live = merged(sorted(self.problem.gaps[buffer])), self.accesses, tuple(self.live.of(buffer))
        step = shared(list(gaps), list(live))[0][0]
        touching = np.concatenate(
            [accesses.read_op[accesses.read_buffer == buffer], accesses.write_op[accesses.write_buffer == buffer]]
        )
        later = touching[touching >= step]
        op = int(later.min()) if len(later) else None
        return self._record(kind=kind, step=op, op=op, buffer=buffer, more=Particulars(live=live, reason="gap"))

    def too_long(self, kind: str, buffer: int) -> Violation:
        return self._record(kind=kind, buffer=buffer, more=Particulars(live=tuple(self.live.of(buffer))))

    def bad_size(self, kind: str, buffer: int) -> Violation:
        return self._record(kind=kind, buffer=buffer)

    def bad_share(self, kind: str, row: int) -> Violation:
        donor, recipient = self.problem.may_share[row].tolist()
        over = self.elsewhere.get(row)
        reason, op = _why(self.hand_overs, donor, recipient) if over is None else ("elsewhere", over)
        live, other_live = (tuple(self.live.of(buffer)) for buffer in (donor, recipient))
        more = Particulars(reason=reason, at=op, live=live, other_live=other_live)
        return self._record(kind=kind, buffer=donor, other_buffer=recipient, more=more)

    def _record(self, **fields: Any) -> Violation:
        return Violation(program=self.program_index, problem=self.index, **fields)


def _why(hand_overs: HandOvers, donor: int, recipient: int) -> tuple[str, int | None]:
    """Return the condition that fails at every op, for a pair that no op permits. Return with it
    the first op that meets the conditions before it.
    """
    accesses, live = hand_overs.accesses, hand_overs.live
    if not (len(live.of(donor)) and len(live.of(recipient))):
        return "unaccessed", None
    reads, writes = np.flatnonzero(accesses.read_buffer == donor), np.flatnonzero(accesses.write_buffer == recipient)
    gives = reads[live.ending(accesses.read_buffer[reads], accesses.read_op[reads]) >= 0]
    takes = writes[live.beginning(accesses.write_buffer[writes], accesses.write_op[writes]) >= 0]
    meeting = np.intersect1d(accesses.read_op[gives], accesses.write_op[takes])
    if not len(meeting):
        return "apart", None
    given = np.intersect1d(meeting, accesses.read_op[gives[hand_overs.given[gives] >= 0]])
    if not len(given):
        return "not given", int(meeting[0])
    taken = np.intersect1d(given, accesses.write_op[takes[hand_overs.taken[takes] >= 0]])
    return ("undeclared", int(taken[0])) if len(taken) else ("not taken", int(given[0]))
