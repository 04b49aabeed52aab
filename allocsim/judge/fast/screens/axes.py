"""Compiled inner loops of the judge. They store the last writer of every address and select, in one
pass, the reads that may find wrong bytes.

There are two kernels. Each kernel is a *screen*, which selects the reads that the plain code must
compare. A screen may select too many reads, but never too few. The plain code decides whether a
read has a defect, and makes the record.

    stray_apart       selects reads that may find, with every buffer apart, other bytes than this run wrote for them
    stray_planned     selects reads that may find, as planned, bytes of another buffer's write

An *axis* is one address space as a sorted list of segments of equal owner, stored in chunks.
`counts[0]` is the number of chunks in use. `heads[p]` is the first start of the p-th chunk, and
`chunk[p]` its number. Chunk `c` holds `sizes[c] <= ROOM` segments, with `starts[c]` and
`owners[c]`. A segment extends to the next start. `spare[: counts[1]]` are unused chunks. Two
neighbouring chunks together fill more than half a chunk, so an axis of n segments needs at most
`4 n / ROOM + 2` chunks. A write costs O(log n + ROOM + removed segments), plus O(n / ROOM) whenever
chunks are inserted or removed.

Addresses are int64. `end_at` saturates at `TOP`, which is above every address of a model, so that
no sum wraps. No segment starts at `TOP`.

In this module, buffers, values and ops are only numbers.
"""

from typing import Any, Final

import numpy as np

from allocsim.judge.fast.screens.compiling import compiled
from allocsim.model.layout import Int64s

ROOM: Final = 64
"""The largest number of segments in a chunk."""

FLOOR: Final = -(1 << 63)
TOP: Final = (1 << 63) - 1
NEVER: Final = -1
CONTENT: Final = -2
"""Owners that are not writes. `NEVER` owns bytes without a write, and `CONTENT` owns bytes with
initial content."""

Axis = tuple[Int64s, Int64s, Int64s, Int64s, Int64s, Int64s, Int64s]
"""The columns heads, chunk, sizes, starts, owners, spare and counts of an axis."""


def axis_for(segments: int) -> Axis:
    """Return an axis with room for `segments` segments.

    The operating system provides memory at the first access, at most 64 bytes for each segment.
    """
    chunks = 4 * segments // ROOM + 4
    columns = [np.empty(shape, dtype=np.int64) for shape in (chunks, chunks, chunks, (chunks, ROOM), (chunks, ROOM))]
    heads, chunk, sizes, starts, owners = columns
    return heads, chunk, sizes, starts, owners, np.arange(chunks - 1, -1, -1), np.array([0, chunks])


@compiled
def clear(axis: Axis, owner: int) -> None:
    """Set one owner for the whole axis."""
    heads, chunk, sizes, starts, owners, spare, counts = axis
    for place in range(counts[0]):
        spare[counts[1]] = chunk[place]
        counts[1] += 1
    counts[0] = 1
    counts[1] -= 1
    only = spare[counts[1]]
    chunk[0], heads[0] = only, FLOOR
    sizes[only], starts[only, 0], owners[only, 0] = 1, FLOOR, owner


@compiled
def seek(axis: Axis, address: int) -> tuple[int, int]:
    """Return the segment of an address: the position of its chunk, and its number in the chunk."""
    heads, chunk, sizes, starts, _, _, counts = axis
    place, left = 0, counts[0]
    while left > 1:
        half = left >> 1
        place = place + half if heads[place + half] <= address else place
        left -= half
    row = starts[chunk[place]]
    at, left = 0, sizes[chunk[place]]
    while left > 1:
        half = left >> 1
        at = at + half if row[at + half] <= address else at
        left -= half
    return place, at


@compiled
def end_of_segment(axis: Axis, place: int, at: int) -> int:
    """Return the end address of a segment, or `TOP` for the last segment."""
    heads, chunk, sizes, starts, _, _, counts = axis
    held = chunk[place]
    if at + 1 < sizes[held]:
        return int(starts[held, at + 1])
    return int(heads[place + 1]) if place + 1 < counts[0] else TOP


@compiled
def slide(row: Int64s, size: int, first: int, by: int) -> None:
    """Move `row[first:size]` by `by` positions."""
    if by > 0:
        for at in range(size - 1, first - 1, -1):
            row[at + by] = row[at]
    elif by < 0:
        for at in range(first, size):
            row[at + by] = row[at]


@compiled
def split(axis: Axis, place: int) -> None:
    """Split the chunk at `place` into two chunks."""
    heads, chunk, sizes, starts, owners, spare, counts = axis
    counts[1] -= 1
    old, new = chunk[place], spare[counts[1]]
    half = sizes[old] // 2
    sizes[new], sizes[old] = sizes[old] - half, half
    for at in range(sizes[new]):
        starts[new, at], owners[new, at] = starts[old, half + at], owners[old, half + at]
    slide(heads, counts[0], place + 1, 1)
    slide(chunk, counts[0], place + 1, 1)
    heads[place + 1], chunk[place + 1] = starts[new, 0], new
    counts[0] += 1


@compiled
def drop(axis: Axis, first: int, last: int) -> None:
    """Remove the chunks at the positions `[first, last)`."""
    heads, chunk, _, _, _, spare, counts = axis
    if first >= last:
        return
    for place in range(first, last):
        spare[counts[1]] = chunk[place]
        counts[1] += 1
    slide(heads, counts[0], last, first - last)
    slide(chunk, counts[0], last, first - last)
    counts[0] -= last - first


@compiled
def mend(axis: Axis, place: int) -> None:
    """Join a chunk with the next chunk if both together fit in half a chunk. Split the chunk if the
    next write may not fit.
    """
    _, chunk, sizes, starts, owners, _, counts = axis
    if place < 0 or place >= counts[0]:
        return
    held = chunk[place]
    if sizes[held] + 2 > ROOM:
        split(axis, place)
    elif place + 1 < counts[0] and sizes[held] + sizes[chunk[place + 1]] <= ROOM // 2:
        other = chunk[place + 1]
        for at in range(sizes[other]):
            starts[held, sizes[held] + at], owners[held, sizes[held] + at] = starts[other, at], owners[other, at]
        sizes[held] += sizes[other]
        drop(axis, place + 1, place + 2)


@compiled
def replace(axis: Axis, place: int, at: int, last_place: int, last: int, low: int, high: int, owner: int) -> None:  # noqa: PLR0917 - columns
    """Set the owner of `[low, high)`.

    The overlapping segments are the segments from `(place, at)` to `(last_place, last)`.
    """
    heads, chunk, sizes, starts, owners, _, _ = axis
    held, end = chunk[place], chunk[last_place]
    tail = end_of_segment(axis, last_place, last) > high
    tail_owner = owners[end, last]
    first = at + 1 if starts[held, at] < low else at
    if place == last_place:
        by = (2 if tail else 1) - (last + 1 - first)
        slide(starts[held], sizes[held], last + 1, by)
        slide(owners[held], sizes[held], last + 1, by)
        sizes[held] += by
        starts[held, first], owners[held, first] = low, owner
        if tail:
            starts[held, first + 1], owners[held, first + 1] = high, tail_owner
    else:
        starts[held, first], owners[held, first] = low, owner
        sizes[held] = first + 1
        kept = last if tail else last + 1
        if tail:
            starts[end, last] = high
        slide(starts[end], sizes[end], kept, -kept)
        slide(owners[end], sizes[end], kept, -kept)
        sizes[end] -= kept
        heads[last_place] = starts[end, 0]
        drop(axis, place + 1, last_place if sizes[end] else last_place + 1)
        mend(axis, place + 1)
    mend(axis, place)
    mend(axis, place - 1)


@compiled
def paint(axis: Axis, low: int, high: int, owner: int) -> None:
    """Set the owner of the non-empty range `[low, high)`.

    Touching segments with the same owner are joined.
    """
    _, chunk, sizes, _, owners, _, counts = axis
    starts = axis[3]
    place, at = seek(axis, low)
    if owners[chunk[place], at] == owner:
        if end_of_segment(axis, place, at) >= high:
            return
        low = starts[chunk[place], at]
    elif starts[chunk[place], at] == low:
        before = (place, at - 1) if at else (place - 1, sizes[chunk[max(place - 1, 0)]] - 1)
        if before[0] >= 0 and owners[chunk[before[0]], before[1]] == owner:
            place, at = before
            low = starts[chunk[place], at]
    last_place, last = place, at
    while True:
        end = end_of_segment(axis, last_place, last)
        following = (last_place, last + 1) if last + 1 < sizes[chunk[last_place]] else (last_place + 1, 0)
        there = following[0] < counts[0]
        if end > high or not there or (end == high and owners[chunk[following[0]], following[1]] != owner):
            break
        last_place, last = following
    if owners[chunk[last_place], last] == owner:
        high = end_of_segment(axis, last_place, last)
    replace(axis, place, at, last_place, last, low, high, owner)


@compiled
def held_by(axis: Axis, low: int, high: int) -> int:
    """Return the owner of the segment that contains `[low, high)`, or `FLOOR` if none does."""
    place, at = seek(axis, low)
    return int(axis[4][axis[1][place], at]) if end_of_segment(axis, place, at) >= high else FLOOR


@compiled
def end_at(base: int, length: int) -> int:
    """Return `base + length` for a non-negative length, saturated at `TOP`."""
    return TOP if base > 0 and length > TOP - base else base + length


Columns = tuple[Any, ...]


@compiled
def stray_apart(  # noqa: PLR0917 - columns
    chains: Columns, facts: Columns, buffers: Columns, holes: Columns, values: int, axes: Columns, found: Columns
) -> int:
    """Record the reads that may find wrong bytes with every buffer apart: bytes that another value
    wrote, or another run if no op made the value read. Return the number of these reads.

    Args:
        chains: key (buffer), run, and the slice [begin, end) of `order` with the accesses of that
            run, sorted by key, then by run.
        facts: for each access: whether it is a write, number of the value, low and high in the
            buffer, row of `holes` or -1, whether an op made the value.
        buffers: for each buffer: persistent, and the range [low, high) that its values cover.
        holes: the byte runs within the buffer, in CSR form.
        values: the number of values of all programs.
        axes: two axes with room for the largest buffer, for the last value and the last run.
        found: filled with run and access of each recorded read; more reads are only counted.
    """
    key, runs, begin, end, order = chains
    write, number, low, high, hole, made = facts
    persistent, reach_low, reach_high = buffers
    hole_starts, hole_low, hole_high = holes
    by_value, by_run = axes
    count, holder, mixed, whole, latest = 0, -1, False, NEVER, NEVER
    for link in range(len(key)):
        if key[link] != holder:
            holder, mixed = key[link], False
            whole = latest = CONTENT if persistent[holder] else NEVER
        kept, run = persistent[holder], runs[link]
        for k in range(begin[link], end[link]):
            row = order[k]
            mine, first, last = run * values + number[row], 0, 1
            if hole[row] >= 0:
                first, last = hole_starts[hole[row]], hole_starts[hole[row] + 1]
            if not write[row]:
                if latest == mine or (kept and not made[row]):
                    continue
                for part in range(first, last):
                    a, b = (low[row], high[row]) if hole[row] < 0 else (hole_low[part], hole_high[part])
                    if made[row]:
                        owner = held_by(by_value, a, b) if mixed else whole
                        fine = owner == mine or (
                            kept and (owner == CONTENT or (owner >= 0 and owner % values == number[row]))
                        )
                    else:
                        owner = held_by(by_run, a, b) if mixed else whole // values
                        fine = owner == run
                    if not fine:
                        if count < len(found[0]):
                            found[0][count], found[1][count] = run, row
                        count += 1
                        break
                continue
            latest = mine
            if hole[row] < 0 and low[row] == reach_low[holder] and high[row] == reach_high[holder]:
                mixed, whole = False, mine
                continue
            if not mixed:
                mixed = True
                clear(by_value, NEVER)
                clear(by_run, NEVER)
                if whole != NEVER:
                    paint(by_value, reach_low[holder], reach_high[holder], whole)
                    paint(by_run, reach_low[holder], reach_high[holder], whole // values if whole >= 0 else CONTENT)
            for part in range(first, last):
                a, b = (low[row], high[row]) if hole[row] < 0 else (hole_low[part], hole_high[part])
                paint(by_value, a, b, mine)
                paint(by_run, a, b, run)
    return count


@compiled
def stray_planned(  # noqa: PLR0917 - columns
    chains: Columns, facts: Columns, keys: Columns, holes: Columns, content: Columns, axis: Axis, found: Columns
) -> int:
    """Record the reads that may find, as planned, bytes with a last write under another key.

    Return the number of these reads.

    A key identifies a buffer as long as the buffer stays at one address. Each write to a byte of a
    buffer apart also writes the byte's planned address. So if the last planned writer of a byte has
    the right key, this writer is also the last writer apart.

    Args:
        chains: as in `stray_apart`, but with address spaces as keys.
        facts: for each access: whether it is a write, low and high in the buffer, row of `holes` or
            -1, base address, buffer.
        keys: the key of each buffer in each run, in CSR form.
        holes: the byte runs within the buffer, in CSR form.
        content: space, low, high and key of the initial content, sorted by space.
        axis: an axis with room for the largest space.
        found: as in `stray_apart`.
    """
    key, runs, begin, end, order = chains
    write, low, high, hole, base, buffer = facts
    key_starts, key_of = keys
    hole_starts, hole_low, hole_high = holes
    count, space = 0, -1
    for link in range(len(key)):
        if key[link] != space:
            space = key[link]
            clear(axis, NEVER)
            for laid in range(np.searchsorted(content[0], space), np.searchsorted(content[0], space + 1)):
                paint(axis, content[1][laid], content[2][laid], content[3][laid])
        run = runs[link]
        for k in range(begin[link], end[link]):
            row = order[k]
            owner, first, last = key_of[key_starts[run] + buffer[row]], 0, 1
            if hole[row] >= 0:
                first, last = hole_starts[hole[row]], hole_starts[hole[row] + 1]
                if not write[row] and held_by(axis, end_at(base[row], low[row]), end_at(base[row], high[row])) == owner:
                    continue
            for part in range(first, last):
                a, b = (low[row], high[row]) if hole[row] < 0 else (hole_low[part], hole_high[part])
                a, b = end_at(base[row], a), end_at(base[row], b)
                if write[row]:
                    paint(axis, a, b, owner)
                elif held_by(axis, a, b) != owner:
                    if count < len(found[0]):
                        found[0][count], found[1][count] = run, row
                    count += 1
                    break
    return count


def grouped(key: Int64s, keys: int) -> tuple[Int64s, Int64s]:
    """Return the CSR starts of the keys, int64 (keys + 1,), and the rows, sorted by key."""
    starts, rows = np.zeros(keys + 2, dtype=np.int64), np.empty(len(key), dtype=np.int64)
    sort_by(key, starts, rows)
    return starts[:-1], rows


@compiled
def sort_by(key: Int64s, starts: Int64s, rows: Int64s) -> None:
    """Fill `rows` with the row numbers, sorted by key, and `starts` with the first position of
    each key's rows. `starts` must have two more entries than there are keys, all 0.
    """
    for row in range(len(key)):
        starts[key[row] + 2] += 1
    for at in range(2, len(starts)):
        starts[at] += starts[at - 1]
    for row in range(len(key)):
        rows[starts[key[row] + 1]] = row
        starts[key[row] + 1] += 1
