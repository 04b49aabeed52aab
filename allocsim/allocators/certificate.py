"""Certificates of how small a plan can be, for who does not believe the search.

    record = certificate(plan, nodes=10_000)   # for JSON; the instance beside it: `allocsim convert plan.json instance.csv`

`docs/planners/check_certificate.py`, a file that imports nothing of this package, says what a
certificate is and accepts it or says why not. Its slots prove that the plan's bytes are enough. The
bound is what lives at one step; where that is less than the peak, `nodes` of a search try to raise
it to the peak: that no plan is lower is split into cases, of two buffers that live at one step the
one under the other or over it, until what lives at one step does not fit between what lies under it
and what lies over it.

In a case, what lies under a buffer (`under`, bytes) and over it (`over`) is bounded by groups: of
what lies there and lives at one step, those bounded by v or more take v and their sizes. A pair is
split that leaves least room in the tighter of its cases.

O(n^2) a node in plain Python: for dozens of buffers. What this module does not see: plans of
several arenas, and pairs that share bytes.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from allocsim.allocators.by_csv import ids
from allocsim.allocators.lower_bounds import common_granule, without
from allocsim.model import Plan

Row = dict[str, Any]
Cases = tuple[tuple[str, str], ...]
"""(what lies under, what lies over it)."""

CYCLE = 1 << 62
"""Bytes under a buffer that lies under itself."""


def certificate(plan: Plan, *, nodes: int = 0) -> Row | None:
    """Return the certificate of a plan with its problem: peak, bound, offset of each buffer, proof.

    The bound is the peak where at most `nodes` rows prove that, else what lives at one step. None
    for a plan of several arenas or without a problem, and where two buffers share bytes as a pair.
    """
    problem, program = plan.problem, plan.program
    if problem is None or len(program.arenas) != 1 or _pairs_share(plan):
        return None
    rows = np.flatnonzero(plan.placed)
    names = ids([program.buffers.names[row] for row in rows.tolist()], rows.tolist())
    end = max(len(program.ops), int(problem.stop.max(initial=0)))
    stop = np.where(problem.pinned, end, problem.stop)[rows].tolist()
    lives = {
        name: without(start, until, problem.gaps.get(row, ()))
        for name, row, start, until in zip(names, rows.tolist(), problem.start[rows].tolist(), stop, strict=True)
    }
    unit = common_granule(plan.nbytes[rows], program.buffers.alignment[rows])
    cases = _Split(lives, dict(zip(names, plan.nbytes[rows].tolist(), strict=True)), nodes)
    step, live = cases.fullest()
    peak, bound, proof = plan.peak_bytes, -(-live // unit) * unit, [{"step": step}]
    if bound < peak <= -(-peak // unit) * unit and cases.refute(peak - 1, ()):
        bound, proof = peak, cases.rows
    offsets = dict(zip(names, plan.offset[rows].tolist(), strict=True))
    return {"peak": peak, "bound": bound, "offsets": offsets, "proof": proof}


def _pairs_share(plan: Plan) -> bool:
    """Return whether the plan has a recipient over its donor."""
    assert plan.problem is not None
    donor, recipient = plan.problem.may_share[:, 0], plan.problem.may_share[:, 1]
    both = plan.placed[donor] & plan.placed[recipient] & (plan.problem.stop[donor] > plan.problem.start[recipient])
    apart = plan.offset[donor] + plan.nbytes[donor] <= plan.offset[recipient]
    apart |= plan.offset[recipient] + plan.nbytes[recipient] <= plan.offset[donor]
    return bool((both & ~apart).any())


class _Split:
    """Splitting into cases until none is left, with the rows of a proof."""

    def __init__(self, lives: dict[str, list[tuple[int, int]]], sizes: dict[str, int], nodes: int) -> None:
        self.sizes, self.left = sizes, nodes
        steps = sorted({low for life in lives.values() for low, _ in life})
        self.alive = {step: [n for n in lives if any(low <= step < high for low, high in lives[n])] for step in steps}
        met = {pair for names in self.alive.values() for pair in combinations([n for n in names if sizes[n]], 2)}
        self.pairs = sorted(met, key=lambda pair: (-sizes[pair[0]] - sizes[pair[1]], pair))
        self.rows: list[Row] = []

    def fullest(self) -> tuple[int, int]:
        """Return the step at which most bytes live, and how many."""
        live = {step: sum(self.sizes[name] for name in names) for step, names in self.alive.items()}
        return max(live.items(), key=lambda item: item[1], default=(0, 0))

    def refute(self, limit: int, cases: Cases) -> bool:
        """Add the rows that prove that no plan of these cases has `limit` bytes; False where the
        nodes do not suffice or there may be one.
        """
        self.left -= 1
        under = self._rooms({high: [low for low, other in cases if other == high] for _, high in cases})
        over = self._rooms({low: [high for other, high in cases if other == low] for low, _ in cases})
        found = next(self._too_much(limit, under, over), None)
        if found is not None:
            self.rows.append(found)
            return True
        pair = self._tightest(limit, under, over, {*cases, *((high, low) for low, high in cases)})
        if pair is None or self.left <= 0:
            return False
        self.rows.append({"cases": list(pair)})
        return self.refute(limit, (*cases, pair)) and self.refute(limit, (*cases, pair[::-1]))

    def _rooms(self, ahead: dict[str, list[str]]) -> dict[str, int]:
        """Return the bytes that must lie on one side of each buffer."""
        known: dict[str, int] = {}

        def room(name: str) -> int:
            if name not in known:
                known[name] = CYCLE
                sides = {other: room(other) for other in ahead.get(name, ())}
                known[name] = max((self._stacked(names, sides) for names in self.alive.values()), default=0)
            return known[name]

        return {name: room(name) for name in self.sizes}

    def _stacked(self, names: list[str], sides: dict[str, int]) -> int:
        """Return the most that those of some names that lie on a side need there."""
        most = total = 0
        for name in sorted((name for name in names if name in sides), key=lambda name: -sides[name]):
            total += self.sizes[name]
            most = max(most, sides[name] + total)
        return most

    def _too_much(self, limit: int, under: dict[str, int], over: dict[str, int]) -> Iterator[Row]:
        """Yield the rows about buffers that live at one step and do not fit."""
        for step, names in self.alive.items():
            for low in sorted({under[name] for name in names}):
                total = 0
                for name in sorted((name for name in names if under[name] >= low), key=lambda name: -over[name]):
                    total += self.sizes[name]
                    if low + total + over[name] > limit:
                        of = [n for n in names if under[n] >= low and over[n] >= over[name]]
                        yield {"step": step, "of": of}

    def _tightest(
        self, limit: int, under: dict[str, int], over: dict[str, int], known: set[tuple[str, str]]
    ) -> tuple[str, str] | None:
        """Return the pair to split: the one with the least room in one of its cases, then in both.

        None where all pairs are split.
        """

        def left(pair: tuple[str, str]) -> tuple[int, int]:
            both = limit - self.sizes[pair[0]] - self.sizes[pair[1]]
            one, other = (both - under[low] - over[high] for low, high in (pair, pair[::-1]))
            return min(one, other), max(one, other)

        return min((pair for pair in self.pairs if pair not in known), key=left, default=None)


__all__ = ["certificate"]
