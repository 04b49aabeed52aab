"""Find the loops of a flattened program, and the buffers that one iteration passes to the next.

An iteration is called a *turn* here. The `meta` of an op may state the loop body that the op comes
from, as a path that all turns share (`allocsim.verdict.calls`). The ops of one path are a loop if
they repeat. Each turn must have the same op kinds on the same layouts, and each op must read
results of the same positions of its own turn. A turn extends from its first op to the first op of
the next turn, and may contain ops of other paths.

A buffer is a *carry* of a loop if one turn writes it, and an op of a later turn or after the loop
reads that value. A buffer written before the loop is a carry if an op of one turn reads it, and the
same op reads another buffer in the turns before and after. A buffer that every turn reads is not a
carry.

A *move* writes a value to another value of the same layout. The move is an operand of a `same` and
its result, or an op with one operand and one result. Such an op may also compute something, because
only `same` is known to copy. So a move counts only if both values are at one address, or if two
moves exchange addresses.

Complexity: O(accesses) for each path that repeats, computed once for a program. At most `MAX_LOOPS`
paths are examined.

This module does not examine violations and beliefs. It does not find loops with different turns (a
branch taken in one turn only), and loops with a single turn.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Final

import numpy as np

from allocsim.model import VIEW, Bools, Plan, Program
from allocsim.model.layout import Int64s
from allocsim.programs.access_steps import accesses
from allocsim.verdict.calls import calls

MAX_LOOPS: Final = 64
"""The largest number of paths examined, to bound the time; the longest paths come first."""


@dataclass(frozen=True, slots=True)
class CarryMove:
    """A value moved from buffer `source` to buffer `target`."""

    turn: int
    source: int
    target: int
    """The index of the buffer that receives the value."""


@dataclass(frozen=True, slots=True)
class CarriedLoop:
    """A loop of a program, with its carries and moves."""

    carries: frozenset[int]
    """The indices of the buffers that are carries."""
    moves: tuple[CarryMove, ...]
    """The moves within the loop with the result in a carry."""


def loops(program: Program) -> tuple[CarriedLoop, ...]:
    """Return the loops found in the paths of a program's ops; empty if no op has a path."""
    bodies = defaultdict(list)
    for step, path in sorted(calls(program).items()):
        bodies[path].append(step)
    if not bodies:
        return ()
    longest = sorted(bodies.values(), key=len, reverse=True)[:MAX_LOOPS]
    words, ops = _words(program), program.ops
    made_by = _listed(ops.operand_starts, program.producer[ops.operands])
    repeated = []
    for steps in longest:
        period = _least_period([words[step] for step in steps])
        short = 2 * len(steps) < 3 * period  # at least half of the last turn must exist
        if not short and _reads_alike(made_by, steps, period):
            repeated.append((steps, period))
    if not repeated:
        return ()
    found = _Accesses(program)
    made = (_loop(found, *one) for one in repeated)
    return tuple(loop for loop in made if loop.carries)


# turns --------------------------------------------------------------------------------------------


def _least_period(words: Sequence[Hashable]) -> int:
    """Return the least p with `words[i] == words[i + p]` wherever both exist (KMP, 1977)."""
    border = [0] * len(words)
    length = 0
    for at in range(1, len(words)):
        while length and words[at] != words[length]:
            length = border[length - 1]
        length += words[at] == words[length]
        border[at] = length
    return len(words) - border[-1] if words else 0


def _words(program: Program) -> list[int]:
    """Return a number per op; ops of one kind with equal operand and result layouts share one."""
    ops, layouts = program.ops, _layouts(program)
    sides = [
        _listed(starts, layouts[values])
        for starts, values in ((ops.operand_starts, ops.operands), (ops.result_starts, ops.results))
    ]
    known: dict[Hashable, int] = {}
    kinds = [ops.kinds[kind] for kind in ops.kind.tolist()]
    return [known.setdefault(word, len(known)) for word in zip(kinds, *sides, strict=True)]


def _layouts(program: Program) -> Int64s:
    """Return a number for each value; values of equal dtype, shape and strides share one."""
    values = program.values
    columns = (
        values.dtype.tolist(),
        _listed(values.dim_starts, values.shape),
        _listed(values.dim_starts, values.strides),
    )
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(row, len(known)) for row in zip(*columns, strict=True)], dtype=np.int64)


def _listed(starts: Int64s, column: np.ndarray) -> list[tuple[int, ...]]:
    """Return the rows of a flat column, cut at the positions `starts`."""
    flat, cuts = column.tolist(), starts.tolist()
    return [tuple(flat[low:high]) for low, high in pairwise(cuts)]


def _reads_alike(made_by: Sequence[Sequence[int]], steps: Sequence[int], period: int) -> bool:
    """Whether each op reads results of the same ops of its own turn as in the turn before. An
    operand from outside the turn must come from outside the turn in both turns.
    """
    place = {step: number for number, step in enumerate(steps)}

    def found(number: int) -> list[int | None]:
        turn = number // period
        made = [place.get(op) for op in made_by[steps[number]]]
        return [at % period if at is not None and at // period == turn else None for at in made]

    return all(found(number) == found(number - period) for number in range(period, len(steps)))


# carries ------------------------------------------------------------------------------------------


class _Accesses:
    """A program's reads, each with its buffer's last earlier writer (-1: none), and its moves."""

    def __init__(self, program: Program) -> None:
        step, buffer, writes = accesses(program)
        self.step, self.buffer = step[~writes], buffer[~writes]
        self.writer = _last_before(step[writes], buffer[writes], self.step, self.buffer)
        ops, self._program, self._layout = program.ops, program, cache(partial(layout_of, program))
        readers, writers = np.diff(ops.operand_starts), np.diff(ops.result_starts)
        moving = ~ops.is_kind(VIEW) & (program.same_ops | ((readers == 1) & (writers == 1)))
        self._moving = np.repeat(np.arange(len(ops)), readers * moving)
        self._sides = ops.operands[np.repeat(moving, readers)], ops.results[np.repeat(moving, writers)]

    def moves(self, begin: int, end: int, carries: Collection[int]) -> Iterator[tuple[int, int, int]]:
        """Yield (step, source, target buffer) of each move in steps [begin, end) into a carry."""
        source, target = (self._program.values.buffer[side] for side in self._sides)
        there = np.zeros(len(self._program.buffers), dtype=np.bool_)
        there[list(carries)] = True
        inside = (self._moving >= begin) & (self._moving < end) & there[target] & (source != target)
        for step, one, other, home, taker in _columns(inside, self._moving, *self._sides, source, target):
            if self._program.same_ops[step] or self._layout(one) == self._layout(other):
                yield step, home, taker


def layout_of(program: Program, value: int) -> Hashable:
    """Return a key that is equal for two values exactly if they have the same layout."""
    row = program.values[value]
    strides = tuple(stride for length, stride in zip(row.shape, row.strides, strict=True) if length > 1)
    return row.shape, row.width, row.bit_offset, strides


def _last_before(written_step: Int64s, written: Int64s, step: Int64s, buffer: Int64s) -> Int64s:
    """Return for each read the last earlier op that writes into the read buffer, or -1."""
    beyond = max(int(written_step.max(initial=0)), int(step.max(initial=0))) + 1
    order = np.sort(written * beyond + written_step)
    at = np.searchsorted(order, buffer * beyond + step) - 1
    last = order[at] if len(order) else np.full(len(at), -1)
    found: Int64s = np.where((at >= 0) & (last // beyond == buffer), last % beyond, -1)
    return found


def _loop(found: _Accesses, steps: Sequence[int], period: int) -> CarriedLoop:
    """Return the loop that consists of these ops, `period` of them in each turn."""
    starts = np.array([*steps[::period], steps[-1] + 1])
    begin, end = int(starts[0]), int(starts[-1])
    place = {step: number for number, step in enumerate(steps)}
    columns = found.step, found.buffer, found.writer
    inside = np.isin(found.step, steps)
    read = {(place[at], *what) for at, *what in _columns(inside, *columns)}
    turn = np.searchsorted(starts, found.step, side="right")  # from 1; 0 is before the loop
    across = (turn > 0) & (found.writer < starts[turn - 1]) & (inside | (found.writer >= begin))
    carries = frozenset(
        buffer
        for at, buffer, writer in _columns(across, *columns)
        if at not in place
        or read.isdisjoint((place[at] + twin, buffer, writer) for twin in (-period, period))  # every turn reads it
    )
    moves = (
        CarryMove(int(np.searchsorted(starts, at, side="right")), *homes)
        for at, *homes in found.moves(begin, end, carries)
    )
    return CarriedLoop(carries, tuple(moves))


def _columns(chosen: Bools, *columns: Int64s) -> Iterator[tuple[int, ...]]:
    """Yield the rows of several columns at which `chosen` is True."""
    return zip(*(column[chosen].tolist() for column in columns), strict=True)


# values moved one after the other -----------------------------------------------------------------


def moved_before(program: Program, step: int) -> frozenset[int]:
    """Return the buffers that the earlier `same` ops in the row of an op wrote. A row is a sequence
    of consecutive `same` ops; views between the ops do not end a row.
    """
    ops, home = program.ops, program.values.buffer
    views = ops.is_kind(VIEW)
    found: set[int] = set()
    while program.same_ops[step] or views[step]:
        step -= 1
        if step < 0:
            break
        if program.same_ops[step]:
            found.update(home[list(ops[step].results)].tolist())
    return frozenset(found)


def loops_of(program: Program, pairs: Iterable[tuple[int, int]]) -> Mapping[int, list[tuple[int, int]]]:
    """Return pairs of buffers in groups, each group under a number. Two pairs are in one group if
    `same` ops or pairs connect their buffers. So the pairs of all turns of one loop are in one
    group.
    """
    ops, home = program.ops, program.values.buffer
    head = np.arange(len(program.buffers)).tolist()

    def of(buffer: int) -> int:
        while head[buffer] != buffer:
            head[buffer] = buffer = head[head[buffer]]
        return buffer

    lost = sorted(set(pairs))
    sides = [
        (int(home[source]), int(home[target]))
        for step in np.flatnonzero(program.same_ops).tolist()
        for source, target in zip(ops[step].operands, ops[step].results, strict=True)
    ]
    for one, other in (*lost, *sides):
        head[of(one)] = of(other)
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for pair in lost:
        found[of(pair[0])].append(pair)
    return found


# carries under a plan -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HandedOn:
    """The buffers that a loop passes from turn to turn, as a plan places them."""

    together: frozenset[int]
    """The carries, and the buffers that are moved into a carry at the same address."""
    exchanged: frozenset[frozenset[int]]
    """Pairs of a move's operand and a carry at the operand's address, if another move of the same
    turn writes to that address. Only turns with at least two such operands count.
    """
    astray: frozenset[int]
    """The carries, and buffers moved into a carry, that a plan placed in each other's arenas."""

    def holds(self, one: int, other: int) -> bool:
        """Whether both buffers are in `together`, or the two are a pair of `exchanged`."""
        return {one, other} <= self.together or frozenset((one, other)) in self.exchanged


def handed_on(loop: CarriedLoop, plan: Plan | None) -> HandedOn:
    """Return the buffers that a loop passes on; without a plan, only the carries. O(moves)."""
    if plan is None:
        return HandedOn(loop.carries, frozenset(), frozenset())

    def place(buffer: int) -> tuple[int, int]:
        return int(plan.arena[buffer]), int(plan.offset[buffer])

    laid = [move for move in loop.moves if plan.placed[move.source] and plan.placed[move.target]]
    elided = {move.source for move in laid if place(move.source) == place(move.target)}
    turns: dict[int, list[CarryMove]] = defaultdict(list)
    for move in laid:
        if move.source not in elided:
            turns[move.turn].append(move)
    lying: dict[tuple[int, int], set[int]] = defaultdict(set)
    for buffer in loop.carries:
        lying[place(buffer)].add(buffer)
    exchanged: set[frozenset[int]] = set()
    for moves in turns.values():
        taken = {place(move.target) for move in moves}
        strayed = {move.source for move in moves if place(move.source) in taken}
        if len(strayed) > 1:
            exchanged |= {frozenset((one, other)) for one in strayed for other in lying[place(one)] if one != other}
    wanted, handed = plan.program.buffers.arena, loop.carries.union(move.source for move in loop.moves)
    lies = {b: (int(wanted[b]), int(plan.arena[b])) for b in handed if plan.placed[b]}
    ways = set(lies.values())
    astray = frozenset(b for b, (told, found) in lies.items() if told != found and (found, told) in ways)
    return HandedOn(loop.carries | elided, frozenset(exchanged), astray)
