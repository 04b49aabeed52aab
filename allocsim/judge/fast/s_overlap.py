"""Report each `Overlap`: two buffers that share bytes under a plan while both are live.

Two buffers with slots in one arena conflict at a step of a run if their ranges
`[offset, offset + nbytes of the buffer)` share a byte, both are live at the step, and they may not
share bytes at the step. Live steps are derived (`live`). For a program without ops, they are the
problem's believed lifetimes without the gaps. Zero-byte buffers and buffers in memory of their own
overlap nothing. Buffers are compared whole; to share a part of a buffer, split the buffer into two.
Buffers of different runs do not overlap: `s_dataflow` judges the reads of later runs.

Two buffers may share bytes at a step
    by tags      if every byte that is live in both has one tag in both, and there is such a byte (`s_tags`)
    by a pair    if a segment of the donor ends and a segment of the recipient begins at the op that joins the pair, and this op
                 breaks the in-place rule nowhere as planned (`s_in_place`). In a program without
                 ops, the problem must believe that the pair may share, neither buffer may be
                 persistent, the donor's last believed step must be the recipient's first, and both
                 must begin at one address.

There is one record for each (run, pair). `buffer` is the lower index of the two, `other_buffer` the
higher index. `bytes` are the shared bytes within `buffer`. `op` and `step` are the first op at
which both are live and may not share.

Complexity, once for runs that are alike: O(segments log segments + conflicts listed). All runs
together list at most `COUNT_LIMIT` pairs of segments. But each run may list as many pairs as the
limit of records, plus one for each permitted pair. If there are more, the count is a lower bound.

This module does not examine whether any op reads the shared bytes (`s_dataflow`).
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from allocsim.judge.fast.accesses import believed_lifetimes
from allocsim.judge.fast.intervals import among, conflicts_by, distinct
from allocsim.judge.fast.owners import left_over
from allocsim.judge.fast.s_in_place import as_planned, permitted
from allocsim.judge.fast.s_tags import Copies, agreement, as_tagged, shares_tags, spans
from allocsim.judge.fast.trial import COUNT_LIMIT, Findings, Trial, TrialDocument, problem_of
from allocsim.judge.violations import Particulars, Violation
from allocsim.model import Plan, Problem, Program
from allocsim.model.layout import Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meetings:
    """Pairs of segments, as rows, that share bytes and steps and need equal tags to be legal."""

    left: Int64s
    right: Int64s
    step: Int64s
    """The first step at which both segments live."""
    cut: bool
    """Whether further pairs may exist."""
    tagged: bool
    """Whether the tags must be compared for each run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conflicts:
    """Pairs of conflicting buffers, in order of step."""

    step: Int64s
    buffer: Int64s
    other: Int64s
    cut: bool = False
    """Whether further conflicts may exist."""


def check_overlap(case: TrialDocument, findings: Findings) -> None:
    """Report every pair of buffers that share bytes in a run while both live."""
    meetings: dict[object, _Meetings] = {}
    known: dict[object, _Conflicts] = {}
    total = 0
    for trial in case.trials:
        if trial.alike not in meetings:
            meetings[trial.alike] = _meetings(case, trial, max(COUNT_LIMIT - total, findings.limit))
            total += len(meetings[trial.alike].left)
        met = meetings[trial.alike]
        if met.tagged and case.tag_work.over:
            case.tag_work.leave("which buffers overlap", trial.index, len(case.trials))
            break
        key = as_tagged(case, trial) if met.tagged else trial.alike
        if key not in known:
            known[key] = _conflicts(case, trial, met)
        found = known[key]
        findings.report_all("Overlap", range(len(found.step)), partial(_record, trial, found))
        findings.bounded |= found.cut


def _meetings(case: TrialDocument, trial: Trial, most: int) -> _Meetings:
    """Return the pairs of segments that share bytes and steps and are not permitted, before tags
    are compared. At least `most` pairs are returned if there are that many.
    """
    lives = case.hand_overs(trial.accesses).live if trial.problem is None else believed_lifetimes(trial.problem)
    nbytes = trial.program.buffers.nbytes if trial.problem is None else trial.problem.nbytes
    allowed = _allowed(case, trial)
    count = len(trial.program.buffers)
    steps = trial.problem is not None or len(trial.program.ops) > 0  # otherwise no step exists
    arena, occupied = trial.plan.arena[lives.buffer], (nbytes[lives.buffer] > 0) & steps
    found = conflicts_by(
        np.where(occupied, arena, -1),
        (lives.start, lives.stop),
        trial.plan.offset[lives.buffer],
        nbytes[lives.buffer],
        cap=most + len(allowed) + 1,
        selector=case.selector,
    )
    left, right, cut = found.left, found.right, found.total > len(found.left)
    if trial.problem is None:
        one, other, width = left, right, len(lives.buffer)
    else:
        one, other, width = lives.buffer[left], lives.buffer[right], count
    keep = ~among(_unordered(one, other, width), _unordered(allowed // width, allowed % width, width))
    left, right = left[keep], right[keep]
    step = np.maximum(np.maximum(lives.start[left], lives.start[right]), 0)
    if trial.problem is not None or not len(left) or not shares_tags(case, trial):
        return _Meetings(left=left, right=right, step=step, cut=cut, tagged=False)
    live = case.hand_overs(trial.accesses).live
    one, other = live.buffer[left], live.buffer[right]
    delta = (trial.plan.offset[other] - trial.plan.offset[one]) * trial.unit
    keep = ~Copies.of(trial.accesses).agree(one, other, delta)
    return _Meetings(left=left[keep], right=right[keep], step=step[keep], cut=cut, tagged=bool(keep.any()))


def _conflicts(case: TrialDocument, trial: Trial, met: _Meetings) -> _Conflicts:
    lives = case.hand_overs(trial.accesses).live if trial.problem is None else believed_lifetimes(trial.problem)
    count = len(trial.program.buffers)
    left, right, step = _without_copies(case, trial, met) if met.tagged else (met.left, met.right, met.step)
    pair = _unordered(lives.buffer[left], lives.buffer[right], count)
    order = np.lexsort((pair, step))
    pair, step = pair[order], step[order]
    # buffers with several segments may conflict several times
    once = np.unique(pair, return_index=True)[1]
    if trial.problem is None:  # else records have no step and stay in order of buffers
        once.sort()
    pair, step = pair[once], step[once]
    return _Conflicts(step=step, buffer=pair // count, other=pair % count, cut=met.cut)


def _without_copies(case: TrialDocument, trial: Trial, met: _Meetings) -> tuple[Int64s, Int64s, Int64s]:
    """Return the pairs of segments with different tags at some common step, and that first step."""
    left, right, step = met.left, met.right, met.step.copy()
    live = case.hand_overs(trial.accesses).live
    one, other = live.buffer[left], live.buffer[right]
    delta = (trial.plan.offset[other] - trial.plan.offset[one]) * trial.unit
    keep = np.ones(len(left), dtype=np.bool_)
    known = spans(case, trial)
    stop = np.minimum(np.minimum(live.stop[left], live.stop[right]), len(trial.program.ops))
    for row in np.flatnonzero(keep).tolist():
        a, b = int(one[row]), int(other[row])
        if a in known and b in known:
            same, differ = agreement(known[a], known[b], int(delta[row]))
            bad = left_over([(int(step[row]), int(stop[row]))], left_over(same, differ))
            keep[row] = bool(bad)
            step[row] = bad[0][0] if bad else step[row]
    return left[keep], right[keep], step[keep]


def permitted_pairs(case: TrialDocument, program: Program, plan: Plan) -> Int64s:
    """Return the pairs that may share bytes under `plan` in a run without skipped uploads, encoded
    as `donor * buffers + recipient`.
    """
    problem = problem_of(program, plan, case.document.problems)
    if not len(program.ops):
        return np.empty(0, dtype=np.int64) if problem is None else believed_sharing(problem, plan)
    accesses = case.accesses(program)
    sharing = permitted(case.hand_overs(accesses), as_planned(accesses, plan), plan)
    return distinct(sharing.donor * len(program.buffers) + sharing.recipient)


def _allowed(case: TrialDocument, trial: Trial) -> Int64s:
    """Return the pairs of segments permitted in a run, as `donor row * rows + recipient row`.

    For a program without ops, return pairs of buffers instead.
    """
    if trial.problem is not None:
        return believed_sharing(trial.problem, trial.plan)
    hand_overs = case.hand_overs(trial.accesses)
    sharing = permitted(hand_overs, case.touches(trial), trial.plan)
    return sharing.donor_row * len(hand_overs.live.buffer) + sharing.recipient_row


def _unordered(a: Int64s, b: Int64s, count: int) -> Int64s:
    return np.minimum(a, b) * count + np.maximum(a, b)


def believed_sharing(problem: Problem, plan: Plan | None) -> Int64s:
    """Return the pairs that a problem lets share bytes, as `donor * buffers + recipient`.

    With a plan, return only the pairs that the plan puts at one address.
    """
    donor, recipient = problem.may_share[:, 0].astype(np.int64), problem.may_share[:, 1].astype(np.int64)
    persistent = problem.program.buffers.persistent
    fine = (problem.stop[donor] - 1 == problem.start[recipient]) & ~persistent[donor] & ~persistent[recipient]
    if plan is not None:
        fine &= (plan.arena[donor] == plan.arena[recipient]) & (plan.offset[donor] == plan.offset[recipient])
    return distinct((donor * len(persistent) + recipient)[fine])


def _record(trial: Trial, found: _Conflicts, row: int) -> Violation:
    program, plan = trial.program, trial.plan
    buffer, other, step = int(found.buffer[row]), int(found.other[row]), int(found.step[row])
    nbytes = trial.program.buffers.nbytes if trial.problem is None else trial.problem.nbytes
    shift = int(plan.offset[other]) - int(plan.offset[buffer])
    shared = ((max(shift, 0), min(int(nbytes[buffer]), shift + int(nbytes[other]))),)
    return trial.record(
        "Overlap",
        op=step if len(program.ops) else None,
        buffer=buffer,
        other_buffer=other,
        bytes=shared,
        more=Particulars(live=((step, step + 1),)),
    )
