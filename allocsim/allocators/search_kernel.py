"""The compiled search of `exact`: does everything fit below a given height?

The search decides; `allocsim.allocators.branch_and_bound` asks it about one height after another.

State
-----
Each item (footprint) not placed yet has a lower bound `off` of its offset, the offset it would take if nothing else were placed;
`base`, the least offset that rests on what is placed; and `void`, an offset at which it was refused (-1 for none). Every solution can be
lowered until each item rests on the floor, on a fixed item or on another item; only such solutions are looked for.

Branching
---------
An item none of those it meets is bounded below (*lowest*) is chosen. Nothing can come under it any more, so either
* it lies at `off`, and all it meets lie above it; or
* it rests on one that is not placed, hence `off` is at least the least top of those it meets.
Where `off > base` the first is no solution that cannot be lowered, and the second follows without branching.

Pruning
-------
* *Sections*. A section is a stretch of steps in which no life begins or ends. Items of one section are stacked, so for every height v:
  v + (bytes of those bounded by v or more) must not exceed the limit: the bound of one machine with release dates, exact in O(items).
* *Dominance*. An item refused at `void` must be kept from there by something that lies in those bytes. As soon as nothing can any more,
  the item could be lowered to there, and the branch is given up.
* *Independence*. Where the steps of those left fall apart, the parts are searched one by one; one that fails fails them all.
* *No hat*. If placing an item that meets nobody left does not lead to a solution, nothing else about it can.

Focus. Which lowest item is chosen decides about speed alone: near the section that is closest to the limit (`focus` 0), or the lowest
of all (1); among equals by `rank`.

The ideas of canonical solutions, section inference, dominance and decomposition are those of Moffitt, "MiniMalloc: A Lightweight Memory
Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023; branching on the lower bound (place or delay) is that of set-times search in
scheduling (Le Pape et al., 1994), and the release-date bound that of Carlier, 1982.

Importing this module imports numba.
"""

import numpy as np

from allocsim.allocators.compiling import compiled
from allocsim.layout import Int64s
from allocsim.model import Bools

FAILED, FOUND, STOPPED = 0, 1, 2
NODES, MOST, FOCUS, LIMIT = range(4)
"""Entries of `control`: nodes so far, nodes allowed, focus, height allowed."""

INFINITE = 1 << 62


@compiled(allocates=False)
def _settled(item: int, low: int, size: Int64s, alignment: Int64s, walls: Int64s, wall_starts: Int64s) -> int:  # noqa: PLR0917 - compiled
    """Return the least offset from `low` on that is aligned and clear of the fixed bytes that the item meets."""
    step: int = alignment[item]
    at = (low + step - 1) // step * step
    for wall in range(wall_starts[item], wall_starts[item + 1]):  # sorted by their bottoms
        if walls[wall, 1] > at and walls[wall, 0] < at + size[item]:
            at = (walls[wall, 1] + step - 1) // step * step
    return int(at)


TABLE, COLUMN = "i8[:,::1],", "i8[::1],"
SIGNATURE = f"i8(i8,i8,{5 * TABLE}{2 * COLUMN}{TABLE}{COLUMN}b1[:,::1],{2 * COLUMN}{TABLE}{2 * COLUMN}{TABLE}i8[::1],i8[::1])"


@compiled(SIGNATURE, allocates=False)
def search(  # noqa: PLR0917 - compiled
    depth: int, count: int, items: Int64s, offs: Int64s, bases: Int64s, voids: Int64s, sorteds: Int64s, first: Int64s, last: Int64s,
    pieces: Int64s, piece_starts: Int64s, meet: Bools, size: Int64s, alignment: Int64s, walls: Int64s, wall_starts: Int64s,
    rank: Int64s, loads: Int64s, control: Int64s, answer: Int64s,
) -> int:  # fmt: skip
    """Place the `count` items of row `depth` of `items`, which are in order of `first`; return FOUND, FAILED or STOPPED.

    `first` and `last` are the sections [first, last) an item spans, `pieces` those it needs (CSR by `piece_starts`, for lives with
    gaps), `meet` which items meet. On FOUND, `answer` holds the offsets. Rows are scratch, one for each depth; `loads` is (2, sections).
    """
    if count == 0:
        return FOUND
    here, off, base, void, down = items[depth], offs[depth], bases[depth], voids[depth], sorteds[depth]
    later, later_off, later_base, later_void = items[depth + 1], offs[depth + 1], bases[depth + 1], voids[depth + 1]
    later_down = sorteds[depth + 1]

    # independence
    reach, part = last[here[0]], 1
    while part < count and first[here[part]] < reach:
        reach = max(reach, last[here[part]])
        part += 1
    if part < count:
        begin = 0
        while begin < count:
            reach, part = last[here[begin]], begin + 1
            while part < count and first[here[part]] < reach:
                reach = max(reach, last[here[part]])
                part += 1
            for place in range(begin, part):
                item = here[place]
                later[place - begin] = item
                later_off[item], later_base[item], later_void[item] = off[item], base[item], void[item]
            left = 0
            for item in down[:count]:
                if first[here[begin]] <= first[item] < reach:
                    later_down[left] = item
                    left += 1
            found = search(
                depth + 1, part - begin, items, offs, bases, voids, sorteds, first, last, pieces, piece_starts, meet, size, alignment,
                walls, wall_starts, rank, loads, control, answer,
            )  # fmt: skip
            if found != FOUND:
                return found
            begin = part
        return FOUND

    begin, end, limit = first[here[0]], reach, control[LIMIT]
    load, tall = loads[0], loads[1]
    while True:
        control[NODES] += 1
        if control[NODES] > control[MOST]:
            return STOPPED

        # sections: items by falling bound; few moved since they were sorted last
        for place in range(count):
            item = down[place]
            low, at = off[item], place
            if low > limit - size[item]:
                return FAILED
            while at > 0 and (off[down[at - 1]] < low or (off[down[at - 1]] == low and down[at - 1] > item)):
                down[at] = down[at - 1]
                at -= 1
            down[at] = item
        for section in range(begin, end):
            load[section] = tall[section] = 0
        for place in range(count):
            item = down[place]
            low, nbytes = off[item], size[item]
            highest = np.int64(0)
            for piece in range(piece_starts[item], piece_starts[item + 1]):
                for section in range(pieces[piece, 0], pieces[piece, 1]):
                    load[section] += nbytes
                    tall[section] = max(tall[section], load[section] + low)
                    highest = max(highest, tall[section])
            if highest > limit:
                return FAILED

        # dominance
        for place in range(count):
            item = here[place]
            if void[item] >= 0:
                top, kept = void[item] + size[item], False
                for other in here[:count]:
                    if meet[item, other] and off[other] < top:
                        kept = True
                        break
                if not kept:
                    return FAILED

        # the lowest item near where it is tightest
        chosen = down[count - 1]
        if control[FOCUS] == 0:
            tightest = begin
            for section in range(begin, end):
                if load[section] > 0 and (tall[section] > tall[tightest] or load[tightest] == 0):
                    tightest = section
            chosen = -1
            for item in here[:count]:
                if first[item] <= tightest < last[item] and (
                    chosen < 0 or off[item] < off[chosen] or (off[item] == off[chosen] and rank[item] < rank[chosen])
                ):
                    chosen = item
        moved = True
        while moved:
            moved = False
            for place in range(count - 1, -1, -1):
                item = down[place]
                if off[item] > off[chosen]:
                    break
                if meet[chosen, item] and (off[item] < off[chosen] or rank[item] < rank[chosen]):
                    chosen, moved = item, True
                    break

        least = INFINITE
        for item in here[:count]:
            if meet[chosen, item]:
                least = min(least, off[item] + size[item])
        if least < INFINITE:
            least = _settled(chosen, least, size, alignment, walls, wall_starts)
        if off[chosen] > base[chosen]:
            if least == INFINITE:
                return FAILED
            off[chosen] = least
            continue

        bottom = off[chosen]
        left = 0
        for item in down[:count]:
            if item != chosen:
                later_down[left] = item
                left += 1
        top, left, hat = bottom + size[chosen], 0, False
        for item in here[:count]:
            if item == chosen:
                continue
            later[left] = item
            left += 1
            later_off[item], later_base[item], later_void[item] = off[item], base[item], void[item]
            if meet[chosen, item]:
                hat = True
                raised = _settled(item, top, size, alignment, walls, wall_starts)
                later_off[item], later_base[item] = max(off[item], raised), max(base[item], raised)
                if void[item] >= 0 and bottom < void[item] + size[item] and top > void[item]:
                    later_void[item] = -1
        found = search(
            depth + 1, left, items, offs, bases, voids, sorteds, first, last, pieces, piece_starts, meet, size, alignment, walls,
            wall_starts, rank, loads, control, answer,
        )  # fmt: skip
        if found == FOUND:
            answer[chosen] = bottom
        if found != FAILED or not hat:
            return found
        void[chosen], off[chosen] = bottom, least


def scratch(count: int) -> tuple[Int64s, ...]:
    """Return the five tables of rows that a search over `count` items needs; pages are touched only as deep as it goes."""
    return tuple(np.empty((2 * count + 3, count + 1), dtype=np.int64) for _ in range(5))
