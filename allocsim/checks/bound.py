"""How large what was judged is: ops, buffers, the peak of the plans, and a bound no sound plan can go below.

* `ops`, `buffers`: of all programs that some run executes; of all programs of the document if nothing runs.
* `peak_bytes`: highest end of any slot, summed over arenas; of the largest plan in use.
* `lower_bound_bytes`: the largest, over the steps of all runs, of the bytes of the buffers that live there and have a slot in an arena.
  A class of buffers that might share an address there, by permissible pairs (`s_in_place`), counts once, as its largest: whatever a plan
  makes of the class, it needs that many bytes for it.

When buffers live, and pairs, are derived (`live`), or what its problem believes where a program has no ops. Sums are Python ints and do
not wrap.

Complexity: O(buffers log buffers + pairs) for runs alike.

What this module does not see: defects.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from allocsim.checks.accesses import believed_lifetimes
from allocsim.checks.intervals import distinct
from allocsim.checks.s_overlap import believed_sharing
from allocsim.checks.trial import Trial, TrialDocument
from allocsim.checks.violations import Stats
from allocsim.model import Plan
from allocsim.model.layout import LIMIT, Int64s


def stats(case: TrialDocument) -> Stats:
    """Return the sizes of what the case is about."""
    programs = {trial.program_index: trial.program for trial in case.trials}
    judged = list(programs.values()) or list(case.document.programs)
    distinct = {trial.alike: trial for trial in case.trials}
    plans = {trial.plan_index: trial.plan for trial in case.trials}
    return Stats(
        ops=sum(len(program.ops) for program in judged),
        buffers=sum(len(program.buffers) for program in judged),
        peak_bytes=max((_peak(plan) for plan in plans.values()), default=0),
        lower_bound_bytes=max((_lower_bound(case, trial) for trial in distinct.values()), default=0),
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
    saved, savings = _savings(case, trial, nbytes)
    # the sum rises only where a buffer is born, and after a step with pairs, where it is whole again
    steps = distinct(np.concatenate([start, saved, saved + 1]))
    sums = np.concatenate([live[:1] * 0, live])[np.searchsorted(times, steps, side="right")]
    sums[np.searchsorted(steps, saved)] -= savings
    return int(sums.max())


def _savings(case: TrialDocument, trial: Trial, nbytes: Int64s) -> tuple[Int64s, Int64s]:
    """Return the steps with permissible pairs, sorted, and the bytes by which classes are smaller than their buffers at each."""
    if trial.problem is None:
        sharing = case.permissible(trial.accesses)
        op, donor, recipient = sharing.op, sharing.donor, sharing.recipient
    else:
        pairs = believed_sharing(trial.problem, None)
        donor, recipient = np.divmod(pairs, len(nbytes))
        op = trial.problem.start[recipient]
    fine = trial.plan.placed[donor] & trial.plan.placed[recipient]
    op, donor, recipient = op[fine], donor[fine], recipient[fine]
    steps, place, count = np.unique(op, return_inverse=True, return_counts=True)
    most = np.zeros(len(steps), dtype=np.int64)
    most[place] = np.minimum(
        nbytes[donor], nbytes[recipient]
    )  # right where a step has one pair; the others are looked at one by one
    groups: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in np.flatnonzero(count[place] > 1).tolist():
        groups[int(place[row])].append((int(donor[row]), int(recipient[row])))
    best = {at: saving(pairs, nbytes) for at, pairs in groups.items()}
    if max(best.values(), default=0) > LIMIT:
        most = most.astype(object)
    most[list(best)] = list(best.values())
    return steps, most


def saving(pairs: Iterable[tuple[int, int]], nbytes: Int64s) -> int:
    """Return by how much the classes that pairs of buffers make, each as its largest, are smaller than the buffers together."""
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
