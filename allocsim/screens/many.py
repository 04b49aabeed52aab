"""The check's entry for many small programs at once: which of them it has to look at.

    rows = to_look_at(plan, op_starts=..., buffer_starts=...)      # those that may have a violation; all others are clean

The programs stand one after another in one program, as `allocsim.fuzzing.batch` joins them and lays
them side by side: program k has the ops `op_starts[k]:op_starts[k + 1]` and the buffers
`buffer_starts[k]:buffer_starts[k + 1]`. No op but those behind the last program touches buffers of
two of them, and no two have slots that share a byte.

It is the check of `check`, by its own rows and kernels. Rows that are quick (`slots`, `promises`,
`events`, `order`) are run as they are. The kernels that `dataflow` and `overlap` have for large
documents, `stray_apart`, `stray_planned` and `met`, are given all programs in one call. What
`writes` and `beliefs` ask of each op is asked by a compiled pass (`many_passes`). All of these may
point at too much, never at too little: what is wrong, and in which words, `check` says of the
programs pointed at.

Pointed at unseen: programs without ops, with a parameter or state, with a value that an op touches
and that has holes or reaches out of its buffer, with packed values or ranges of sizes, or with an
op that declares nothing, more than `exact`, or is a `same`. Warnings are not asked for.

Complexity: O(columns), and two sorts; one to two microseconds for a program of five ops. What this
module does not see: sessions.
"""

import numpy as np

from allocsim.checks.h_races import check_order
from allocsim.checks.intervals import among, end_of
from allocsim.checks.l_beliefs import gaps_over_life
from allocsim.checks.s_events import check_events
from allocsim.checks.s_in_place import HandOvers, addresses, declared_pairs
from allocsim.checks.s_promises import check_promises
from allocsim.checks.s_slots import check_slots
from allocsim.checks.selector import SCREENED
from allocsim.checks.trial import Findings, TrialDocument
from allocsim.model import EXACT, VIEW, Bools, Document, Plan
from allocsim.model.layout import Int64s

ROOM = 10_000
"""Records of the rows that are run as they are.

Where there are more, every program is pointed at.
"""


def to_look_at(plan: Plan, *, op_starts: Int64s, buffer_starts: Int64s) -> Int64s:
    """Return the programs, in order, that `check` has to look at.

    Of the others it would list no violation.
    """
    return _Many(plan, op_starts, buffer_starts).pointed_at()


class _Many:
    """One plan of many programs under the screens."""

    def __init__(self, plan: Plan, op_starts: Int64s, buffer_starts: Int64s) -> None:
        from allocsim.screens import axes, many_passes  # noqa: PLC0415 - imports numba

        self.kernels, self.passes = axes, many_passes
        self.plan, self.program = plan, plan.program
        count = len(op_starts) - 1
        self.of_op: Int64s = np.full(len(self.program.ops), count, dtype=np.int64)
        self.of_op[: op_starts[-1]] = np.repeat(np.arange(count), np.diff(op_starts))
        self.of_buffer: Int64s = np.repeat(np.arange(count), np.diff(buffer_starts))
        self.pointed: Bools = np.append(np.diff(op_starts) == 0, False)
        """One entry for each program, and one for the ops behind the last."""
        self.case = TrialDocument(Document.of(plan), SCREENED)
        (trial,) = self.case.trials
        self.accesses, self.extents = trial.accesses, trial.accesses.extents
        ops, values, extents = self.program.ops, self.program.values, self.extents
        self.ops = (
            ops.operand_starts, ops.operands, ops.result_starts, ops.results, ops.in_place_starts, ops.in_place,
        )  # fmt: skip
        self.values = extents.buffer, extents.low, extents.high, values.offset
        self.layouts = values.dim_starts, values.shape, values.strides, values.itemsize
        self.space, self.base = addresses(plan)
        self.hand_overs = HandOvers(self.accesses)

    def pointed_at(self) -> Int64s:
        """Run the screens, each over what those before it did not point at."""
        for screen in (self._as_they_are, self._unseen, self._touching, self._beliefs, self._reads, self._placement):
            screen()
        return np.flatnonzero(self.pointed[:-1])

    def _as_they_are(self) -> None:
        """Run the rows of the check that are quick."""
        findings = Findings(ROOM)
        for row in (check_slots, check_promises, check_events, check_order):
            row(self.case, findings)
        if findings.bounded or any(number > ROOM for number in findings.counts.values()):
            self.pointed[:] = True
        for record in findings.listed("violation", of_each_kind=True):
            home, place = (self.of_buffer, record.buffer) if record.buffer is not None else (self.of_op, record.op)
            self.pointed[home[place]] = True

    def _unseen(self) -> None:
        """Point at what the passes and kernels are not made for."""
        accesses, extents, buffers, ops = self.accesses, self.extents, self.program.buffers, self.program.ops
        self.pointed[self.of_buffer[buffers.persistent]] = True
        self.pointed[self.of_op[accesses.active & (~ops.in_place_known | self.program.same_ops)]] = True
        stronger = np.repeat(self.of_op, np.diff(ops.in_place_starts))[ops.in_place_strength != EXACT]
        self.pointed[stronger] = True
        self.pointed[self.of_buffer[extents.buffer[self.program.values.packed]]] = True
        self.pointed[self.of_buffer[list(buffers.nbytes_range)]] = True
        strange = ~extents.dense | ~extents.whole
        for value in (accesses.read_value, accesses.write_value) if strange.any() else ():
            self.pointed[self.of_buffer[extents.buffer[value[strange[value]]]]] = True
        written = buffers.read_only[accesses.write_buffer] & ~accesses.host_write[accesses.write_op]
        self.pointed[self.of_buffer[accesses.write_buffer[written]]] = True

    def _touching(self) -> None:
        places = self.space, self.base
        self.passes.touching(
            self.ops, self.accesses.active, self.values, self.layouts, places, self.of_op, self.pointed
        )

    def _beliefs(self) -> None:
        """Point at lifetimes too short, sizes too small, and pairs that are not seen to be
        permissible.
        """
        accesses, buffers = self.accesses, self.program.buffers
        for problem in self.case.document.problems:
            bad = accesses.touched & ((problem.start > accesses.first) | (problem.stop <= accesses.last))
            self.pointed[self.of_buffer[bad | (problem.nbytes < buffers.nbytes)]] = True
            self.pointed[self.of_buffer[gaps_over_life(problem, self.hand_overs.live)[0]]] = True
            pairs = problem.may_share
            doubt = np.empty(len(pairs), dtype=np.bool_)
            self.passes.doubtful(pairs, self.ops, self.values, self.layouts, accesses.first, accesses.last, doubt)
            self.pointed[self.of_buffer[pairs[doubt]]] = True

    def _reads(self) -> None:
        """Point at reads that may find what they must not, as `dataflow` does for a large
        document.
        """
        kernels, accesses, extents, buffers = self.kernels, self.accesses, self.extents, self.program.buffers
        count = len(accesses.read_op) + len(accesses.write_op)
        write, value = np.empty(count, dtype=np.bool_), np.empty(count, dtype=np.int64)
        self.passes.in_turn(
            accesses.read_op, accesses.read_value, accesses.write_op, accesses.write_value, write, value
        )
        rows = np.flatnonzero(
            (extents.low < extents.high)[value] & ~self.pointed[self.of_buffer[extents.buffer[value]]]
        )
        write, value = write[rows], value[rows]
        buffer, low, high = extents.buffer[value], extents.low[value], extents.high[value]
        whole, none = np.full(len(rows), -1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        no_holes, nothing = (none, none[:0], none[:0]), (none[:0], none[:0], none[:0], none[:0])
        found = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
        axes = kernels.axis_for(2 * len(rows) + 8), kernels.axis_for(2 * len(rows) + 8)
        apart = write, value, low, high, whole, self._made()[value]
        ends = np.zeros(len(buffers), dtype=np.bool_), np.zeros(len(buffers), dtype=np.int64), buffers.nbytes.copy()
        chains = self._chains(buffer, len(buffers))
        count = kernels.stray_apart(chains, apart, ends, no_holes, len(self.program.values), axes, found)
        self.pointed[self.of_buffer[buffer[found[1][:count]]]] = True
        planned = write, low, high, whole, self.base[buffer], buffer
        chains = self._chains(np.where(self.plan.placed, self.space, -1)[buffer], len(self.program.arenas))
        count = kernels.stray_planned(
            chains, planned, (none, np.arange(len(buffers))), no_holes, nothing, axes[0], found
        )
        self.pointed[self.of_buffer[buffer[found[1][:count]]]] = True

    def _placement(self) -> None:
        """Point at buffers that meet in time and space, as `overlap` does for a large
        document.
        """
        from allocsim.screens.rectangles import met  # noqa: PLC0415 - imports numba

        buffers, hand_overs = self.program.buffers, self.hand_overs
        live = hand_overs.live
        sharing = hand_overs.sharing(*declared_pairs(self.accesses))  # those that break the rule are pointed at before
        count = len(live.buffer)
        allowed = np.minimum(sharing.donor_row, sharing.recipient_row) * count + np.maximum(
            sharing.donor_row, sharing.recipient_row
        )
        home = live.buffer
        chosen = self.plan.placed[home] & (buffers.nbytes[home] > 0) & ~self.pointed[self.of_buffer[home]]
        for arena in range(len(self.program.arenas)):
            rows = np.flatnonzero(chosen & (self.plan.arena[home] == arena))
            low = self.plan.offset[home[rows]]
            columns = live.start[rows], live.stop[rows], low, end_of(low, buffers.nbytes[home[rows]])
            left, right, more = met(*columns, cap=len(sharing.op) + 8 * len(rows))
            one, other = rows[left], rows[right]
            wrong = ~among(np.minimum(one, other) * count + np.maximum(one, other), allowed)
            self.pointed[self.of_buffer[home[one[wrong]]]] = True
            self.pointed |= more

    def _chains(self, key: Int64s, keys: int) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
        """Return the rows by key, those below 0 left out, as the kernels take them."""
        rows = np.flatnonzero(key >= 0)
        starts, order = self.kernels.grouped(key[rows], keys)
        used = np.flatnonzero(starts[1:] > starts[:-1])
        return used, np.zeros(len(used), dtype=np.int64), starts[used], starts[used + 1], rows[order]

    def _made(self) -> Bools:
        """Return which values an op other than `view` makes."""
        made = self.program.producer >= 0
        made[made] = ~self.program.ops.is_kind(VIEW)[self.program.producer[made]]
        return made
