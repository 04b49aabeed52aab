"""Compiled inner loops of the shelf: fitting footprints one after another, and lifting a skyline.

Columns are int64; rows are the solid footprints of one arena (`allocsim.allocators.footprints`). Offsets never go beyond `limit`, so
sums stay below 2^63. Importing this module imports numba: the planners do so when they are called, not when they are listed.

What this module does not see: problems, plans and in which order to place.
"""

import numpy as np

from allocsim.allocators.compiling import compiled
from allocsim.layout import Int64s

FREE = -(1 << 63)  # as in footprints; numba wants a literal of its own module


@compiled()
def fit(  # noqa: PLR0917 - compiled
    order: Int64s,
    start: Int64s,
    stop: Int64s,
    nbytes: Int64s,
    alignment: Int64s,
    fixed: Int64s,
    limit: int,
    best: bool,  # noqa: FBT001
) -> tuple[Int64s, int]:
    """Place rows in `order`, each in the lowest gap (or, if `best`, the smallest) between those placed that live beside it.

    Returns (offsets, row): row is the first that does not fit below `limit`, -1 if all do. Fixed rows are placed first, in any case.
    O(n^2); the rows placed are kept in order of offset.
    """
    count = len(order)
    offset = np.zeros(count, dtype=np.int64)
    line = np.empty(count, dtype=np.int64)
    low = np.empty(count, dtype=np.int64)
    placed = 0
    for turn in range(2):
        for row in order:
            if (fixed[row] != FREE) != (turn == 0):
                continue
            if turn == 0:
                at = fixed[row]
                if at < 0 or at > limit - nbytes[row]:
                    return offset, int(row)
            else:
                born, dead, size, step = start[row], stop[row], nbytes[row], alignment[row]
                floor = np.int64(0)
                at = np.int64(-1)
                least = np.int64(0)
                for place in range(placed):
                    other = line[place]
                    if start[other] >= dead or stop[other] <= born:
                        continue
                    bottom = low[place]
                    if bottom - floor >= size:
                        raised = (floor + step - 1) // step * step
                        room = bottom - raised
                        if room >= size and (at < 0 or room < least):
                            at, least = raised, room
                            if not best or room == size:
                                break
                    top = bottom + nbytes[other]
                    floor = max(floor, top)
                if at < 0:
                    at = (floor + step - 1) // step * step
                    if at > limit - size:
                        return offset, int(row)
            offset[row] = at
            place = np.searchsorted(low[:placed], at, side="right")
            line[place + 1 : placed + 1] = line[place:placed].copy()
            low[place + 1 : placed + 1] = low[place:placed].copy()
            line[place], low[place] = row, at
            placed += 1
    return offset, -1


@compiled()
def skyline(  # noqa: PLR0917 - compiled
    order: Int64s, start: Int64s, stop: Int64s, nbytes: Int64s, alignment: Int64s, fixed: Int64s, limit: int
) -> tuple[Int64s, int]:
    """Place rows on the lowest stretch of a skyline, the first of `order` that fits into its steps; lift the stretch where none does.

    `start` and `stop` are ranks, dense from 0. Returns (offsets, row) as `fit`. O(n * (n + segments)).
    """
    count, width = len(order), stop.max()
    offset = np.zeros(count, dtype=np.int64)
    after = np.empty(count + 1, dtype=np.int64)  # linked list of the rows not placed; entry `count` is its head
    tail = np.int64(count)
    obstacles = order[fixed[order] != FREE]
    for row in obstacles:
        offset[row] = fixed[row]
        if fixed[row] < 0 or fixed[row] > limit - nbytes[row]:
            return offset, int(row)
    for row in order:
        if fixed[row] == FREE:
            after[tail] = row
            tail = row
    after[tail] = -1
    ends = np.zeros(width, dtype=np.int64)  # a stretch is known by its first rank
    height = np.zeros(width, dtype=np.int64)
    before = np.full(width + 1, -1, dtype=np.int64)
    ends[0] = width
    while after[count] >= 0:
        # the lowest stretch, the first of several
        left, here = np.int64(0), np.int64(0)
        while here < width:
            if height[here] < height[left]:
                left = here
            here = ends[here]
        right = ends[left]
        previous, row = np.int64(count), after[count]
        while row >= 0 and (start[row] < left or stop[row] > right):
            previous, row = row, after[row]
        if row < 0:
            lower, upper = before[left], right
            lift = np.int64(-1)
            if lower >= 0:
                lift = height[lower]
            if upper < width and (lift < 0 or height[upper] < lift):
                lift = height[upper]
            height[left] = lift
            if upper < width and height[upper] == lift:
                ends[left] = ends[upper]
                before[ends[left]] = left
            if lower >= 0 and height[lower] == lift:
                ends[lower] = ends[left]
                before[ends[left]] = lower
            continue
        after[previous] = after[row]
        size, step = nbytes[row], alignment[row]
        at = (height[left] + step - 1) // step * step
        moved = len(obstacles) > 0
        while moved:
            moved = False
            for other in obstacles:
                meets = start[other] < stop[row] and stop[other] > start[row]
                if meets and offset[other] < at + size and offset[other] + nbytes[other] > at:
                    at = (offset[other] + nbytes[other] + step - 1) // step * step
                    if at > limit - size:
                        return offset, int(row)
                    moved = True
        if at > limit - size:
            return offset, int(row)
        offset[row] = at
        first, last = start[row], stop[row]
        if last < right:
            ends[last], height[last], before[last] = right, height[left], first
            before[right] = last
        else:
            before[right] = first
        if first > left:
            ends[left], before[first] = first, left
        ends[first], height[first] = last, at + size
    return offset, -1
