"""Where memory is cut: cells that every access takes whole or not at all, apart and as planned.

Runs that share a memory are one *group*. A *sort* of buffer is what has one set of cuts: the
buffers of one index in all runs of a program, or all persistent buffers of one name. A *space* is
an arena, or memory of its own. All places are bits, half-open; cuts of a sort count from the start
of its buffer.

`closed` grows the cuts until each cut of a sort is one of every buffer that shares its place in any
space, and of the other side of every `same`. Cuts only grow and are bounded by the bits, so it
ends; what has more than `CELLS` cells or takes more than `ROUNDS` rounds is refused before. O(cuts
log cuts) a round.

What this module does not see: numbers.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import OWN, Document, Program, Run
from allocsim.model.layout import LIMIT, Int64s
from allocsim.model.session import waited_for
from allocsim.model.tables import Value

CELLS: Final = 1 << 22
"""Cells of one group at most, over all sorts of buffers."""

MOST: Final = 1 << 24
"""Numbers that the ops of a document read and write at most."""

ROUNDS: Final = 64
"""Times that cuts are handed on at most: a cut travels from buffer to buffer."""

REACH: Final = LIMIT >> 4
"""Bytes from zero that slots, buffers and values may reach: sums of two places in bits fit 64 bits.
"""

Place = tuple[Hashable, int]
"""A space, and the bit of it where a buffer begins."""

Cells = Any
"""A slice or an index array: cells of a value in its buffer, or in a memory."""

Chunks = Int64s
"""int64 (n, 3): bit of the operand, bit of the result, and how many, of one pair of a `same`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """Where the buffers of one run lie, an entry for each."""

    sort: tuple[Hashable, ...]
    identity: tuple[Hashable, ...]
    """The memory of its own that a buffer has apart: that of the last run of its program that the
    run waits for, one for each name that lasts, else a fresh one.
    """
    place: tuple[Place, ...]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The cells of a group of runs."""

    laid: tuple[Laid, ...]
    cuts: dict[Hashable, Int64s]
    """Where each sort of buffer is cut, its two ends included."""
    apart: dict[Hashable, int]
    """First cell of each identity in the memory apart."""
    planned: dict[Place, int]
    """First cell of each place in the memory of the plans."""
    sizes: tuple[int, int]
    """Cells of the memory apart, and of that of the plans."""
    touched: int = 0
    """Numbers that the ops read and write, with those of the groups before."""
    _known: dict[tuple[int, int], Cells] = field(default_factory=dict)

    def of(self, run: int, program: Program, value: int) -> Cells:
        """Return the cells of a value in its buffer; what lies outside has none."""
        key = id(program), value
        if key not in self._known:
            buffer = int(program.values.buffer[value])
            self._known[key] = within(self.cuts[self.laid[run].sort[buffer]], runs_of(program, value))
        return self._known[key]


def grid_of(document: Document, numbers: Sequence[int], touched: int = 0) -> Grid:
    """Return the cells of runs that share a memory, where other groups touch so many numbers.

    ModelError beyond `CELLS`, `ROUNDS`, `MOST` or `REACH`.
    """
    runs = [document.runs[number] for number in numbers]
    _within_reach(runs)
    laid = tuple(_laid(document, numbers))
    cuts: dict[Hashable, list[Int64s]] = defaultdict(list)
    moves: list[tuple[Hashable, Hashable, Chunks]] = []
    seen: set[int] = set()
    for run, where in zip(runs, laid, strict=True):
        program = run.program
        if id(program) in seen:
            continue
        seen.add(id(program))
        for buffer, nbytes in enumerate(program.buffers.nbytes.tolist()):
            cuts[where.sort[buffer]].append(np.array([0, 8 * nbytes], dtype=np.int64))
        for value, buffer in enumerate(program.values.buffer.tolist()):
            cuts[where.sort[buffer]].append(runs_of(program, value).ravel())
        for step in np.flatnonzero(program.same_ops).tolist():
            op = program.ops[step]
            for source, target in zip(op.operands, op.results, strict=True):
                chunks = inside(program, source, target)
                sides = [where.sort[int(program.values.buffer[side])] for side in (source, target)]
                moves.append((sides[0], sides[1], chunks))
                for side, sort in enumerate(sides):
                    cuts[sort] += [chunks[:, side], chunks[:, side] + chunks[:, 2]]
    spaces: dict[Hashable, set[tuple[int, Hashable]]] = defaultdict(set)
    for where in laid:
        for (space, base), sort in zip(where.place, where.sort, strict=True):
            spaces[space].add((base, sort))
    found = closed({sort: distinct(np.concatenate(some)) for sort, some in cuts.items()}, spaces, moves)
    grid = _numbered(found, laid, spaces)
    times = Counter(id(run.program) for run in runs)
    one = {id(run.program): at for at, run in enumerate(runs)}
    touched += sum(_touched(grid, at, runs[at].program) * times[program] for program, at in one.items())
    if touched > MOST:
        raise ModelError("", f"its ops read and write {touched:,} numbers; at most {MOST:,} are replayed")
    return replace(grid, touched=touched)


def _touched(grid: Grid, run: int, program: Program) -> int:
    """Return how many numbers the ops of a run read and write."""
    sizes = np.array([count(grid.of(run, program, value)) for value in range(len(program.values))], dtype=np.int64)
    return int(sizes[program.ops.operands].sum() + sizes[program.ops.results].sum())


def _within_reach(runs: Iterable[Run]) -> None:
    for run in runs:
        for places in (run.plan.offset, run.program.buffers.nbytes, run.program.values.hulls):
            if np.abs(places).max(initial=0) > REACH:
                raise ModelError("", f"it reaches beyond {REACH:,} bytes")


def closed(
    cuts: dict[Hashable, Int64s],
    spaces: dict[Hashable, set[tuple[int, Hashable]]],
    moves: Sequence[tuple[Hashable, Hashable, Chunks]],
) -> dict[Hashable, Int64s]:
    """Return the cuts with all that others bring along. ModelError beyond `CELLS` or `ROUNDS`."""
    before = -1
    for _ in range(ROUNDS):
        if before == (before := sum(map(len, cuts.values()))):
            return cuts
        _few(before)
        for held in spaces.values():
            every = distinct(np.concatenate([cuts[sort] + base for base, sort in held]))
            spans = [
                (base, sort, *np.searchsorted(every, (base, base + int(cuts[sort][-1]) + 1)).tolist())
                for base, sort in held
            ]
            _few(sum({sort: high - low for _, sort, low, high in spans}.values()))  # told before they are made
            for base, sort, low, high in spans:
                here = np.concatenate([cuts[sort], every[low:high] - base])  # it may lie here in two places
                cuts[sort] = distinct(here)
        moves = moves[::-1]  # a chain of moves is run through in two rounds, whichever way cuts travel
        for source, target, chunks in moves:
            for one, other, at, to in ((source, target, 0, 1), (target, source, 1, 0)):
                carried = _carried(cuts[one], chunks[:, at], chunks[:, to], chunks[:, 2])
                cuts[other] = distinct(np.concatenate([cuts[other], carried]))
    raise ModelError("", f"its cells are not known after {ROUNDS} rounds of cutting")


def distinct(numbers: Int64s) -> Int64s:
    """Return each number once, in order; sorted, since `np.unique` hashes."""
    ordered: Int64s = np.sort(numbers)
    fresh = np.ones(len(ordered), dtype=np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return ordered[fresh]


def _few(cells: int) -> None:
    if cells > CELLS:
        raise ModelError("", f"its memory falls into more than {CELLS:,} cells")


def _carried(cuts: Int64s, start: Int64s, to: Int64s, length: Int64s) -> Int64s:
    """Return the cuts strictly within chunks that begin at `start`, at their places behind `to`."""
    low, high = np.searchsorted(cuts, start, "right"), np.searchsorted(cuts, start + length, "left")
    index, chunk = ranges(low, np.maximum(high, low))
    moved: Int64s = cuts[index] + (to - start)[chunk]
    return moved


def ranges(low: Int64s, high: Int64s) -> tuple[Int64s, Int64s]:
    """Return all numbers of ranges, one range after the other, and the range each is of."""
    counts = high - low
    chunk = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) + (low - first)[chunk], chunk


def within(cuts: Int64s, runs: Int64s) -> Cells:
    """Return the cells of runs whose ends are cuts: a slice of one run, else an index array."""
    low, high = np.searchsorted(cuts, runs[:, 0]), np.searchsorted(cuts, runs[:, 1])
    return slice(int(low[0]), int(high[0])) if len(runs) == 1 else ranges(low, high)[0]


def runs_of(program: Program, value: int) -> Int64s:
    """Return the bits of a value that lie in its buffer, sorted and disjoint."""
    room = 8 * int(program.buffers.nbytes[program.values.buffer[value]])
    runs = np.clip(program.values.bit_runs(value), 0, room)
    found: Int64s = runs[runs[:, 0] < runs[:, 1]]
    return found


def inside(program: Program, source: int, target: int) -> Chunks:
    """Return the chunks of one pair of a `same`, as far as both sides lie in their buffers."""
    chunks = chunks_of(program.values[source], program.values[target])
    skipped, rest = np.zeros(len(chunks), dtype=np.int64), chunks[:, 2].copy()
    for side, value in enumerate((source, target)):
        room = 8 * int(program.buffers.nbytes[program.values.buffer[value]])
        skipped = np.maximum(skipped, -chunks[:, side])
        rest = np.minimum(rest, room - chunks[:, side])
    found = np.stack([chunks[:, 0] + skipped, chunks[:, 1] + skipped, rest - skipped], axis=1)
    kept: Chunks = found[found[:, 2] > 0]
    return kept


def chunks_of(source: Value, target: Value) -> Chunks:
    """Return the bits of two values of one size side by side in row-major order. O(chunks)."""
    (starts, length), (ends, other) = pieces(source), pieces(target)
    total = min(len(starts) * length, len(ends) * other)
    at = distinct(np.concatenate([np.arange(0, total, max(step, 1)) for step in (length, other)]))
    if not len(at):
        return np.empty((0, 3), dtype=np.int64)
    behind = np.append(at[1:], total)
    return np.stack([starts[at // length] + at % length, ends[at // other] + at % other, behind - at], axis=1)


def pieces(value: Value) -> tuple[Int64s, int]:
    """Return where the pieces of a value begin, in row-major order of its elements, and their
    common length: elements one after the other are one piece.
    """
    strides = [8 * stride for stride in value.strides]
    if value.width < 8 and strides:
        strides[-1] = value.width
    length, outer = value.width, list[tuple[int, int]]()
    for count, stride in zip(reversed(value.shape), reversed(strides), strict=True):
        if not outer and stride == length:
            length *= count
        elif count != 1:
            outer.append((count, stride))
    starts = np.array([8 * value.offset + value.bit_offset], dtype=np.int64)
    for count, stride in reversed(outer):
        starts = (starts[:, None] + stride * np.arange(count, dtype=np.int64)).ravel()
    return (starts, length) if length else (starts[:0], 0)


def _laid(document: Document, numbers: Sequence[int]) -> Iterator[Laid]:
    runs = [document.runs[number] for number in numbers]
    index = {id(program): at for at, program in enumerate(document.programs)}
    first: list[int] = []
    ran: dict[int, int] = defaultdict(int)
    for at, (run, waits) in enumerate(zip(runs, waited_for(runs), strict=True)):
        buffers, program = run.program.buffers, index[id(run.program)]
        earlier = waits & ran[program]  # bit k is run k
        first.append(first[earlier.bit_length() - 1] if earlier else at)
        ran[program] |= 1 << at
        lasts = [
            name if keeps else None for name, keeps in zip(buffers.names, buffers.persistent.tolist(), strict=True)
        ]
        sort: list[Hashable] = [(program, buffer) if name is None else name for buffer, name in enumerate(lasts)]
        slots = zip(sort, run.plan.arena.tolist(), run.plan.offset.tolist(), strict=True)
        yield Laid(
            sort=tuple(sort),
            identity=tuple((first[at], buffer) if name is None else name for buffer, name in enumerate(lasts)),
            place=tuple((arena, 8 * offset) if arena > OWN else ((arena, key), 0) for key, arena, offset in slots),
        )


def _numbered(
    cuts: dict[Hashable, Int64s], laid: tuple[Laid, ...], spaces: dict[Hashable, set[tuple[int, Hashable]]]
) -> Grid:
    apart, planned, size, end = dict[Hashable, int](), dict[Place, int](), 0, 0
    for where in laid:
        for identity, sort in zip(where.identity, where.sort, strict=True):
            if identity not in apart:
                apart[identity] = size
                size += len(cuts[sort]) - 1
    for space, held in spaces.items():
        every = distinct(np.concatenate([cuts[sort] + base for base, sort in held]))
        for base, _ in held:
            planned[space, base] = end + int(np.searchsorted(every, base))
        end += len(every)
    return Grid(laid=laid, cuts=cuts, apart=apart, planned=planned, sizes=(size, end))


def moved(cells: Cells, by: int) -> Cells:
    """Return cells of a buffer in a memory where the buffer begins at cell `by`."""
    return slice(cells.start + by, cells.stop + by) if isinstance(cells, slice) else cells + by


def count(cells: Cells) -> int:
    """Return how many cells there are."""
    return cells.stop - cells.start if isinstance(cells, slice) else len(cells)


def listed(cells: Cells) -> Int64s:
    """Return cells as an index array."""
    return np.arange(cells.start, cells.stop) if isinstance(cells, slice) else cells


def byte_ranges(cuts: Int64s, cells: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return the bytes that cells touch, as sorted disjoint ranges."""
    found: list[list[int]] = []
    for cell in cells:
        low, high = int(cuts[cell]) // 8, -(-int(cuts[cell + 1]) // 8)
        if found and low <= found[-1][1]:
            found[-1][1] = max(found[-1][1], high)
        else:
            found.append([low, high])
    assert all(one[1] < other[0] for one, other in pairwise(found))
    return tuple((low, high) for low, high in found)
