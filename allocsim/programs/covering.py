"""Covering arrays: few rows, each with an alternative of every choice, that meet many wishes.

    cover(counts, wishes)      rows such that each wish is met by one, greedy by density
    drawn_rows(counts, total)  random rows to begin with if there are many wishes

Greedy by density (Bryce and Colbourn, "A density-based greedy algorithm for higher strength
covering arrays", 2009): each choice of a row takes the alternative with the largest expected number
of wishes met if the rest were drawn at random, so each row meets no fewer than a random row.

What this module does not see: the meaning of choices and wishes.
"""

from collections.abc import Sequence
from math import ceil, log
from typing import Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model.layout import Int64s

MAX_WISHES: Final = 1 << 28
"""Most combinations of regions to cover: a bound on time, some 580 choices of two in a row."""

FEW: Final = 1 << 14
"""Most combinations that are left to greedy rows; if there are more, rows are drawn first."""

Wishes = list[dict[int, int]]
"""Wishes, each to be met by one row: choice -> bit mask of the alternatives allowed."""


def triples(regions: int) -> int:
    """Return how many combinations of three of so many regions there are; raise ModelError for more
    than `MAX_WISHES`.
    """
    total = regions * (regions + 1) * (regions + 2) // 6
    if total > MAX_WISHES:
        raise ModelError("", f"there are {total} combinations of three regions; at most {MAX_WISHES} are supported")
    return total


def drawn_rows(counts: Sequence[int], total: int) -> Int64s:
    """Return rows drawn at random, so many that about `FEW` of the `total` combinations of three
    stay uncovered if the choices are independent; no rows if `total` is at most `FEW`.
    """
    if total <= FEW:
        return np.empty((0, len(counts)), dtype=np.int64)
    missed = 1 - float(max(counts)) ** -3
    rows = ceil(log(FEW / total) / log(missed)) if missed else 1
    drawn: Int64s = np.random.default_rng(total).integers(0, counts, size=(rows, len(counts)))
    return drawn


def cover(counts: Sequence[int], wishes: Wishes) -> list[list[int]]:
    """Return rows, each with an alternative of every choice, such that some row meets each wish:
    greedy by density.

    Args:
        counts: alternatives of each choice, at least one.
        wishes: choice -> allowed alternatives as a mask that is not empty.

    Each row meets at least as many of the wishes left as a random row does on average, so there are
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
