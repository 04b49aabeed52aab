"""How large what was judged is: ops, buffers, the peak of the plans, and a bound no sound plan can go below.

* `ops`, `buffers`: of all programs that some run executes; of all programs of the document if nothing runs.
* `peak_bytes`: highest end of any slot, summed over arenas; of the largest plan in use.
* `lower_bound_bytes`: the largest, over the steps of all runs, of the bytes of the buffers that live there and have a slot in an arena.
  Where an op could hand buffers over in place (permissible pairs, each buffer in one pair), the two of a pair count once,
  as the larger: the pairing that saves most is taken, found exactly up to `EXACT` possible pairs of an op (`EXACT_MIXED` where there
  are no ops and pairs form chains), and bounded from above
  beyond (so the bound stays a bound).

Lifetimes and pairs are the derived ones, those of its problem where a program has no ops. Sums are Python ints and do not wrap.

Complexity: O(buffers log buffers + pairs) for runs alike.

What this module does not see: defects.
"""

from collections import defaultdict

import numpy as np

from allocsim.checks.accesses import lifetimes
from allocsim.checks.intervals import distinct
from allocsim.checks.s_overlap import believed_sharing
from allocsim.checks.trial import Trial, TrialDocument
from allocsim.checks.violations import Stats
from allocsim.model import Plan
from allocsim.model.layout import LIMIT, Int64s

EXACT = 64
"""Possible pairs of one op up to which the best pairing is searched for."""

EXACT_MIXED = 12
"""The same where a buffer is donor of one pair and recipient of another."""

Pair = tuple[int, int]


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
    lives = lifetimes(trial.accesses, trial.problem)
    rows = trial.plan.placed[lives.buffer] & (lives.nbytes[lives.buffer] > 0)
    buffer, start, stop = lives.buffer[rows], lives.start[rows], lives.stop[rows]
    if not len(buffer):
        return 0
    amount = lives.nbytes[buffer]
    if float(amount.sum(dtype=np.float64)) > LIMIT:
        amount = amount.astype(object)
    times, change = np.concatenate([start, stop]), np.concatenate([amount, -amount])
    order = np.argsort(times, kind="stable")
    times, live = times[order], np.cumsum(change[order])
    saved, savings = _savings(case, trial, lives.nbytes)
    # the sum rises only where a buffer is born, and after a step with pairs, where it is whole again
    steps = distinct(np.concatenate([start, saved, saved + 1]))
    sums = np.concatenate([live[:1] * 0, live])[np.searchsorted(times, steps, side="right")]
    sums[np.searchsorted(steps, saved)] -= savings
    return int(sums.max())


def _savings(case: TrialDocument, trial: Trial, nbytes: Int64s) -> tuple[Int64s, Int64s]:
    """Return the steps with permissible pairs, sorted, and the bytes that pairing buffers saves at most at each."""
    if trial.problem is None:
        sharing = case.permissible(trial.accesses)
        op, donor, recipient = sharing.op, sharing.donor, sharing.recipient
    else:
        pairs = believed_sharing(trial.problem, None)
        donor, recipient = np.divmod(pairs, len(nbytes))
        op = trial.problem.start[recipient]
    fine = trial.plan.placed[donor] & trial.plan.placed[recipient]
    op, donor, recipient = op[fine], donor[fine], recipient[fine]
    weight = np.minimum(nbytes[donor], nbytes[recipient])
    steps, place, count = np.unique(op, return_inverse=True, return_counts=True)
    most = np.zeros(len(steps), dtype=np.int64)
    most[place] = weight  # right where a step has one pair; the others are looked at one by one
    groups: dict[int, dict[Pair, int]] = defaultdict(dict)
    for row in np.flatnonzero(count[place] > 1).tolist():
        groups[int(place[row])][int(donor[row]), int(recipient[row])] = int(weight[row])
    best = {at: _best(weights) for at, weights in groups.items()}
    if max(best.values(), default=0) > LIMIT:
        most = most.astype(object)
    most[list(best)] = list(best.values())
    return steps, most


def _best(weights: dict[Pair, int]) -> int:
    """Return the largest weight of a pairing, or a bound above it where there are many pairs."""
    donors: dict[int, int] = defaultdict(int)
    recipients: dict[int, int] = defaultdict(int)
    for (donor, recipient), weight in weights.items():
        donors[donor] = max(donors[donor], weight)
        recipients[recipient] = max(recipients[recipient], weight)
    bound = min(sum(donors.values()), sum(recipients.values()))
    if len(donors) == 1 or len(recipients) == 1:
        return max(weights.values())
    if (
        donors.keys() & recipients.keys()
    ):  # only without ops: a buffer of one step may be donor of one pair and recipient of another
        edges = tuple({frozenset(pair): weight for pair, weight in weights.items()}.items())
        return _matching(edges) if len(edges) <= EXACT_MIXED else bound
    return bound if len(weights) > EXACT else _pairing(weights)


def _matching(edges: tuple[tuple[frozenset[int], int], ...]) -> int:
    """Return the largest weight of edges of which no two meet; O(2^edges)."""
    if not edges:
        return 0
    (pair, weight), *rest = edges
    apart = tuple(edge for edge in rest if not edge[0] & pair)
    return max(weight + _matching(apart), _matching(tuple(rest)))


def _pairing(weights: dict[Pair, int]) -> int:
    """Return the largest weight of a pairing: the path that gains most is taken until none gains (successive longest paths)."""
    partner: dict[int, int] = {}  # recipient -> donor
    total = 0
    while True:
        gain = {donor: 0 for donor, _ in weights if donor not in partner.values()}
        reach: dict[int, tuple[int, int]] = {}  # recipient -> gain of the best path to it, and the donor it comes from
        changed = True
        while changed:
            changed = False
            for (donor, recipient), weight in weights.items():
                if donor not in gain or partner.get(recipient) == donor:
                    continue
                value = gain[donor] + weight
                if recipient not in reach or value > reach[recipient][0]:
                    reach[recipient], changed = (value, donor), True
                    if recipient in partner:
                        back = partner[recipient]
                        gain[back] = value - weights[back, recipient]
        ends = [(value, recipient) for recipient, (value, _) in reach.items() if recipient not in partner]
        best, recipient = max(ends, default=(0, 0))
        if best <= 0:
            return total
        total += best
        while True:
            donor = reach[recipient][1]
            earlier = next((r for r, d in partner.items() if d == donor), None)
            partner[recipient] = donor
            if earlier is None:
                break
            recipient = earlier
