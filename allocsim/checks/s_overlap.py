"""Which buffers a plan lays over each other while both live: `Overlap`.

Two buffers with slots in one arena are in conflict in a run if their bytes `[offset, offset + nbytes of the buffer)` and their
lifetimes both intersect, unless the pair is permitted. Lifetimes and sizes are the derived ones (`accesses`); for a program
without ops those its problem believes, less the gaps. Zero-byte buffers overlap nothing; memory of its own overlaps nothing.

Permitted (donor, recipient): joined by the op at which the one life ends and the other begins, which breaks the in-place rule
nowhere as planned (`in_place`). In a program without ops: a pair the problem believes may share, of which neither is persistent, the
donor's last believed step is the recipient's first, and both begin at one address.

One record for each (run, pair): `buffer` is the lower index of the two, `other_buffer` the higher, `bytes` what they share, within
`buffer`; `op` and `step` the first op at which both live.

Complexity, once for runs alike: O(buffers log buffers + conflicts listed). At most `COUNT_LIMIT` conflicts of a run, and as many
as there are permitted pairs, are listed; if there are more, the count is a lower bound.

What this module does not see: whether the bytes shared are ever read (`dataflow`).
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from allocsim.checks.accesses import lifetimes
from allocsim.checks.intervals import among, conflicts, distinct, end_of
from allocsim.checks.s_in_place import Sharing, as_planned, permitted
from allocsim.checks.trial import (
    COUNT_LIMIT,
    Findings,
    Trial,
    TrialDocument,
    buffer_words,
    bytes_words,
    op_words,
    problem_of,
    slot_words,
)
from allocsim.checks.violations import Violation
from allocsim.model import Plan, Problem, Program
from allocsim.model.layout import Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conflicts:
    """Pairs of buffers in conflict, in order of step; where the list was `cut`, at least `beyond` more are not in it."""

    step: Int64s
    buffer: Int64s
    other: Int64s
    beyond: int = 0
    cut: bool = False


def check_placement(case: TrialDocument, findings: Findings) -> None:
    """Report every pair of buffers that a run has over each other while both live."""
    known: dict[object, _Conflicts] = {}
    for trial in case.trials:
        if trial.alike not in known:
            known[trial.alike] = _conflicts(case, trial)
        found = known[trial.alike]
        listed = min(findings.room("Overlap"), len(found.step))
        for row in range(listed):
            findings.report("Overlap", partial(_record, trial, found, row))
        findings.counts["Overlap"] += len(found.step) - listed
        if found.cut:
            findings.more("Overlap", found.beyond)


def _conflicts(case: TrialDocument, trial: Trial) -> _Conflicts:
    lives = lifetimes(trial.accesses, trial.problem)
    allowed = _allowed(case, trial)
    count = len(trial.program.buffers)
    steps, pairs, beyond = [], [], 0
    for arena in range(len(trial.program.arenas)):
        rows = np.flatnonzero((trial.plan.arena[lives.buffer] == arena) & (lives.nbytes[lives.buffer] > 0))
        if len(rows) < 2:
            continue
        buffer, low = lives.buffer[rows], trial.plan.offset[lives.buffer[rows]]
        start, stop, high = lives.start[rows], lives.stop[rows], end_of(low, lives.nbytes[buffer])
        found = conflicts(start, stop, low, high, cap=COUNT_LIMIT + len(allowed) + 1, selector=case.selector)
        beyond += found.total - len(found.left)
        pairs.append(_unordered(buffer[found.left], buffer[found.right], count))
        steps.append(np.maximum(start[found.left], start[found.right]))
    if not any(map(len, pairs)):
        empty = np.empty(0, dtype=np.int64)
        return _Conflicts(step=empty, buffer=empty, other=empty)
    pair, step = np.concatenate(pairs), np.concatenate(steps)
    order = np.lexsort((pair, step))
    pair, step = pair[order], step[order]
    # a buffer with gaps lives several times, and may meet the other each time
    keep = np.zeros(len(pair), dtype=np.bool_)
    keep[np.unique(pair, return_index=True)[1]] = True
    keep &= ~among(pair, _unordered(allowed // count, allowed % count, count))
    gapless = len(distinct(lives.buffer)) == len(lives.buffer)
    certain = max(beyond - len(allowed), 0) if gapless else 0
    first, second = pair // count, pair % count
    return _Conflicts(step=step[keep], buffer=first[keep], other=second[keep], beyond=certain, cut=beyond > 0)


def permitted_pairs(case: TrialDocument, program: Program, plan: Plan) -> Int64s:
    """Return the pairs `plan` may lay over each other in a whole run of its program, as `donor * buffers + recipient`."""
    problem = problem_of(program, plan, case.document.problems)
    if not len(program.ops):
        return np.empty(0, dtype=np.int64) if problem is None else believed_sharing(problem, plan)
    accesses = case.accesses(program)
    return _packed(permitted(accesses, as_planned(accesses, plan)), len(program.buffers))


def _allowed(case: TrialDocument, trial: Trial) -> Int64s:
    """Return the pairs permitted in a run, as `donor * buffers + recipient`."""
    if trial.problem is not None:
        return believed_sharing(trial.problem, trial.plan)
    return _packed(permitted(trial.accesses, case.touches(trial)), len(trial.program.buffers))


def _unordered(a: Int64s, b: Int64s, count: int) -> Int64s:
    return np.minimum(a, b) * count + np.maximum(a, b)


def _packed(sharing: Sharing, count: int) -> Int64s:
    return sharing.donor * count + sharing.recipient


def believed_sharing(problem: Problem, plan: Plan | None) -> Int64s:
    """Return the pairs a problem lets meet in one step, as `donor * buffers + recipient`; of a plan, those at one address."""
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
    at = f"when {op_words(program, step)} runs" if len(program.ops) else f"at step {step}"
    return trial.record(
        "Overlap",
        op=step if len(program.ops) else None,
        buffer=buffer,
        other_buffer=other,
        bytes=shared,
        message=(
            f"{buffer_words(program, buffer)} in {slot_words(program, plan, buffer)} and {buffer_words(program, other)} in "
            f"{slot_words(program, plan, other)} both live {at}; they share {bytes_words(shared)} of the first"
        ),
    )
