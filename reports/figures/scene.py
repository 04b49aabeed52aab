"""What a document shows, as columns for drawing: lifetimes, slots, handovers, live bytes.

Nothing here needs matplotlib.

Time: steps, half-open. Lifetimes and permissible pairs are those of `allocsim.liveness`. A program
without ops is shown by its problem: the believed lifetimes, sizes and pairs stand in for the
derived ones. Space: bytes, half-open, from the start of an arena.

A *handover* is what the plan does in place: the recipient's slot starts where the donor's does, and
the donor's last step is the recipient's first. A *pair* is what the kernels would allow under some
plan. Pairs make the bound: at the step of a pair its two buffers count once, as the larger.

What this module does not see: whether any of it is right. Conflicts come from a `Report`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocsim import liveness
from allocsim.errors import ModelError
from allocsim.model import Bools, Document, Plan, Problem, Program
from allocsim.model.layout import LIMIT, Int64s


@dataclass(frozen=True, kw_only=True, eq=False)
class LiveCurve:
    """A step function of time: `height[k]` from `edges[k]` to `edges[k + 1]`, both int64."""

    edges: Int64s
    height: Int64s

    @property
    def peak(self) -> int:
        """The highest height, 0 where there is none."""
        return int(self.height.max(initial=0))

    @property
    def peak_at(self) -> int:
        """The first step at the peak."""
        return int(self.edges[int(np.argmax(self.height))]) if len(self.height) else 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """One program, lying as one plan puts it, over one time axis."""

    program: Program
    plan: Plan | None
    problem: Problem | None
    """What the plan was made from, else the document's first problem for this program."""
    start: Int64s
    stop: Int64s
    """Derived lifetimes `[start, stop)` by buffer."""
    nbytes: Int64s
    """Size of each buffer."""
    steps: int
    """Length of the time axis."""
    skip: tuple[int, ...] = ()
    """Steps of the `host.write` ops that the run leaves out."""

    @cached_property
    def used(self) -> Bools:
        """Which buffers live at all."""
        mask: Bools = self.stop > self.start
        return mask

    @cached_property
    def placed(self) -> Bools:
        """Which buffers have a slot in an arena; without a plan, those that one would give it."""
        if self.plan is not None:
            return self.plan.placed
        mask: Bools = ~self.program.buffers.persistent
        return mask

    def shown(self, arena: int) -> Int64s:
        """Return the buffers that have a slot in `arena`, live and are not empty."""
        if self.plan is None:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero((self.plan.arena == arena) & self.used & (self.nbytes > 0))

    @cached_property
    def handovers(self) -> Int64s:
        """(n, 3): step, donor, recipient, in order of the recipient."""
        if self.plan is None:
            return np.empty((0, 3), dtype=np.int64)
        placed = np.flatnonzero(
            (self.plan.arena >= 0) & self.used & (self.nbytes > 0) & ~self.program.buffers.persistent
        )
        ends: dict[tuple[int, int, int], int] = {}
        for buffer in placed.tolist():
            ends[int(self.plan.arena[buffer]), int(self.plan.offset[buffer]), int(self.stop[buffer]) - 1] = buffer
        rows = []
        for buffer in placed.tolist():
            step = int(self.start[buffer])
            donor = ends.get((int(self.plan.arena[buffer]), int(self.plan.offset[buffer]), step))
            if donor is not None and donor != buffer:
                rows.append((step, donor, buffer))
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    @cached_property
    def pairs(self) -> Int64s:
        """(n, 3): step, donor, recipient that could share one address.

        At one step each buffer is in one pair at most.
        """
        if len(self.program.ops):
            found = liveness.permissible_pairs(self.program, skip=self.skip).astype(np.int64)
        else:
            shares = (
                np.empty((0, 2), dtype=np.int64) if self.problem is None else self.problem.may_share.astype(np.int64)
            )
            meet = shares[self.stop[shares[:, 0]] - 1 == self.start[shares[:, 1]]]
            found = np.column_stack([self.start[meet[:, 1]], meet])
        saved = np.minimum(self.nbytes[found[:, 1]], self.nbytes[found[:, 2]])
        return _matching(found[np.argsort(-saved, kind="stable")])

    def live_bytes(self, mask: Bools) -> LiveCurve:
        """Return the bytes of `mask`'s buffers over time, pairs counted once. O(n log n)."""
        chosen = np.flatnonzero(mask & self.used)
        both = self.pairs[mask[self.pairs[:, 1]] & mask[self.pairs[:, 2]]]
        shared = np.minimum(self.nbytes[both[:, 1]], self.nbytes[both[:, 2]])
        when = np.concatenate([[0, self.steps], self.start[chosen], self.stop[chosen], both[:, 0], both[:, 0] + 1])
        change = np.concatenate([[0, 0], self.nbytes[chosen], -self.nbytes[chosen], -shared, shared])
        return step_curve(when, change)

    def wasted_bytes(self) -> LiveCurve | None:
        """Return the bytes kept, by the belief of the plan, for nothing that the ops need.

        What is pinned, or believed by nobody, wastes nothing. None where there is no belief beside
        the ops. O(n log n).
        """
        if self.problem is None or not len(self.program.ops):
            return None
        first, last = (np.clip(part, 0, self.steps) for part in (self.problem.start, self.problem.stop))
        last = np.maximum(first, last)
        kept = np.flatnonzero(self.placed & self.used & ~self.problem.pinned & ~self.program.buffers.persistent)
        before = kept[first[kept] < self.start[kept]]
        after = kept[last[kept] > self.stop[kept]]
        until, since = np.minimum(self.start[before], last[before]), np.maximum(self.stop[after], first[after])
        when = np.concatenate([[0, self.steps], first[before], until, since, last[after]])
        size = self.nbytes
        change = np.concatenate([[0, 0], size[before], -size[before], size[after], -size[after]])
        return step_curve(when, change)

    def reach(self) -> LiveCurve:
        """Return the highest end of a live slot over time, summed over arenas.

        What a plan that ended there would need. O(n log n).
        """
        chosen = np.flatnonzero(self.placed & self.used)
        edges = np.unique(np.concatenate([[0, self.steps], self.start[chosen], self.stop[chosen]]))
        total = np.zeros(max(len(edges) - 1, 0), dtype=np.int64)
        if self.plan is None:
            return LiveCurve(edges=edges, height=total)
        if (
            float(np.abs(self.plan.offset[chosen]).max(initial=0)) + float(self.nbytes[chosen].max(initial=0))
            > LIMIT / 64
        ):
            total = total.astype(np.float64)  # as above
        for arena in np.unique(self.plan.arena[chosen]).tolist():
            here = chosen[self.plan.arena[chosen] == arena]
            ends = self.plan.offset[here].astype(total.dtype) + self.nbytes[here]
            first, last = np.searchsorted(edges, self.start[here]), np.searchsorted(edges, self.stop[here])
            total += _highest(first, last, ends, len(total))
        return LiveCurve(edges=edges, height=total)

    @property
    def source(self) -> str:
        """Who made the plan, or what is shown if there is none."""
        return (self.plan.source if self.plan is not None else "") or self.program.name


def step_curve(when: Int64s, change: Int64s) -> LiveCurve:
    """Return the sum over time of what changes at some steps. O(n log n)."""
    edges, place = np.unique(when, return_inverse=True)
    if float(np.abs(change).sum(dtype=np.float64)) / 2 > LIMIT:
        change = change.astype(np.float64)  # a picture of more than 2^62 bytes need not be exact
    total = np.zeros(len(edges), dtype=change.dtype)
    np.add.at(total, place, change)
    return LiveCurve(edges=edges, height=np.cumsum(total)[:-1])


def scenes(document: Document) -> tuple[Scene, ...]:
    """Return one scene for each run, or where nothing ran one for each program."""
    if document.runs:
        found = (scene(document, run) for run in range(len(document.runs)))
        return tuple(each for each in found if each is not None)
    return tuple(_scene(program, None, _belief(document, program)) for program in document.programs)


def scene(document: Document, run: int) -> Scene | None:
    """Return the scene of one run.

    Where nothing ran, run 0 is the first program, or None if there is none either.

    Raises ModelError for a run that the document does not have.
    """
    runs = document.runs
    if runs:
        if not 0 <= run < len(runs):
            raise ModelError("run", f"{run} does not exist; there are {len(runs)}, counted from 0")
        plan, program = runs[run].plan, runs[run].program
        own = (
            plan.problem if plan.problem is not None and plan.problem.program is program else _belief(document, program)
        )
        return _scene(program, plan, own, runs[run].skip)
    if run != 0:
        raise ModelError("run", f"{run} does not exist; the document has no plan and runs nothing")
    return _scene(document.programs[0], None, _belief(document, document.programs[0])) if document.programs else None


def _scene(program: Program, plan: Plan | None, problem: Problem | None, skip: tuple[int, ...] = ()) -> Scene:
    if len(program.ops) or problem is None:
        (start, stop), sizes, steps = liveness.lifetimes(program, skip=skip).T, program.buffers.nbytes, len(program.ops)
    else:
        start, stop, sizes = problem.start, problem.stop, problem.nbytes
        steps = int(stop[stop > start].max(initial=0))
    return Scene(
        program=program, plan=plan, problem=problem, start=start, stop=stop, nbytes=sizes, steps=steps, skip=skip
    )


def _belief(document: Document, program: Program) -> Problem | None:
    return next((problem for problem in document.problems if problem.program is program), None)


def _highest(first: Int64s, last: Int64s, ends: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the highest of the ends over each of `count` places, 0 where none is.

    An end is over the places `[first, last)`.
    """
    top = np.zeros(count, dtype=ends.dtype)
    free = list(range(count + 1))
    """The next place that has no end yet, or one on the way there."""
    order = np.argsort(-ends, kind="stable")
    for low, high, end in zip(first[order].tolist(), last[order].tolist(), ends[order].tolist(), strict=True):
        place = low
        while place < high:
            begin = place
            while free[place] != place:
                place = free[place]
            while free[begin] != place:
                free[begin], begin = place, free[begin]
            if place < high:
                top[place] = end
                free[place] = place + 1
    return top


def _matching(pairs: Int64s) -> Int64s:
    """Return the rows kept where each buffer may be in one at a step, the first come first."""
    taken: set[tuple[int, int]] = set()
    kept: list[list[int]] = []
    for step, donor, recipient in pairs.tolist():
        if (step, donor) not in taken and (step, recipient) not in taken:
            kept.append([step, donor, recipient])
            taken.update([(step, donor), (step, recipient)])
    return np.array(kept, dtype=np.int64).reshape(-1, 3)
