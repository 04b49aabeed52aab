"""How large what was judged is: ops, buffers, the peak of the plans, and a bound no sound plan can
go below.

* `ops`, `buffers`: of all programs that some run executes; of all programs of the document if
  nothing runs.
* `peak_bytes`: highest end of any slot, summed over arenas; of the largest plan in use.
* `lower_bound_bytes`: the largest, over the steps of all runs, of the bytes of the buffers that
  live there and have a slot in an arena. A class of buffers that might share an address there, by
  permissible pairs (`s_in_place`) or by holding the same with both at one address (`s_tags`),
  counts once, as its largest: whatever a plan makes of the class, it needs that many bytes for it.

When buffers live, and pairs, are derived (`live`), or what its problem believes where a program has
no ops. Sums are Python ints and do not wrap.

Complexity: O(buffers log buffers + pairs) for runs alike.

What this module does not see: defects.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from allocsim.checks.accesses import believed_lifetimes
from allocsim.checks.intervals import distinct
from allocsim.checks.s_overlap import believed_sharing
from allocsim.checks.s_tags import shares_tags, ties
from allocsim.checks.trial import Trial, TrialDocument
from allocsim.checks.violations import Stats
from allocsim.model import Plan
from allocsim.model.layout import LIMIT, Int64s


def stats(case: TrialDocument) -> Stats:
    """Return the sizes of what the case is about."""
    programs = {trial.program_index: trial.program for trial in case.trials}
    judged = list(programs.values()) or list(case.document.programs)
    runs = {(trial.alike, trial.index if shares_tags(case, trial) else 0): trial for trial in case.trials}
    plans = {trial.plan_index: trial.plan for trial in case.trials}
    return Stats(
        ops=sum(len(program.ops) for program in judged),
        buffers=sum(len(program.buffers) for program in judged),
        peak_bytes=max((_peak(plan) for plan in plans.values()), default=0),
        lower_bound_bytes=max((_lower_bound(case, trial) for trial in runs.values()), default=0),
    )


def _peak(plan: Plan) -> int:
    last = plan.offset + (plan.nbytes - 1)  # the end itself may be 2^63, one too many for 64 bits
    return sum(int(last[plan.arena == arena].max(initial=-1)) + 1 for arena in range(len(plan.program.arenas)))


def _lower_bound(case: TrialDocument, trial: Trial) -> int:
    derived = trial.problem is None
    lives = case.hand_overs(trial.accesses).live if trial.problem is None else believed_lifetimes(trial.problem)
    nbytes = trial.program.buffers.nbytes if trial.problem is None else trial.problem.nbytes
    rows = trial.plan.placed[lives.buffer] & (nbytes[lives.buffer] > 0)
    buffer, start, stop = lives.buffer[rows], lives.start[rows], lives.stop[rows]
    if derived:
        start, stop = np.maximum(start, 0), np.minimum(stop, len(trial.program.ops))
    if not len(buffer):
        return 0
    amount = nbytes[buffer]
    if float(amount.sum(dtype=np.float64)) > LIMIT:
        amount = amount.astype(object)
    times, change = np.concatenate([start, stop]), np.concatenate([amount, -amount])
    order = np.argsort(times, kind="stable")
    times, live = times[order], np.cumsum(change[order])
    pairs = _pairs(case, trial, nbytes)
    # the sum rises only where a buffer is born, and where a class ends or its buffers part
    steps = distinct(np.concatenate([start, pairs[:, 0], pairs[:, 1]]))
    sums = np.concatenate([live[:1] * 0, live])[np.searchsorted(times, steps, side="right")]
    return int((sums - _savings(pairs, steps, nbytes)).max())


def _pairs(case: TrialDocument, trial: Trial, nbytes: Int64s) -> Int64s:
    """Return (n, 4): first step, stop, and two buffers with slots that might share an address in
    between.
    """
    tied = np.empty((0, 4), dtype=np.int64)
    if trial.problem is None:
        sharing = case.permissible(trial.accesses)
        op, donor, recipient = sharing.op, sharing.donor, sharing.recipient
        tied = ties(case, trial)
    else:
        donor, recipient = np.divmod(believed_sharing(trial.problem, None), len(nbytes))
        op = trial.problem.start[recipient]
    found = np.concatenate([np.stack([op, op + 1, donor, recipient], axis=1), tied])
    fine = (trial.plan.placed & (nbytes > 0))[found[:, 2:]].all(axis=1)
    kept: Int64s = found[fine]
    return kept


def _savings(pairs: Int64s, steps: Int64s, nbytes: Int64s) -> Int64s:
    """Return by how much classes are smaller than their buffers at each of some steps.

    The bounds of all pairs are among them.
    """
    first, last = np.searchsorted(steps, pairs[:, 0]), np.searchsorted(steps, pairs[:, 1])
    weight = np.minimum(nbytes[pairs[:, 2]], nbytes[pairs[:, 3]])
    covers = np.cumsum(np.bincount(first, minlength=len(steps) + 1) - np.bincount(last, minlength=len(steps) + 1))[:-1]
    most: Int64s = np.zeros(len(steps), dtype=object if float(weight.sum(dtype=np.float64)) > LIMIT else np.int64)
    # what one pair covers is right at once; where several do, classes are made one by one
    short = np.flatnonzero(last - first == 1)
    most[first[short]] = weight[short]
    alone, crowded = np.flatnonzero(covers == 1), np.flatnonzero(covers > 1)
    for row in np.flatnonzero(last - first > 1).tolist():
        most[alone[np.searchsorted(alone, first[row]) : np.searchsorted(alone, last[row])]] = weight[row]
    begins = np.argsort(first, kind="stable")
    begins = begins[np.searchsorted(crowded, last[begins]) > np.searchsorted(crowded, first[begins])]
    at, open_ = 0, list[int]()
    for step in crowded.tolist():
        upto = int(np.searchsorted(first[begins], step, side="right"))
        open_ = [row for row in (*open_, *begins[at:upto].tolist()) if last[row] > step]
        at = upto
        most[step] = saving(pairs[open_, 2:].tolist(), nbytes)
    return most


def saving(pairs: Iterable[tuple[int, int]], nbytes: Int64s) -> int:
    """Return by how much the classes that pairs of buffers make, each as its largest, are smaller
    than the buffers together.
    """
    head: dict[int, int] = {}

    def root(buffer: int) -> int:
        while head.setdefault(buffer, buffer) != buffer:
            head[buffer] = buffer = head[head[buffer]]
        return buffer

    for one, other in pairs:
        head[root(one)] = root(other)
    largest: dict[int, int] = defaultdict(int)
    for buffer in head:
        largest[root(buffer)] = max(largest[root(buffer)], int(nbytes[buffer]))
    return sum(int(nbytes[buffer]) for buffer in head) - sum(largest.values())
