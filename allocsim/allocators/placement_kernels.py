"""Compiled inner loops of the shelf: fitting footprints one after another, and lifting a skyline.

Columns are int64; rows are the solid footprints of one arena (`allocsim.allocators.footprints`).
Offsets never go beyond `limit`, so sums stay below 2^63. Importing this module imports numba: the
planners do so when they are called, not when they are listed.

What this module does not see: problems, plans and in which order to place.
"""

from typing import Any

import numpy as np

from allocsim.allocators.compiling import compiled
from allocsim.allocators.footprints import FootprintColumns
from allocsim.model.layout import Int64s

FREE = -(1 << 63)  # as in footprints; numba wants a literal of its own module
NEVER = (1 << 63) - 1
"""In a tree of minima: nothing there."""


WINDOW = 512
"""Starts in half a window of the smallest kind, at least; the next kind is twice as large."""

HALF, MOST = 32, (1 << 31) - 1
"""Of an entry's life: one more than its first start is in the high bits, `MOST` less its past one
in the low ones, so that what it meets bounds both from above; 0 meets all.
"""

SIGNS = -(1 << 63) | 1 << 31
"""Above the bounds that a life asked sets: each outlives the difference to a life that it meets."""

LATE = 96
"""Entries that lie behind those of a window until they are put among them."""

ROOM = 48
"""Entries of windows for each row, at most; windows are made larger until that holds."""


@compiled()
def _kinds(first: Int64s, past: Int64s, half: int) -> tuple[Int64s, Int64s]:
    """Return the half sizes of the kinds of windows, and where the windows of each begin."""
    count = len(first)
    longest = np.int64(1)
    for row in range(count):
        longest = max(longest, past[row] - first[row])
    kinds = 1
    while half << (kinds - 1) < longest:
        kinds += 1
    halves = np.empty(kinds, dtype=np.int64)
    begins = np.zeros(kinds + 1, dtype=np.int64)
    for kind in range(kinds):
        halves[kind] = half << kind
        begins[kind + 1] = begins[kind] + count // halves[kind] + 2
    return halves, begins


@compiled()
def _kind(halves: Int64s, length: Any) -> int:
    """Return the smallest kind of window that holds every life of a length."""
    kind = 0
    while halves[kind] < length:
        kind += 1
    return kind


@compiled()
def _rooms(first: Int64s, past: Int64s, halves: Int64s, begins: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return where the entries of each window begin: of a window that some row asks, one for each
    row that meets one of those; how many rows ask it; and of these the most starts behind a first
    one and behind a past one, and before a first one and before a past one.
    """
    count, asked = len(first), np.zeros(begins[-1], dtype=np.int64)
    reach = np.zeros((begins[-1], 4), dtype=np.int64)
    for row in range(len(first)):
        kind = _kind(halves, past[row] - first[row])
        window = begins[kind] + first[row] // halves[kind]
        asked[window] += 1
        reach[window, 0] = max(reach[window, 0], count - first[row])
        reach[window, 1] = max(reach[window, 1], count - past[row])
        reach[window, 2] = max(reach[window, 2], first[row])
        reach[window, 3] = max(reach[window, 3], past[row])
    room = np.zeros(begins[-1] + 1, dtype=np.int64)
    for row in range(len(first)):
        for kind in range(len(halves)):
            half = halves[kind]
            for place in range(max(first[row] // half - 1, 0), (past[row] - 1) // half + 1):
                window = begins[kind] + place
                if first[row] < reach[window, 3] and past[row] > count - reach[window, 0]:
                    room[window + 1] += 1
    for window in range(begins[-1]):
        room[window + 1] += room[window]
    return room, asked, reach


@compiled(allocates=False)
def _sort(rows: Int64s, first: Any, stop: Any) -> None:
    """Sort the rows [first, stop), of three, by their first column, as Shell does: numba takes
    seconds to compile numpy's sorts. O(n^1.5), O(n log n) where they are in order.
    """
    gap = 1
    while 3 * gap < stop - first:
        gap = 3 * gap + 1
    while gap:
        for row in range(first + gap, stop):
            place, key, second, third = row, rows[row, 0], rows[row, 1], rows[row, 2]
            while place - gap >= first and rows[place - gap, 0] > key:
                for column in range(3):
                    rows[place, column] = rows[place - gap, column]
                place -= gap
            rows[place, 0], rows[place, 1], rows[place, 2] = key, second, third
        gap //= 3


@compiled(allocates=False)
def _before(rows: Int64s, number: Any) -> int:
    """Return how many rows, in order of their first column, are less than a number."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if rows[middle, 0] < number:
            low = middle + 1
        else:
            high = middle
    return low


@compiled()
def _in_order(entries: Int64s, begin: Any, done: Any, end: Any) -> None:
    """Put the entries from `done` on among those before it, which are in order of offset."""
    _sort(entries, done, end)
    late = entries[done:end].copy()
    here, place = done - 1, end - 1
    for row in range(end - done - 1, -1, -1):
        while here >= begin and entries[here, 0] > late[row, 0]:
            for column in range(3):
                entries[place, column] = entries[here, column]
            here -= 1
            place -= 1
        for column in range(3):
            entries[place, column] = late[row, column]
        place -= 1


@compiled(allocates=False)
def _joined(entries: Int64s, begin: Any, end: Any) -> int:
    """Make one of neighbours in order that meet all that ask and leave no gap; return where the
    entries then end.
    """
    last = begin
    for entry in range(begin + 1, end):
        if entries[last, 2] | entries[entry, 2] or entries[entry, 0] > entries[last, 1]:
            last += 1
            for column in range(3):
                entries[last, column] = entries[entry, column]
        else:
            entries[last, 1] = max(entries[last, 1], entries[entry, 1])
    return int(last + 1)


@compiled(allocates=False)
def _meeting(entries: Int64s, late: Any, end: Any, asked: Any, met: Int64s) -> None:
    """Copy the bounds of the entries from `late` on that a life `asked` meets into `met`, `NEVER`
    behind them.
    """
    count = np.int64(0)
    for entry in range(late, end):
        met[count, 0], met[count, 1] = entries[entry, 0], entries[entry, 1]
        count -= _lives(entries[entry, 2], asked)
    met[count, 0] = NEVER


@compiled()
def _lives(life: Any, asked: Any) -> Any:
    """Return -1, all bits, for a life that meets the one asked, 0 for another: which it is is as
    good as random, so that no branch is to be taken on it, and a comparison may become one.
    """
    both = asked - life
    return (both & both << HALF) >> 63


@compiled()
def _narrower(at: Any, least: Any, floor: Any, bottom: Any, size: Any, step: Any) -> tuple[Any, Any]:  # noqa: PLR0917
    """Return the gap from `floor` to `bottom` (its first multiple of `step`, and its bytes from
    there) if it holds `size` bytes and is smaller than the one known.
    """
    if bottom - floor >= size:  # rarely
        raised = (floor + step - 1) // step * step
        if size <= bottom - raised < least:
            return raised, bottom - raised
    return at, least


@compiled()
def _gap(entries: Int64s, part: Any, asked: Any, size: Any, step: Any, best: bool, behind: Int64s) -> int:  # noqa: PLR0917, FBT001
    """Return the offset of the lowest gap (or, if `best`, the smallest) that holds `size` bytes at
    a multiple of `step` between the entries that a life `asked` meets; the top of them all where
    none does; `size` is not 0. O(entries).

    `part` is where the entries begin, where the late ones do, and their end; both are in order of
    offset. `behind` is room for the late ones.
    """
    floor, at, least = np.int64(0), np.int64(-1), NEVER
    enough = size if best else NEVER - 1
    here, tail = np.uint64(part[0]), np.uint64(part[1])  # else each index is asked whether it counts from the end
    _meeting(entries, part[1], part[2], asked, behind)
    for there in range(part[2] - part[1] + 1):
        until = behind[there, 0]
        while here < tail:
            bottom = entries[here, 0]
            if bottom > until:
                break
            lives = _lives(entries[here, 2], asked)  # of what lives at another time, both bounds are 0
            free = (bottom & lives) - floor
            if free >= size and free - least < step:
                at, least = _narrower(at, least, floor, bottom, size, step)
                if least <= enough:
                    return int(at)
            floor = max(floor, entries[here, 1] & lives)
            here += np.uint64(1)
        if until == NEVER:
            break
        at, least = _narrower(at, least, floor, until, size, step)
        if least <= enough:
            return int(at)
        floor = max(floor, behind[there, 1])
    return int(at if at >= 0 else (floor + step - 1) // step * step)


@compiled()
def fit(order: Int64s, placed: FootprintColumns, limit: int, best: bool, entries: Int64s) -> tuple[Int64s, int]:  # noqa: FBT001
    """Place rows in `order`, each in the lowest gap (or, if `best`, the smallest) between those
    placed that live beside it.

    Returns (offsets, row): row is the first that does not fit below `limit`, -1 if all do. Fixed
    rows are placed first, in any case.

    Time is counted in starts: rows live beside each other where these ranges meet. Windows of it,
    of several sizes, keep the rows placed that meet them, in order of offset; a row asks the
    smallest window that holds its life. They keep them in `entries`, a bottom, a top and a life in
    each row of it: what is there does not matter, `ROOM` for each of those to place are enough.

    O(n) windows' worth of rows, a few times those that live beside it;
    O(n^2) where most rows live all the time.
    """
    start, stop, nbytes, alignment, fixed = placed
    count = len(order)
    offset = np.zeros(count, dtype=np.int64)
    if count == 0:
        return offset, -1
    born, first, past = np.empty((count, 3), dtype=np.int64), np.empty_like(start), np.empty_like(start)
    for row in range(count):
        born[row, 0] = start[row]
    _sort(born, 0, count)
    for row in range(count):
        first[row], past[row] = _before(born, start[row]), _before(born, stop[row])
    half = WINDOW
    halves, begins = _kinds(first, past, half)
    # rows that live long meet many small windows
    while half < count:
        meets = 0
        for row in range(count):
            for kind in range(len(halves)):
                meets += (past[row] - 1) // halves[kind] - first[row] // halves[kind] + 2
        if meets <= ROOM * count:
            break
        half *= 4
        halves, begins = _kinds(first, past, half)
    room, asking, reach = _rooms(first, past, halves, begins)
    behind = np.empty((count + 1, 2), dtype=np.int64)
    # where of each window the late entries begin, those that are in no order, and its room
    late, done, filled = room[:-1].copy(), room[:-1].copy(), room[:-1].copy()
    for turn in range(2):
        for row in order:
            if (fixed[row] != FREE) != (turn == 0):
                continue
            size = nbytes[row]
            if turn == 0:
                at = fixed[row]
                if at < 0 or at > limit - size:
                    return offset, int(row)
            else:
                kind = _kind(halves, past[row] - first[row])
                window = begins[kind] + first[row] // halves[kind]
                begin, end = room[window], filled[window]
                asking[window] -= 1
                if done[window] < end:
                    _in_order(entries, late[window], done[window], end)
                    done[window] = end
                if end - late[window] > LATE + (late[window] - begin) // 32:
                    _in_order(entries, begin, late[window], end)
                    end = _joined(entries, begin, end)
                    late[window] = done[window] = filled[window] = end
                part = begin, late[window], end
                asked = past[row] << HALF | MOST - 1 - first[row] | SIGNS
                at = _gap(entries, part, asked, size, alignment[row], best, behind)
                if at > limit - size:
                    return offset, int(row)
            offset[row] = at
            for kind in range(len(halves)):
                half = halves[kind]
                for place in range(max(first[row] // half - 1, 0), (past[row] - 1) // half + 1):
                    window = begins[kind] + place
                    meets = first[row] < reach[window, 3] and past[row] > count - reach[window, 0]
                    if asking[window] > 0 and meets:  # rows that are still to come
                        entry = filled[window]
                        entries[entry, 0], entries[entry, 1] = at, at + size
                        whole = first[row] < count - reach[window, 1] and past[row] > reach[window, 2]
                        entries[entry, 2] = 0 if whole else (first[row] + 1) << HALF | MOST - past[row]
                        filled[window] += 1
    return offset, -1


@compiled()
def sweep(order: Int64s, placed: FootprintColumns, limit: int, best: bool) -> tuple[Int64s, int]:  # noqa: FBT001
    """Place rows in `order`, which is one by `start`, as `fit` does, where none is fixed.

    What lives beside a row and is placed lives when the row begins, so only that is kept, in order
    of offset. O(n) times what lives at once.
    """
    start, stop, nbytes, alignment, _ = placed
    offset = np.zeros(len(order), dtype=np.int64)
    bottoms, tops, ends = np.empty_like(start), np.empty_like(start), np.empty_like(start)
    alive = 0
    for row in order:
        now, size, step = start[row], nbytes[row], alignment[row]
        floor, at, least, kept, place = np.int64(0), np.int64(-1), NEVER, 0, 0
        for entry in range(alive):
            if ends[entry] <= now:
                continue
            bottom, top = bottoms[entry], tops[entry]
            bottoms[kept], tops[kept], ends[kept] = bottom, top, ends[entry]
            if bottom - floor >= size and (best or at < 0):
                raised = (floor + step - 1) // step * step
                gap = bottom - raised
                if size <= gap < least:
                    at, least, place = raised, gap, kept
            floor = max(floor, top)
            kept += 1
        if at < 0:
            at, place = (floor + step - 1) // step * step, kept
        if at > limit - size:
            return offset, int(row)
        for entry in range(kept, place, -1):
            bottoms[entry], tops[entry], ends[entry] = bottoms[entry - 1], tops[entry - 1], ends[entry - 1]
        bottoms[place], tops[place], ends[place] = at, at + size, stop[row]
        offset[row], alive = at, kept + 1
    return offset, -1


@compiled()
def fit_each(  # noqa: PLR0917 - compiled
    order: Int64s,
    ends: Int64s,
    placed: FootprintColumns,
    limits: Int64s,
    best: bool,  # noqa: FBT001
    entries: Int64s,
) -> tuple[Int64s, int]:
    """Place the rows of several arenas, those of arena k from `ends[k]` to `ends[k + 1]` in their
    `order`: by `sweep` where that is one of birth and none is fixed, else by `fit`, in the same
    `entries`.

    Returns (offsets, row) as these: row is the first that does not fit in the first arena with one.
    """
    start, stop, nbytes, alignment, fixed = placed
    offsets = np.zeros(len(order), dtype=np.int64)
    for arena in range(len(limits)):
        low, high = ends[arena], ends[arena + 1]
        mine = FootprintColumns(start[low:high], stop[low:high], nbytes[low:high], alignment[low:high], fixed[low:high])
        turns = order[low:high]
        swept = True
        for turn in range(high - low):
            row = turns[turn]
            swept &= mine.fixed[row] == FREE and mine.start[row] < mine.stop[row]
            swept &= turn == 0 or mine.start[turns[turn - 1]] <= mine.start[row]
        if swept:
            found, row = sweep(turns, mine, limits[arena], best)
        else:
            found, row = fit(turns, mine, limits[arena], best, entries)
        if row >= 0:
            return offsets, low + row
        for turn in range(high - low):
            offsets[low + turn] = found[turn]
    return offsets, -1


@compiled()
def _raise_leaf(tree: Int64s, leaves: int, place: Any, amount: Any) -> None:
    """Set one leaf of a tree of minima (`leaves` of them, from entry `leaves` on) and what depends
    on it. O(log leaves).
    """
    node = leaves + place
    tree[node] = amount
    node >>= 1
    while node:
        tree[node] = min(tree[2 * node], tree[2 * node + 1])
        node >>= 1


@compiled()
def _wanted(ends: Int64s, places: Int64s, leaves: int, low: Any, high: Any, right: Any) -> int:  # noqa: PLR0917 - compiled
    """Return the leaf in [low, high) of the least place among those whose end is at most `right`.

    -1 for none.

    Both trees hold minima. O(log leaves) where most of what lies in the range ends in time, O(high
    - low) at worst.
    """
    best, least = np.int64(-1), NEVER
    stack = np.empty(80, dtype=np.int64)
    spans = np.empty((80, 2), dtype=np.int64)
    stack[0], spans[0, 0], spans[0, 1], top = 1, 0, leaves, 1
    while top:
        top -= 1
        node, first, last = stack[top], spans[top, 0], spans[top, 1]
        if first >= high or last <= low or ends[node] > right or places[node] >= least:
            continue
        if node >= leaves:
            best, least = node - leaves, places[node]
            continue
        middle = (first + last) // 2
        near = 0 if places[2 * node] < places[2 * node + 1] else 1  # looked at first, so pushed last
        for side in (1 - near, near):
            stack[top] = 2 * node + side
            spans[top, 0], spans[top, 1] = (middle, last) if side else (first, middle)
            top += 1
    return int(best)


@compiled()
def skyline(order: Int64s, by_start: Int64s, placed: FootprintColumns, limit: int) -> tuple[Int64s, int]:
    """Place rows on the lowest stretch of a skyline, the first of `order` that fits into its steps.

    Lift the stretch where none does.

    `start` and `stop` are ranks, dense from 0; `by_start` is the rows by `start`. Returns (offsets,
    row) as `fit`. A stretch and a row are found in trees of minima: O(log n) for the stretch, as
    `_wanted` for the row.
    """
    start, stop, nbytes, alignment, fixed = placed
    count, width = len(order), np.int64(0)
    offset = np.zeros(count, dtype=np.int64)
    obstacles = np.empty(count, dtype=np.int64)
    walls = 0
    for row in order:
        width = max(width, stop[row])
        if fixed[row] != FREE:
            obstacles[walls] = row
            walls += 1
    for row in obstacles[:walls]:
        offset[row] = fixed[row]
        if fixed[row] < 0 or fixed[row] > limit - nbytes[row]:
            return offset, int(row)
    # rows by start are the leaves of two trees: where they stop, and their places in the order
    leaves = 1
    while leaves < count:
        leaves *= 2
    since = np.zeros(width + 2, dtype=np.int64)
    for row in range(count):
        since[start[row] + 1] += 1
    for rank in range(width + 1):
        since[rank + 1] += since[rank]  # rows that start before a rank
    place_of = np.empty(count, dtype=np.int64)
    for place in range(count):
        place_of[order[place]] = place
    stops, places = np.full(2 * leaves, NEVER, dtype=np.int64), np.full(2 * leaves, NEVER, dtype=np.int64)
    waiting = 0
    for leaf in range(count):
        row = by_start[leaf]
        if fixed[row] == FREE:
            stops[leaves + leaf], places[leaves + leaf] = stop[row], place_of[row]
            waiting += 1
    for node in range(leaves - 1, 0, -1):
        stops[node] = min(stops[2 * node], stops[2 * node + 1])
        places[node] = min(places[2 * node], places[2 * node + 1])
    # stretches are known by their first ranks, the leaves of a tree of heights
    ranks = 1
    while ranks < width:
        ranks *= 2
    heights = np.full(2 * ranks, NEVER, dtype=np.int64)
    ends = np.zeros(width, dtype=np.int64)
    before = np.full(width + 1, -1, dtype=np.int64)
    ends[0] = width
    _raise_leaf(heights, ranks, 0, 0)
    while waiting:
        # the lowest stretch, the first of several
        left = 1
        while left < ranks:
            left = 2 * left if heights[2 * left] <= heights[2 * left + 1] else 2 * left + 1
        left -= ranks
        right, height = ends[left], heights[ranks + left]
        leaf = _wanted(stops, places, leaves, since[left], since[right], right)
        if leaf < 0:
            lower, upper = before[left], right
            lift: Any = np.int64(-1)
            if lower >= 0:
                lift = heights[ranks + lower]
            if upper < width and (lift < 0 or heights[ranks + upper] < lift):
                lift = heights[ranks + upper]
            if upper < width and heights[ranks + upper] == lift:
                ends[left] = ends[upper]
                before[ends[left]] = left
                _raise_leaf(heights, ranks, upper, NEVER)
            if lower >= 0 and heights[ranks + lower] == lift:
                ends[lower] = ends[left]
                before[ends[left]] = lower
                lift = NEVER
            _raise_leaf(heights, ranks, left, lift)
            continue
        row = by_start[leaf]
        _raise_leaf(stops, leaves, leaf, NEVER)
        _raise_leaf(places, leaves, leaf, NEVER)
        waiting -= 1
        size, step = nbytes[row], alignment[row]
        at = (height + step - 1) // step * step
        moved = walls > 0
        while moved:
            moved = False
            for other in obstacles[:walls]:
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
            ends[last], before[last] = right, first
            before[right] = last
            _raise_leaf(heights, ranks, last, height)
        else:
            before[right] = first
        if first > left:
            ends[left], before[first] = first, left
        ends[first] = last
        _raise_leaf(heights, ranks, first, at + size)
    return offset, -1
