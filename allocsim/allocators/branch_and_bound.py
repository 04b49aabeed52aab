"""Exact placement by branch and bound: the least peak with a proof, or the best plan so far.

    plan = place(problem)                                  # plan.meta["exact"]["proved"] says whether it is optimal
    plan = place(problem, enough=1 << 20, seconds=60)      # stop at the first plan that fits into a MiB

Each arena is solved for itself. A portfolio of heuristics gives a first peak,
`allocsim.allocators.lower_bounds` a floor. Between the two, the search
(`allocsim.allocators.search_kernel`) is asked whether all fits below a height: first at the floor,
then, while that is open, at heights between it and the best peak so far, by bisection. It is asked
under several strategies (orders of preference and focus) in turn, each with a bounded number of
nodes, eight times as many from round to round: one unlucky choice near the root costs a strategy
everything, and others find the answer at once. For the same reason as much again goes, after each
of them, into short restarts, whose orders are blurred at random (keys times exp(noise * normal),
drawn from the number of the restart, so answers repeat). A search that ends without an answer by
itself proves that nothing fits, and raises the floor by a granule, the common divisor of all that
adds up.

`plan.meta["exact"]`: `proved` (no sound placement of these footprints has a lower peak),
`lower_bound` (bytes), `nodes`. CapacityError says whether the arena is proved too small or the
search was stopped.

Guarantees: sound; at most `reference`; optimal where `proved`. Pairs of `may_share` are taken as
`allocsim.allocators.footprints` chains them; where some pair is on offer, only a peak equal to the
lower bound counts as proved. Gaps are used where the program has no ops.

Deterministic unless `seconds` is given: the default budget is counted in nodes. Exponential in the
worst case, O(items * sections) a node, O(items^2) memory; arenas of more than `MOST_ITEMS`
footprints are left to the heuristics.

Source: Moffitt, "MiniMalloc", ASPLOS 2023, and what `search_kernel` cites; restarts after Gomes,
Selman and Kautz, "Boosting combinatorial search through randomization", AAAI 1998.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from allocsim.allocators import portfolio
from allocsim.allocators.footprints import Footprints, footprints, plan
from allocsim.allocators.lower_bounds import arena_bounds, granule
from allocsim.allocators.search_tables import SearchTables
from allocsim.errors import CapacityError
from allocsim.model import Plan, Problem
from allocsim.model.layout import Int64s

NAME = "exact"

MOST_ITEMS: Final = 1500
DEFAULT_NODES: Final = 4_000_000
FIRST_ROUND: Final = 2_000
GROWTH: Final = 8
"""A round has so many times the nodes of the one before: what most rounds found nothing with is
little of what the last one takes.
"""
SEARCHABLE: Final = 1 << 60
"""Bytes in all above which sums could leave 64 bits; such arenas are left to the heuristics."""

STRATEGIES: Final = (("AZ", 1), ("AZ", 0), ("TWA", 1), ("WAT", 0), ("ZA", 1), ("TWA", 0), ("WAT", 1))
"""(order of preference, focus): the largest of area, steps (W), contention (T: most bytes that live
in its life), size (Z) first.
"""

RESTARTED: Final = (("WAT", 0), ("WTA", 1), ("WAT", 0), ("AZ", 0), ("WAT", 0), ("WAT", 1))
NOISES: Final = (0.2, 0.15)
"""What restarts go through in turn.

A restart that finds anything does so nearly straight away: after a few nodes for each item.
"""

RESTART_NODES: Final = 4
LEAST_NODES: Final = 500
"""What a restart may spend for each item, and at least."""


@dataclass(slots=True, kw_only=True)
class Budget:
    """What the search may still spend, and what it has spent."""

    nodes: int | None
    deadline: float | None
    """Processor time at which to stop."""
    spent: int = 0
    began: float = field(default_factory=time.process_time)

    def grant(self, wanted: int) -> int:
        """Return how many nodes of `wanted` may be spent now."""
        allowed = wanted if self.nodes is None else min(wanted, self.nodes - self.spent)
        if self.deadline is None:
            return max(allowed, 0)
        now = time.process_time()
        rate = self.spent / (now - self.began) if self.spent > FIRST_ROUND and now > self.began else 1e5
        return max(min(allowed, int((self.deadline - now) * rate)), 0)


def place(
    problem: Problem,
    *,
    enough: int | None = None,
    seconds: float | None = None,
    nodes: int | None = None,
    name: str = NAME,
) -> Plan:
    """Place the problem with the least peak that can be found.

    Args:
        problem: what to place.
        enough: bytes an arena may need; the search stops at the first placement that needs no more.
        seconds: processor time after which the best so far is returned.
        nodes: search nodes after which the best so far is returned; `DEFAULT_NODES` if `seconds` is
            not given either.
        name: who asks, for errors and for the plan's `source`.

    Raises:
        CapacityError: an arena is too small, or nothing that fits was found in time; the message
            says which.
    """
    placed = footprints(problem)
    if nodes is None and seconds is None:
        nodes = DEFAULT_NODES
    budget = Budget(nodes=nodes, deadline=None if seconds is None else time.process_time() + seconds)
    bounds = arena_bounds(problem)
    offsets = np.zeros(len(placed), dtype=np.int64)
    proved, floors = True, 0
    for arena, rows in placed.by_arena():
        solved = _Solver(placed, arena, rows, bound=bounds[arena], budget=budget, name=name).solve(enough)
        offsets[rows] = solved.offsets
        floors += solved.floor
        proved &= solved.peak <= solved.floor
    meta = {NAME: {"proved": bool(proved), "lower_bound": floors, "nodes": budget.spent}}
    return plan(name, placed, offsets, meta=meta)


def proof(plan: Plan) -> Mapping[str, Any]:
    """Return what a search said of its plan: `proved`, `lower_bound` and `nodes`.

    Nothing for a plan that none made.
    """
    said = plan.meta.get(NAME)
    return said if isinstance(said, Mapping) else {}


class _Solver:
    """One arena: the best offsets so far, the floor, and the tables of the search."""

    def __init__(self, placed: Footprints, arena: int, rows: Int64s, *, bound: int, budget: Budget, name: str) -> None:
        self.placed, self.arena, self.rows, self.budget, self.name = placed, arena, rows, budget, name
        self.granule = granule(placed, rows) if len(rows) else 1
        self.floor = -(-bound // self.granule) * self.granule
        """No peak is lower, as far as is proved."""
        self.least = self.floor
        """No peak of these footprints is lower, as far as the search proved."""
        self.capacity = placed.limit(arena)
        self.strict = not len(placed.problem.may_share)
        """Whether a search that ends by itself proves a bound of the problem, and not only of the
        chains chosen.
        """
        self.offsets = np.zeros(len(rows), dtype=np.int64)
        self.peak = 0
        self.tables: SearchTables | None = None
        self.restarts = 0

    def solve(self, enough: int | None) -> "_Solver":
        """Search until the best is proved, is good enough or the budget is spent.

        Return this solver.
        """
        if not len(self.rows):
            self.floor = 0
            return self
        if self.floor > self.capacity:
            raise self._refusal(proved=True)
        best = portfolio.first_plans(self.placed, self.arena, self.rows, self.floor)
        if best is not None:
            self._keep(best)
        else:
            self.peak = self.capacity + 1
        total = float(self.placed.nbytes[self.rows].sum(dtype=np.float64))
        if len(self.rows) <= MOST_ITEMS and total <= SEARCHABLE:
            self.tables = SearchTables(self.placed, self.rows)
            self._search(max(enough or 0, self.floor))
        if self.peak > self.capacity:
            raise self._refusal(proved=self.least > self.capacity)
        if self.strict:
            self.floor = min(self.least, self.peak)
        return self

    def _search(self, enough: int) -> None:
        """Lower the peak to `enough` or to what is proved to be the least, or until the budget is
        spent.
        """
        share = FIRST_ROUND
        while self.budget.grant(1):
            goal = max(self.least, enough)
            if self.peak <= goal or self.least > self.capacity:
                return
            height = min(goal, self.capacity)
            if self._ask(height, share, restarts=True) == "open":
                self._bisect(goal, share // 32)
                share *= GROWTH

    def _bisect(self, low: int, share: int) -> None:
        """Lower the peak by bisection between `low`, which is open, and what was found, as long as
        that is quick.
        """
        while self.budget.grant(1):
            ceiling = min(self.peak, self.capacity + 1)
            middle = (low + ceiling) // 2 // self.granule * self.granule
            if middle <= low or ceiling - low <= ceiling >> 9:
                return
            if self._ask(middle, share) != "found":
                low = middle

    def _ask(self, height: int, share: int, *, restarts: bool = False) -> str:
        """Return whether all fits below `height`: `found` (and kept), `none` (and noted as proved)
        or `open`; each strategy has `share` nodes, and with `restarts` as many again for these.
        """
        for order, focus in STRATEGIES:
            verdict = self._look(height, share, order, focus)
            if verdict == "open" and restarts:
                verdict = self._restart(height, share)
            if verdict != "open":
                return verdict
        return "open"

    def _restart(self, height: int, share: int) -> str:
        """As `_ask`, by short searches under blurred orders that spend `share` nodes in all."""
        nodes = max(RESTART_NODES * len(self.rows), LEAST_NODES)
        for _ in range(share // nodes):
            order, focus = RESTARTED[self.restarts % len(RESTARTED)]
            noise = NOISES[self.restarts // len(RESTARTED) % len(NOISES)]
            self.restarts += 1
            verdict = self._look(height, nodes, order, focus, noise=noise)
            if verdict != "open":
                return verdict
        return "open"

    def _look(self, height: int, share: int, order: str, focus: int, *, noise: float = 0.0) -> str:
        """Search once with at most `share` nodes, and keep what comes of it."""
        nodes = self.budget.grant(share)
        if not nodes:
            return "open"
        assert self.tables is not None
        rank = self.tables.blurred(order, noise, self.restarts) if noise else self.tables.rank(order)
        verdict, offsets, used = self.tables.search(rank, focus, height, nodes)
        self.budget.spent += used
        if verdict == "found":
            self._keep(offsets)
        if verdict == "none":
            self.least = (height // self.granule + 1) * self.granule
        return verdict

    def _keep(self, offsets: Int64s) -> None:
        self.offsets = offsets
        self.peak = int((offsets + self.placed.nbytes[self.rows]).max())

    def _refusal(self, *, proved: bool) -> CapacityError:
        arena = self.placed.problem.program.arenas[self.arena]
        why = f"at least {self.floor} are needed" if self.floor > self.capacity else "no plan fits"
        verdict = f"{why}, proved" if proved else f"none found within {self.budget.spent} nodes"
        return CapacityError(f"allocator {self.name!r}: arena {arena.name!r} has {self.capacity} bytes; {verdict}")
