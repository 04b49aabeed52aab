"""Covering arrays: few rows, an alternative of each choice, that meet many wishes.

    cover(counts, wishes)      a row for each wish, greedy by density
    drawn_rows(counts, total)  rows drawn first where there are many wishes

Greedy by density (Bryce and Colbourn, "A density-based greedy algorithm for higher strength
covering arrays", 2009): each choice of a row takes the alternative that leaves the most to be
covered by chance alone, so each row covers no less than a random one.

What this module does not see: what choices and wishes stand for.
"""

from collections.abc import Sequence
from math import ceil, log
from typing import Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model.layout import Int64s

MAX_WISHES: Final = 1 << 28
"""Combinations of regions that are covered: a bound on time, some 580 choices of two in a row."""

FEW: Final = 1 << 14
"""Combinations that are left for greedy rows: beyond, rows are drawn first."""

Wishes = list[dict[int, int]]
"""What has to be in one path each: choice -> the alternatives allowed, as a mask."""


def drawn_rows(counts: Sequence[int], total: int) -> Int64s:
    """Return rows drawn at random, as many as leave `FEW` of all combinations of three, were the
    choices side by side; none where there are no more.
    """
    if total > MAX_WISHES:
        raise ModelError("", f"there are {total} combinations of three regions; at most {MAX_WISHES} are supported")
    if total <= FEW:
        return np.empty((0, len(counts)), dtype=np.int64)
    missed = 1 - float(max(counts)) ** -3
    rows = ceil(log(FEW / total) / log(missed)) if missed else 1
    drawn: Int64s = np.random.default_rng(total).integers(0, counts, size=(rows, len(counts)))
    return drawn


def cover(counts: Sequence[int], wishes: Wishes) -> list[list[int]]:
    """Return rows, an alternative of each choice, such that each wish is met by one: greedy by
    density.

    Args:
        counts: alternatives of each choice, at least one.
        wishes: choice -> allowed alternatives as a mask that is not empty.

    Each row meets at least as many of the wishes left as a random one does on average, so there are
    O(log(wishes)) rows for wishes of bounded size. O(rows x size of the wishes).
    """
    if not wishes:
        return [[0] * len(counts)]
    chosen = np.array([choice for wish in wishes for choice in wish], dtype=np.int64)
    masks = [mask for wish in wishes for mask in wish.values()]
    owner = np.repeat(np.arange(len(wishes)), [len(wish) for wish in wishes])
    allowed = np.array([mask.bit_count() for mask in masks], dtype=np.float64)
    chance = np.ones(len(wishes))
    np.multiply.at(chance, owner, allowed / np.array(counts, dtype=np.float64)[chosen])
    of_choice = [np.flatnonzero(chosen == choice) for choice in range(len(counts))]
    fits = [
        [np.array([masks[row] >> alternative & 1 for row in rows.tolist()], dtype=bool) for alternative in range(count)]
        for rows, count in zip(of_choice, counts, strict=True)
    ]
    left = np.ones(len(wishes), dtype=bool)
    found: list[list[int]] = []
    while left.any():
        weight = np.where(left, chance, 0.0)
        row = []
        for choice, rows in enumerate(of_choice):
            wish, certain = owner[rows], weight[owner[rows]] / allowed[rows]
            gains = [float(certain[fit].sum()) for fit in fits[choice]]
            row.append(int(np.argmax(gains)))
            fit = fits[choice][row[-1]]
            weight[wish[~fit]] = 0.0
            weight[wish[fit]] *= counts[choice] / allowed[rows[fit]]
        found.append(row)
        met = np.ones(len(wishes), dtype=bool)
        for choice, alternative in enumerate(found[-1]):
            met[owner[of_choice[choice]][~fits[choice][alternative]]] = False
        left &= ~met
    return found
