"""The tables that the search of `exact` works on, from the footprints of one arena.

Free footprints are *items*, in order of the first section of their lives; fixed ones are *walls*. A
section is a stretch of steps in which no life begins or ends. Orders of preference are made here
too, from keys of the items: area (A), steps (W), size (Z), contention (T: most bytes that live in
its life).

O(items^2 + items * sections) memory and time. What this module does not see: heights and budgets
(`branch_and_bound`).
"""

from typing import Any

import numpy as np

from allocsim.allocators.footprints import FREE, Footprints
from allocsim.allocators.lower_bounds import without
from allocsim.model.layout import Int64s


class SearchTables:
    """The columns the kernel works on: the free rows of one arena as items, the fixed ones as
    walls.
    """

    def __init__(self, placed: Footprints, rows: Int64s) -> None:
        self.rows = rows
        self.fixed = placed.fixed[rows] != FREE
        self.fixed_offsets = placed.fixed[rows]
        lives = [_lives(placed, row) for row in rows.tolist()]
        marks = np.unique([step for life in lives for stretch in life for step in stretch])
        sections = [[np.searchsorted(marks, stretch).tolist() for stretch in life] for life in lives]
        items = [index for index, fixed in enumerate(self.fixed.tolist()) if not fixed]
        items.sort(key=lambda index: sections[index][0][0])
        self.items = np.array(items, dtype=np.int64)
        self.size = placed.nbytes[rows][items]
        self.steps = np.array([sum(stop - start for start, stop in lives[index]) for index in items], dtype=np.float64)
        spans = [sections[index] for index in items]
        first = np.array([span[0][0] for span in spans], dtype=np.int64)
        last = np.array([span[-1][1] for span in spans], dtype=np.int64)
        lived = np.zeros((len(rows), len(marks) - 1), dtype=np.bool_)
        for index, span in enumerate(sections):
            for start, stop in span:
                lived[index, start:stop] = True
        ours = lived[items].astype(np.float32)
        meet = ours @ ours.T > 0
        np.fill_diagonal(meet, False)
        load = placed.nbytes[rows][items].astype(np.float64) @ ours
        contention = [load[begin:end].max() for begin, end in zip(first, last, strict=True)]
        self.keys = {"W": self.steps, "A": self.steps * self.size, "Z": self.size, "T": np.array(contention)}
        self.orders: dict[str, Int64s] = {}
        walls, wall_starts = self._wall(placed, rows, lived, items)
        width = len(marks) - 1
        pieces = np.array([piece for span in spans for piece in span], dtype=np.int64).reshape(-1, 2)
        # the tables of the kernel, row by row as it names them
        self.bounds = np.zeros((4, len(items)), dtype=np.int64)
        self.shape = np.zeros((8, len(items) + 1), dtype=np.int64)
        self.shape[:4, :-1] = first, last, self.size, placed.alignment[rows][items]
        self.shape[5:] = _starts([len(span) for span in spans]), _starts(meet.sum(axis=1)), wall_starts
        self.sections = np.zeros((5, width + 1), dtype=np.int64)
        self.sections[4] = np.searchsorted(first, np.arange(width + 1))
        self.lists = np.nonzero(meet)[1].copy(), pieces, walls
        self.trails: tuple[Int64s, Int64s] | None = None

    def _wall(self, placed: Footprints, rows: Int64s, lived: Any, items: list[int]) -> tuple[Int64s, list[int]]:
        """Return the fixed bytes each item must keep clear of, by their bottoms, and where those of
        each item begin.
        """
        fixed = sorted(np.flatnonzero(self.fixed).tolist(), key=lambda index: int(self.fixed_offsets[index]))
        walls: list[tuple[int, int]] = []
        starts = [0]
        for item in items:
            meeting = (index for index in fixed if (lived[item] & lived[index]).any())
            walls += (
                (int(self.fixed_offsets[i]), int(self.fixed_offsets[i] + placed.nbytes[rows[i]])) for i in meeting
            )
            starts.append(len(walls))
        return np.array(walls, dtype=np.int64).reshape(-1, 2), starts

    def rank(self, order: str) -> Int64s:
        """Return the place of each item in an order of preference."""
        if order not in self.orders:
            self.orders[order] = _places([-self.keys[letter] for letter in reversed(order)])
        return self.orders[order]

    def blurred(self, order: str, noise: float, seed: int) -> Int64s:
        """Return the place of each item in an order of preference whose keys are off by a factor of
        about `1 + noise`.
        """
        random = np.random.default_rng(seed)
        return _places(
            [-self.keys[letter] * np.exp(noise * random.standard_normal(len(self.size))) for letter in reversed(order)]
        )

    def search(self, rank: Int64s, focus: int, height: int, nodes: int) -> tuple[str, Int64s, int]:
        """Return (`found`, `none` or `open`; offsets of all rows; nodes used)."""
        from allocsim.allocators import search_kernel as kernel  # noqa: PLC0415 - numba

        if self.trails is None:
            self.trails = kernel.trails(len(self.items), self.sections.shape[1] - 1)
        self.shape[kernel.RANK, :-1] = rank
        control = np.array([0, nodes, focus, height, 0, 0, 0], dtype=np.int64)
        answer = np.zeros(len(self.items), dtype=np.int64)
        down = np.empty(len(self.items), dtype=np.int64)
        tables = self.bounds, self.shape, *self.lists, self.sections, down, *self.trails, control, answer
        found = kernel.solve(kernel.SearchColumns(*tables))
        offsets = self.fixed_offsets.copy()
        offsets[self.items] = answer
        verdict = {kernel.FOUND: "found", kernel.FAILED: "none", kernel.STOPPED: "open"}[found]
        return verdict, offsets, min(int(control[kernel.NODES]), nodes)


def _lives(placed: Footprints, row: int) -> list[tuple[int, int]]:
    """Return the stretches of steps in which a footprint needs its bytes.

    All of its life if it were none.
    """
    start, stop = int(placed.start[row]), int(placed.stop[row])
    return without(start, stop, placed.gaps.get(row, ())) or [(start, stop)]


def _places(keys: list[Any]) -> Int64s:
    """Return the place of each item once all are sorted by the keys, the last the first to
    count.
    """
    sorted_items = np.lexsort(keys)
    places = np.empty(len(sorted_items), dtype=np.int64)
    places[sorted_items] = np.arange(len(sorted_items))
    return places


def _starts(counts: Any) -> Int64s:
    """Return where each of several rows of these lengths begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
