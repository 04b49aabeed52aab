"""Store the memory of the replay apart, in which every buffer has memory of its own. For each unit
(byte or bit) the last write is stored, even if a `same` moved its content.

A *mark* is a number that identifies, in either replay, the write that produced the content of a
unit:

    NEVER                    no write has reached the unit
    CONTENT - identity       the content from before the first run
    number of a write        `first number of the run + value`, if no `same` has moved the content
    higher numbers           a moved mark: (number, shift, run) in the table of `Marks`

A unit at place p of its memory with a mark of shift s holds unit `p - s` of the written buffer. So
two units hold the same tag exactly if the numbers and `p - s` agree, because a value never moves
within its buffer, and only a `same` moves the content of a value.

Most buffers are written whole and have one mark; each other buffer has an `OwnerAxis`. This module
does not use plans, and does not decide which reads are right (`s_dataflow`).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocsim.judge.fast.accesses import Extents, pieces_moved
from allocsim.judge.fast.intervals import distinct
from allocsim.judge.fast.owners import NEVER, OwnerAxis, Piece, Range, left_over
from allocsim.model.layout import Int64s

MIXED: Final = -2
"""Stands for the mark of a buffer whose units have several marks; these are stored in an axis."""

CONTENT: Final = -3
"""The initial content of the buffer with identity k has the mark `CONTENT - k`."""

UNCLEAR: Final = frozenset((NEVER, MIXED))


class Marks:
    """The numbers of the writes of some runs, and the marks for content that a `same` moved."""

    def __init__(self, values: Iterable[int]) -> None:
        self.first: list[int] = []
        """The first write number of each run."""
        self.count = 0
        for number in values:
            self.first.append(self.count)
            self.count += number
        self._moved: list[tuple[int, int, int]] = []
        self._known: dict[tuple[int, int, int], int] = {}

    def run_of(self, number: int) -> int:
        """Return the run of the write with a (non-negative) number."""
        return bisect_right(self.first, number) - 1

    def moved(self, number: int, shift: int, run: int) -> int:
        """Return the mark of content of write `number`, moved by `shift` by a `same` of `run`."""
        key = number, shift, run
        if key not in self._known:
            self._known[key] = self.count + len(self._moved)
            self._moved.append(key)
        return self._known[key]

    def known(self, number: int, shift: int) -> int | None:
        """Return the mark of the content of write `number` moved by `shift`, or None without such a
        move.

        Only the planned replay uses this function, because there a moved mark has no run.
        """
        return self._known.get((number, shift, NEVER))

    def of(self, mark: int) -> tuple[int, int | None, int | None]:
        """Return number, shift and run of a mark. Shift and run are None if the content has not
        moved.
        """
        if mark < self.count:
            return mark, None, None
        return self._moved[mark - self.count]

    def tag(self, mark: int) -> tuple[int, int]:
        """Return the number and the shift of a mark in the replay apart; unmoved content has shift
        0.
        """
        return (mark, 0) if mark < self.count else self._moved[mark - self.count][:2]

    def number(self, mark: int) -> int:
        """Return the number of the write that a mark identifies."""
        return mark if mark < self.count else self._moved[mark - self.count][0]

    def writer(self, mark: int) -> int:
        """Return the run that stored a mark at its place: the run of its write or of its last
        `same`.

        Return NEVER for initial content and for units without a write.
        """
        if mark >= self.count:
            return self._moved[mark - self.count][2]
        return self.run_of(mark) if mark >= 0 else NEVER


class ApartMemory:
    """The marks of all buffers, by buffer identity."""

    def __init__(self, marks: Marks, low: list[int], high: list[int]) -> None:
        self.marks = marks
        self.low, self.high = low, high
        """The range `[low, high)` of each buffer that its values cover."""
        self.uniform = [NEVER] * len(low)
        self.mixed: dict[int, OwnerAxis] = {}

    def write(self, identity: int, runs: list[Range], mark: int) -> None:
        """Set the mark of the units `runs` of a buffer."""
        if len(runs) == 1 and runs[0] == (self.low[identity], self.high[identity]):
            self.uniform[identity] = mark
        elif runs:
            self._axis(identity).write_runs(runs, mark)

    def put(self, identity: int, pieces: list[Piece]) -> None:
        """Set the marks of several pieces of a buffer."""
        if len(pieces) == 1:
            self.write(identity, [pieces[0][:2]], pieces[0][2])
            return
        for low, high, mark in pieces:
            self._axis(identity).write(low, high, mark)

    def pieces(self, identity: int, runs: list[Range]) -> Iterator[Piece]:
        """Return the units `runs` of a buffer with their marks, as pieces with one mark each."""
        if self.uniform[identity] != MIXED:
            return iter([(low, high, self.uniform[identity]) for low, high in runs])
        axis = self.mixed[identity]
        return (piece for low, high in runs for piece in axis.walk(low, high))

    def handed_on(self, identity: int, source: Iterable[tuple[int, int, int]], run: int) -> list[Piece]:
        """Return the pieces that a `same` of a run writes into its result. `source` yields (start
        in the operand, start in the result, length).
        """
        found: list[Piece] = []
        for start, target, length in source:
            by = target - start
            for low, high, mark in self.pieces(identity, [(start, start + length)]):
                number, shift, _ = self.marks.of(mark)
                kept = NEVER if mark == NEVER else self.marks.moved(number, (shift or 0) + by, run)
                found.append((low + by, high + by, kept))
        return joined_pieces(sorted(found))

    def _axis(self, identity: int) -> OwnerAxis:
        if self.uniform[identity] != MIXED:
            axis = self.mixed[identity] = OwnerAxis()
            if self.uniform[identity] != NEVER:
                axis.write(self.low[identity], self.high[identity], self.uniform[identity])
            self.uniform[identity] = MIXED
        return self.mixed[identity]


def joined_pieces(pieces: Iterable[Piece]) -> list[Piece]:
    """Return sorted pieces, with neighbouring pieces of equal marks joined."""
    out: list[Piece] = []
    for low, high, mark in pieces:
        if out and out[-1][1] == low and out[-1][2] == mark:
            out[-1] = out[-1][0], high, mark
        elif low < high:
            out.append((low, high, mark))
    return out


def bare(result: list[Range], cut: list[tuple[int, int, int]]) -> list[Piece]:
    """Return a `same`'s result units without a tag: their operand units are outside the buffer."""
    return [
        (low, high, NEVER) for low, high in left_over(result, [(start, start + length) for _, start, length in cut])
    ]


def inside(starts: Int64s, ends: Int64s, lengths: Int64s, room: int, other_room: int) -> list[tuple[int, int, int]]:
    """Return ranges (start in one buffer, start in the other, length), cut to both buffers."""
    first = np.maximum(0, np.maximum(-starts, -ends))
    last = np.minimum(lengths, np.minimum(room - starts, other_room - ends))
    kept = first < last
    return list(zip(*((column[kept]).tolist() for column in (starts + first, ends + first, last - first)), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class SameMove:
    """The units that a `same` moves from one value to another, independent of the plan."""

    source: int
    """The buffer of the operand."""
    target: int
    """The buffer of the result."""
    value: int
    """The result value."""
    cut: list[tuple[int, int, int]]
    """Ranges inside both buffers: (start in `source`, start in `target`, length)."""
    bare: list[Piece]
    """The units of the result that hold no tag."""
    ways: frozenset[int]
    """The distances by which units move: place in `target` minus place in `source`."""

    @property
    def still(self) -> bool:
        """Whether every unit keeps its place in the replay apart."""
        return self.source == self.target and self.ways <= {0}


FEW_STRETCHES: Final = 64
"""The largest number of ranges of a move that is cached for the next run, to bound memory."""


class Moves:
    """The moves of the `same` ops of a program; short moves are computed once and cached."""

    def __init__(self, extents: Extents) -> None:
        self._extents = extents
        self._known: dict[int, list[SameMove]] = {}

    def of(self, op: int) -> list[SameMove]:
        """Return the moves of an op, one for each of its results."""
        if op in self._known:
            return self._known[op]
        row = self._extents.program.ops[op]
        found = [self._move(source, target) for source, target in zip(row.operands, row.results, strict=True)]
        if all(len(move.cut) <= FEW_STRETCHES for move in found):
            self._known[op] = found
        return found

    def _move(self, source: int, target: int) -> SameMove:
        extents = self._extents
        one, other = int(extents.buffer[source]), int(extents.buffer[target])
        room, other_room = int(extents.room[one]), int(extents.room[other])
        length = self._in_one_piece(source)
        if length and length == self._in_one_piece(target):  # the usual case needs no columns
            begin, end = int(extents.start[source]), int(extents.start[target])
            first, last = max(0, -begin, -end), min(length, room - begin, other_room - end)
            cut, ways = [(begin + first, end + first, last - first)] if first < last else [], frozenset((end - begin,))
        else:
            starts, ends, lengths = pieces_moved(extents, source, target)
            cut = inside(starts, ends, lengths, room, other_room)
            ways = frozenset(distinct(ends - starts).tolist())
        return SameMove(
            source=one, target=other, value=target, cut=cut, bare=bare(extents.runs(target), cut), ways=ways
        )

    def _in_one_piece(self, value: int) -> int:
        """Return the number of units of a value if its elements are contiguous, else 0."""
        values = self._extents.program.values
        if not self._extents.contiguous[value]:
            return 0
        return int(values.counts[value]) * int(values.width[value]) * self._extents.unit // 8
