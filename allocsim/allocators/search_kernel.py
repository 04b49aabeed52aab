"""The compiled search of `exact`: does everything fit below a given height?

The search decides; `allocsim.allocators.branch_and_bound` asks it about one height after another.

State
-----
Each item (footprint) not placed yet has a lower bound `off` of its offset, the offset it would take
if nothing else were placed; `base`, the least offset that rests on what is placed; and `void`, an
offset at which it was refused (-1 for none). What is placed has an `off` of -1. Every solution can
be lowered until each item rests on the floor, on a fixed item or on another item; only such
solutions are looked for.

Branching
---------
An item none of those it meets is bounded below (*lowest*) is chosen. Nothing can come under it any
more, so either
* it lies at `off`, and all it meets lie above it; or
* it rests on one that is not placed, hence `off` is at least the least top of those it meets.
Where `off > base` the first is no solution that cannot be lowered, and the second follows without
branching.

Pruning
-------
* *Sections*. A section is a stretch of steps in which no life begins or ends. Items of one section
  are stacked, so for every height v: v + (bytes of those bounded by v or more) must not exceed the
  limit: the bound of one machine with release dates, exact in O(items).
* *Dominance*. An item refused at `void` must be kept from there by something that lies in those
  bytes. As soon as nothing can any more, the item could be lowered to there, and the branch is
  given up.
* *Independence*. Where no life of those left spans the boundary between two sections, the parts are
  searched one by one; one that fails fails them all.
* *No hat*. If placing an item that meets nobody left does not lead to a solution, nothing else
  about it can.

Focus. Which lowest item is chosen decides about speed alone: near the section that is closest to
the limit (`focus` 0), or the lowest of all (1); among equals by `rank`.

Placing one item moves few others, so nothing is copied or summed anew that did not change: what a
level of the search changes goes on a trail and is taken back from there, only sections round items
that moved are summed again, and items are sorted from the order they were in, which is nearly
right.

The ideas of canonical solutions, section inference, dominance and decomposition are those of
Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning",
ASPLOS 2023; branching on the lower bound (place or delay) is that of set-times search in scheduling
(Le Pape et al., 1994), and the release-date bound that of Carlier, 1982.

Importing this module imports numba and compiles it.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import int64, types

from allocsim.allocators.compiling import compiled
from allocsim.model.layout import Int64s

FAILED, FOUND, STOPPED = 0, 1, 2
NODES, MOST, FOCUS, LIMIT, ITEMS, SECTIONS, LEFT = range(7)
"""Entries of `control`: nodes so far, nodes allowed, focus, height allowed.

How long the two trails are; how many items are not placed.
"""

OFF, BASE, VOID, LEVEL = range(4)
"""Rows of `items`, by item; LEVEL is the level of the search that has it on the trail."""

FIRST, LAST, SIZE, ALIGNMENT, RANK, PIECES, NEAR, WALLS = range(8)
"""Rows of `shape`, by item: the sections [first, last) of its life, and where its rows of `pieces`,
`near` and `walls` begin.
"""

TALL, LOAD, KEPT, ACROSS, BORN = range(5)
"""Rows of `sections`: the height its items need at least.

Their bytes; as LEVEL; how many items not placed span the boundary before it; where the items begin
whose life begins there or later."""

INFINITE = 1 << 62
PLACED = -1
"""`off` of an item that is placed."""


class SearchColumns(NamedTuple):
    """All that a search looks at and changes."""

    items: Int64s
    shape: Int64s
    near: Int64s
    """The items that each item meets."""
    pieces: Int64s
    """The sections that each item needs: several stretches for lives with gaps."""
    walls: Int64s
    """The fixed bytes that each item meets."""
    sections: Int64s
    down: Int64s
    """The items by falling bound; what is placed comes last."""
    trail: Int64s
    """Item and its rows, as they were."""
    heights: Int64s
    """Section, TALL and KEPT, as they were."""
    control: Int64s
    answer: Int64s
    """Offsets."""


@compiled(allocates=False, part=True)
def settled(item: int, low: int, shape: Int64s, walls: Int64s) -> int:
    """Return the least offset from `low` on that is aligned and clear of the fixed bytes that the
    item meets.
    """
    step: int = shape[ALIGNMENT, item]
    at = (low + step - 1) // step * step
    for wall in range(shape[WALLS, item], shape[WALLS, item + 1]):  # sorted by their bottoms
        if walls[wall, 1] > at and walls[wall, 0] < at + shape[SIZE, item]:
            at = (walls[wall, 1] + step - 1) // step * step
    return int(at)


@compiled(allocates=False, part=True)
def keep(item: int, level: int, columns: SearchColumns) -> None:
    """Put an item as it is on the trail, unless this level has it there already."""
    items, trail, control = columns.items, columns.trail, columns.control
    if items[LEVEL, item] == level:
        return
    at = control[ITEMS]
    trail[at, 0] = item
    for row in range(4):
        trail[at, row + 1] = items[row, item]
    items[LEVEL, item] = level
    control[ITEMS] = at + 1


@compiled(allocates=False, part=True)
def span(item: int, by: int, shape: Int64s, sections: Int64s) -> None:
    """Count an item in or out at the boundaries within its life."""
    for section in range(shape[FIRST, item] + 1, shape[LAST, item]):
        sections[ACROSS, section] += by


@compiled(allocates=False, part=True)
def summed(begin: int, end: int, level: int, columns: SearchColumns) -> bool:
    """Sum the sections [begin, end) anew; return whether all stay below the limit."""
    shape, pieces, sections, down = columns.shape, columns.pieces, columns.sections, columns.down
    heights, control = columns.heights, columns.control
    off, load, tall = columns.items[OFF], sections[LOAD], sections[TALL]
    for place in range(len(down)):
        item, at = down[place], place
        low = off[item]
        while at > 0 and off[down[at - 1]] < low:
            down[at] = down[at - 1]
            at -= 1
        if at < place:
            down[at] = item
    for section in range(begin, end):
        if sections[KEPT, section] != level:
            at = control[SECTIONS]
            heights[at, 0], heights[at, 1], heights[at, 2] = section, tall[section], sections[KEPT, section]
            sections[KEPT, section] = level
            control[SECTIONS] = at + 1
        load[section] = tall[section] = 0
    highest = np.int64(0)
    for place in range(control[LEFT]):
        item = down[place]
        if shape[FIRST, item] >= end or shape[LAST, item] <= begin:
            continue
        low, size = off[item], shape[SIZE, item]
        for piece in range(shape[PIECES, item], shape[PIECES, item + 1]):
            for section in range(max(pieces[piece, 0], begin), min(pieces[piece, 1], end)):
                load[section] += size
                tall[section] = max(tall[section], load[section] + low)
                highest = max(highest, tall[section])
        if highest > control[LIMIT]:
            return False
    return True


@compiled(allocates=False, part=True)
def put(chosen: int, level: int, columns: SearchColumns) -> bool:
    """Place an item at its bound and raise what it meets above it.

    Return whether all stays below the limit.
    """
    items, shape, near, control = columns.items, columns.shape, columns.near, columns.control
    bottom = items[OFF, chosen]
    top = bottom + shape[SIZE, chosen]
    keep(chosen, level, columns)
    items[OFF, chosen], items[VOID, chosen] = PLACED, -1
    control[LEFT] -= 1
    span(chosen, -1, shape, columns.sections)
    begin, end = shape[FIRST, chosen], shape[LAST, chosen]
    for row in range(shape[NEAR, chosen], shape[NEAR, chosen + 1]):
        item = near[row]
        if items[OFF, item] == PLACED:
            continue
        void = items[VOID, item]
        filled = void >= 0 and bottom < void + shape[SIZE, item] and top > void
        if top <= items[BASE, item] and not filled:
            continue
        keep(item, level, columns)
        if filled:
            items[VOID, item] = -1
        if top > items[BASE, item]:
            items[BASE, item] = settled(item, top, shape, columns.walls)
        if items[BASE, item] > items[OFF, item]:
            items[OFF, item] = items[BASE, item]
            begin, end = min(begin, shape[FIRST, item]), max(end, shape[LAST, item])
            if items[OFF, item] > control[LIMIT] - shape[SIZE, item]:
                return False
    return summed(begin, end, level, columns)


@compiled(allocates=False, part=True)
def undo(mark: int, heights_mark: int, columns: SearchColumns) -> None:
    """Take back what was done since the trails were so long."""
    items, shape, sections = columns.items, columns.shape, columns.sections
    trail, heights, control = columns.trail, columns.heights, columns.control
    while control[ITEMS] > mark:
        control[ITEMS] -= 1
        at = control[ITEMS]
        item = trail[at, 0]
        if items[OFF, item] == PLACED:
            span(item, 1, shape, sections)
            control[LEFT] += 1
        for row in range(4):
            items[row, item] = trail[at, row + 1]
    while control[SECTIONS] > heights_mark:
        control[SECTIONS] -= 1
        at = control[SECTIONS]
        sections[TALL, heights[at, 0]], sections[KEPT, heights[at, 0]] = heights[at, 1], heights[at, 2]


@compiled(allocates=False, part=True)
def lower(item: int, other: int, items: Int64s, shape: Int64s) -> bool:
    """Return whether the first of two items comes before the second: a lower bound, or a lower
    rank.
    """
    a, b = items[OFF, item], items[OFF, other]
    return bool(a < b or (a == b and shape[RANK, item] < shape[RANK, other]))


@compiled(allocates=False, part=True)
def choose(begin: int, end: int, columns: SearchColumns) -> int:
    """Return the item to decide about: none that it meets comes before it."""
    items, shape, near, sections = columns.items, columns.shape, columns.near, columns.sections
    down, control, low, high = columns.down, columns.control, begin, end
    if control[FOCUS] == 0:
        for section in range(begin, end):
            if sections[TALL, section] > sections[TALL, low]:
                low = section
        high = low + 1
    chosen = -1
    for place in range(control[LEFT] - 1, -1, -1):
        item = down[place]
        if chosen >= 0 and items[OFF, item] > items[OFF, chosen]:
            break
        if (
            shape[FIRST, item] < high
            and shape[LAST, item] > low
            and (chosen < 0 or shape[RANK, item] < shape[RANK, chosen])
        ):
            chosen = item
    moved = True
    while moved:
        moved = False
        for row in range(shape[NEAR, chosen], shape[NEAR, chosen + 1]):
            if items[OFF, near[row]] != PLACED and lower(near[row], chosen, items, shape):
                chosen, moved = near[row], True
                break
    return int(chosen)


@compiled(allocates=False, part=True)
def dominated(begin: int, end: int, columns: SearchColumns) -> bool:
    """Return whether some item was refused where nothing can come to lie any more."""
    items, shape, near, sections = columns.items, columns.shape, columns.near, columns.sections
    for item in range(sections[BORN, begin], sections[BORN, end]):
        if items[VOID, item] < 0:
            continue
        top, kept = items[VOID, item] + shape[SIZE, item], False
        for row in range(shape[NEAR, item], shape[NEAR, item + 1]):
            low = items[OFF, near[row]]
            if low != PLACED and low < top:
                kept = True
                break
        if not kept:
            return True
    return False


@compiled(allocates=False, part=True)
def search(level: int, begin: int, end: int, columns: SearchColumns) -> int:
    """Place what is left in the sections [begin, end).

    Return FOUND, with offsets in `answer`, FAILED or STOPPED. Who is told FAILED undoes.
    """
    items, shape, near, control = columns.items, columns.shape, columns.near, columns.control
    # independence
    part = begin
    while part < end:
        after = part + 1
        while after < end and columns.sections[ACROSS, after] > 0:
            after += 1
        if part == begin and after == end:
            break
        found = search(level, part, after, columns)
        if found != FOUND:
            return found
        part = after
    if part >= end:
        return FOUND
    if end == begin + 1 and columns.sections[TALL, begin] == 0:
        return FOUND  # nothing is left here

    while True:
        control[NODES] += 1
        if control[NODES] > control[MOST]:
            return STOPPED
        if dominated(begin, end, columns):
            return FAILED
        chosen = choose(begin, end, columns)
        bottom, least, size = items[OFF, chosen], INFINITE, shape[SIZE, chosen]
        for row in range(shape[NEAR, chosen], shape[NEAR, chosen + 1]):
            item = near[row]
            if items[OFF, item] != PLACED:
                least = min(least, items[OFF, item] + shape[SIZE, item])
        if bottom == items[BASE, chosen]:
            mark, heights_mark = control[ITEMS], control[SECTIONS]
            found = FAILED
            if put(chosen, level + 1, columns):
                found = search(level + 1, begin, end, columns)
            if found == FOUND:
                columns.answer[chosen] = bottom
            if found != FAILED:
                return found
            undo(mark, heights_mark, columns)
        if least == INFINITE:
            return FAILED
        # it rests on something that is not placed
        keep(chosen, level, columns)
        if bottom == items[BASE, chosen]:
            items[VOID, chosen] = bottom
        items[OFF, chosen] = settled(chosen, least, shape, columns.walls)
        if items[OFF, chosen] > control[LIMIT] - size:
            return FAILED
        if not summed(shape[FIRST, chosen], shape[LAST, chosen], level, columns):
            return FAILED


_types: Any = types
TABLE, COLUMN = int64[:, ::1], int64[::1]
COLUMNS = TABLE, TABLE, COLUMN, TABLE, TABLE, TABLE, COLUMN, TABLE, TABLE, COLUMN, COLUMN


@compiled(int64(_types.NamedTuple(COLUMNS, SearchColumns)), allocates=False)
def solve(columns: SearchColumns) -> int:
    """Search with no item placed; as `search`."""
    items, shape, sections, control = columns.items, columns.shape, columns.sections, columns.control
    count, width = items.shape[1], sections.shape[1] - 1
    control[ITEMS], control[SECTIONS], control[LEFT] = 0, 0, count
    for section in range(width + 1):
        sections[TALL, section] = sections[KEPT, section] = sections[ACROSS, section] = 0
    for item in range(count):
        items[OFF, item] = items[BASE, item] = settled(item, 0, shape, columns.walls)
        items[VOID, item], items[LEVEL, item], columns.down[item] = -1, 0, item
        span(item, 1, shape, sections)
    if not summed(0, width, 0, columns):
        return FAILED
    return int(search(1, 0, width, columns))


def trails(count: int, width: int) -> tuple[Int64s, Int64s]:
    """Return the trails a search over `count` items in `width` sections needs.

    Pages are touched only as far as it goes.
    """
    levels = count + 2
    return np.empty((levels * count + 1, 5), dtype=np.int64), np.empty((levels * width + 1, 3), dtype=np.int64)
