"""Compute the sizes of a document: ops, buffers, the peak of the plans, and a lower bound in bytes
for every sound plan.

* `ops` and `buffers` are counted over all programs that some run executes, or over all programs of
  the document if nothing runs.
* `peak_bytes` is the highest end of any slot, summed over arenas, of the plan in use with the
  largest sum.
* `lower_bound_bytes` is the largest number of bytes, over the steps of all runs, of the buffers
  that live at a step and have a slot in an arena. Buffers that might share bytes at that step, at
  some offsets, form a class: an op joins them (`s_in_place`), or they hold equal content
  (`s_tags`). A class counts as its largest buffer, because every plan needs that many bytes for the
  class. Once the judge's steps for comparing tags are spent, the first run that needs tags and all
  later runs are left out.

Lifetimes and pairs are derived from the ops (`live`), or taken from the problem if a program has no
ops. Sums are Python ints and do not wrap.

Complexity: O(buffers log buffers + pairs), once for all runs that are alike.

This module does not find defects.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from itertools import pairwise

import numpy as np

from allocsim.judge.fast.accesses import believed_lifetimes
from allocsim.judge.fast.intervals import among, distinct
from allocsim.judge.fast.s_in_place import joined, moved_by
from allocsim.judge.fast.s_overlap import believed_sharing
from allocsim.judge.fast.s_tags import as_tagged, asks_tags, ties
from allocsim.judge.fast.trial import Trial, TrialDocument
from allocsim.judge.violations import Stats
from allocsim.model import Bools, Problem
from allocsim.model.layout import LIMIT, Int64s


def stats(case: TrialDocument) -> Stats:
    """Return the sizes of the judged document."""
    programs = {trial.program_index: trial.program for trial in case.trials}
    judged = list(programs.values()) or list(case.document.programs)
    runs: dict[Hashable, Trial] = {}
    for trial in case.trials:
        tagged = asks_tags(case, trial)
        if tagged and case.tag_work.over:
            break  # a lower bound for fewer runs is still a lower bound
        runs[as_tagged(case, trial) if tagged else trial.alike] = trial
    plans = {trial.plan_index: trial.plan for trial in case.trials}
    return Stats(
        ops=sum(len(program.ops) for program in judged),
        buffers=sum(len(program.buffers) for program in judged),
        peak_bytes=max((plan.peak_bytes for plan in plans.values()), default=0),
        lower_bound_bytes=max((_lower_bound(case, trial) for trial in runs.values()), default=0),
    )


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
    # the sum rises only at the start of a buffer, at the end of a class, and at the split of a
    # class
    steps = distinct(np.concatenate([start, pairs[:, 0], pairs[:, 1]]))
    sums = np.concatenate([live[:1] * 0, live])[np.searchsorted(times, steps, side="right")]
    return int((sums - _savings(pairs, steps, nbytes)).max())


def _pairs(case: TrialDocument, trial: Trial, nbytes: Int64s) -> Int64s:
    """Return (n, 4): first step, stop, and two buffers that might share bytes in these steps."""
    tied = np.empty((0, 4), dtype=np.int64)
    if trial.problem is None:
        sharing = case.kept(("joined", id(trial.accesses)), lambda: joined(case.hand_overs(trial.accesses)))
        sharing = sharing.beside(moved_by(case.hand_overs(trial.accesses), trial.plan.placed & (nbytes > 0)))
        op, donor, recipient = sharing.op, sharing.donor, sharing.recipient
        tied = ties(case, trial)
    else:
        donor, recipient = np.divmod(believed_sharing(trial.problem, None), len(nbytes))
        op = trial.problem.start[recipient]
        alive = ~(_in_a_gap(trial.problem, donor, op) | _in_a_gap(trial.problem, recipient, op))
        op, donor, recipient = op[alive], donor[alive], recipient[alive]
    found = np.concatenate([np.stack([op, op + 1, donor, recipient], axis=1), tied])
    fine = (trial.plan.placed & (nbytes > 0))[found[:, 2:]].all(axis=1)
    kept: Int64s = found[fine]
    return kept


def _in_a_gap(problem: Problem, buffer: Int64s, step: Int64s) -> Bools:
    """Return for each row (buffer, step) whether the step is in a believed gap of the buffer."""
    mask: Bools = np.zeros(len(buffer), dtype=np.bool_)
    for row in np.flatnonzero(among(buffer, np.fromiter(problem.gaps, dtype=np.int64))).tolist():
        mask[row] = any(low <= step[row] < high for low, high in problem.gaps[int(buffer[row])])
    return mask


def _savings(pairs: Int64s, steps: Int64s, nbytes: Int64s) -> Int64s:
    """Return, for each of `steps`, the bytes saved by counting each class as its largest buffer.

    `steps` must contain the first step and the stop of every pair.
    """
    first, last = np.searchsorted(steps, pairs[:, 0]), np.searchsorted(steps, pairs[:, 1])
    weight = np.minimum(nbytes[pairs[:, 2]], nbytes[pairs[:, 3]])
    much = float(nbytes[distinct(pairs[:, 2:].ravel())].sum(dtype=np.float64)) > LIMIT
    change: Int64s = np.zeros(len(steps) + 1, dtype=object if much else np.int64)
    # a pair that shares no buffer with another pair at any step is its own class; the other pairs
    # form classes that change only at the start or end of a pair
    tangled = _tangled(first, last, pairs[:, 2:])
    np.add.at(change, first[~tangled], weight[~tangled])
    np.subtract.at(change, last[~tangled], weight[~tangled])
    for group in _groups(np.flatnonzero(tangled).tolist(), pairs[:, 2:]):
        rows = sorted(group, key=first.__getitem__)
        at, open_ = 0, list[int]()
        for low, high in pairwise(sorted({*first[rows].tolist(), *last[rows].tolist()})):
            while at < len(rows) and first[rows[at]] <= low:
                open_.append(rows[at])
                at += 1
            open_ = [row for row in open_ if last[row] > low]
            saved = saving(pairs[open_, 2:].tolist(), nbytes) if open_ else 0
            change[low] += saved
            change[high] -= saved
    most: Int64s = np.cumsum(change)[:-1]
    return most


def _tangled(first: Int64s, last: Int64s, pairs: Int64s) -> Bools:
    """Return which pairs have a buffer in common with another pair at some step."""
    buffer, row = pairs.T.ravel(), np.tile(np.arange(len(pairs)), 2)
    order = np.lexsort((first[row], buffer))
    buffer, row = buffer[order], row[order]
    meets = (buffer[1:] == buffer[:-1]) & (first[row[1:]] < last[row[:-1]])
    mask = np.zeros(len(pairs), dtype=np.bool_)
    # among the pairs of a buffer, in order of start, an earlier pair may end after the previous
    # pair
    width = int(last.max(initial=0)) + 1
    rank = np.cumsum(np.append(False, buffer[1:] != buffer[:-1]))
    reach = np.maximum.accumulate(rank * width + last[row]) % width
    meets |= (buffer[1:] == buffer[:-1]) & (first[row[1:]] < reach[:-1])
    mask[row[1:][meets]] = mask[row[:-1][meets]] = True
    return mask


def _groups(rows: list[int], pairs: Int64s) -> list[list[int]]:
    """Return the rows of pairs in groups, such that no two groups have a buffer in common."""
    head, found = _Heads(), defaultdict[int, list[int]](list)
    for row in rows:
        head.join(*pairs[row].tolist())
    for row in rows:
        found[head.of(int(pairs[row, 0]))].append(row)
    return list(found.values())


class _Heads(dict[int, int]):
    """A union-find structure: sets of buffers that pairs join, each with one buffer as its head."""

    def of(self, buffer: int) -> int:
        """Return the head of the set that contains a buffer."""
        while self.setdefault(buffer, buffer) != buffer:
            self[buffer] = buffer = self[self[buffer]]
        return buffer

    def join(self, one: int, other: int) -> None:
        """Join the sets of two buffers."""
        self[self.of(one)] = self.of(other)


def saving(pairs: Iterable[tuple[int, int]], nbytes: Int64s) -> int:
    """Return the bytes saved by counting each class of buffers that `pairs` join as its largest
    buffer instead of as the sum of its buffers.
    """
    head = _Heads()
    for one, other in pairs:
        head.join(one, other)
    largest: dict[int, int] = defaultdict(int)
    for buffer in list(head):
        largest[head.of(buffer)] = max(largest[head.of(buffer)], int(nbytes[buffer]))
    return sum(int(nbytes[buffer]) for buffer in head) - sum(largest.values())
