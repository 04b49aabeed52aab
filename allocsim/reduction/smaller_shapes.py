"""Makes shapes, sizes and addresses smaller; the same bytes keep the same relations.

    flattened(document)          all boundaries of ranges of bytes come to lie one unit apart; every value becomes one row of elements
    shortened(document)          every dimension of one length becomes 1, 2 or 3 long; strides, sizes and slots follow

`flattened` keeps order, equality and overlap of all boundaries in all arenas exactly, for values
without holes; a boundary in one side of a `same` is also one in the other side. `shortened` keeps
ranks, layouts and views, for values whose strides are those of a contiguous value in their buffer,
packed values included; slots that were apart stay apart, slots that began together begin together.
Ranges of sizes stay as they are, and packed values are not flattened. Neither function is sure to
keep a fault: the caller has to judge the smaller document.

Complexity: O(values + boundaries log boundaries) for each candidate; at most `MOST` boundaries.

What this module does not see: the fault that the caller wants to keep.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import lcm
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import Document, Plan, Problem, Program, Value
from allocsim.model.layout import dense_nbytes, dense_strides
from allocsim.reduction.parts import rebuilt

MOST: Final = 4096
"""Most boundaries, and most bytes of a unit, of a document that is flattened."""

Key = tuple[int, int] | str
"""A buffer: (program, index), or the name of a persistent buffer."""


# every boundary a unit ----------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Map:
    """The boundaries of arenas and of buffers, and their new positions."""

    unit: int
    arenas: dict[int, set[int]] = field(default_factory=dict)
    local: dict[Key, set[int]] = field(default_factory=dict)
    places: dict[Key, set[tuple[int, int]]] = field(default_factory=dict)
    """Buffer -> (arena, offset) in every plan that puts it into an arena."""
    sides: list[tuple[Key, Key, int, int, int]] = field(default_factory=list)
    """The two sides of each `same`: both buffers, the start in each, and the number of bytes."""
    _known: dict[Any, dict[int, int]] = field(default_factory=dict)

    def settle(self) -> bool:
        """Copy boundaries between buffers and arenas that share bytes until no new ones appear.

        Return False if there are too many.
        """
        while True:
            before = self._count()
            if before > MOST:
                return False
            for key, places in self.places.items():
                mine = self.local[key]
                low, high = min(mine), max(mine)
                for arena, offset in places:
                    here = self.arenas[arena]
                    here |= {offset + boundary for boundary in mine}
                    mine |= {boundary - offset for boundary in here if low <= boundary - offset <= high}
            for one, other, start, begin, nbytes in self.sides:
                inside = {at - start for at in self.local[one]} | {at - begin for at in self.local[other]}
                kept = {at for at in inside if 0 <= at <= nbytes}
                self.local[one] |= {start + at for at in kept}
                self.local[other] |= {begin + at for at in kept}
            if self._count() == before:
                return True

    def address(self, arena: int, offset: int) -> int:
        """Return the new address for an offset in an arena."""
        return self._ranks(arena, self.arenas[arena])[offset]

    def within(self, key: Key, boundary: int) -> int:
        """Return the new position for a boundary in a buffer."""
        places = self.places.get(key)
        if not places:
            return self._ranks(("local", key), self.local[key])[boundary]
        arena, offset = min(places)
        return self.address(arena, offset + boundary) - self.address(arena, offset)

    def _ranks(self, name: Any, boundaries: set[int]) -> dict[int, int]:
        if name not in self._known:
            ordered = sorted(boundaries)
            zero = ordered.index(0)
            self._known[name] = {boundary: (rank - zero) * self.unit for rank, boundary in enumerate(ordered)}
        return self._known[name]

    def _count(self) -> int:
        return sum(map(len, self.arenas.values())) + sum(map(len, self.local.values()))


def flattened(document: Document) -> Document | None:
    """Return the document with every boundary one unit from the next.

    The answer is None if a value has holes or the document would not get smaller.
    """
    if not all(program.values.dense.all() for program in document.programs):
        return None
    found = _boundaries(document)
    if found is None or not found.settle():
        return None
    programs = [_flat_program(program, index, found) for index, program in enumerate(document.programs)]
    at = {id(program): index for index, program in enumerate(document.programs)}
    problems = [_flat_problem(problem, found, programs[at[id(problem.program)]]) for problem in document.problems]
    plans = [_flat_plan(plan, found) for plan in document.plans]
    made = rebuilt(document, programs=programs, problems=problems, plans=plans)
    return made if _weight(made) < _weight(document) else None


def _key(program: Program, index: int, buffer: int) -> Key:
    return program.buffers.names[buffer] if program.buffers.persistent[buffer] else (index, buffer)


def _boundaries(document: Document) -> _Map | None:
    if any(program.values.packed.any() or program.buffers.nbytes_range for program in document.programs):
        return None
    sizes = {
        int(size) for program in document.programs for size in (*program.values.itemsize, *program.buffers.alignment)
    }
    unit = lcm(*sizes, *(arena.alignment for arena in document.arenas)) if sizes else 1
    if unit > MOST or sum(len(program.values) for program in document.programs) > MOST:
        return None
    found = _Map(unit=unit, arenas={index: {0} for index in range(len(document.arenas))})
    if any(arena.capacity is not None for arena in document.arenas):
        return None  # the capacity of an arena may be part of the fault
    at = {id(program): index for index, program in enumerate(document.programs)}
    for index, program in enumerate(document.programs):
        for buffer, nbytes in enumerate(program.buffers.nbytes.tolist()):
            found.local.setdefault(_key(program, index, buffer), {0}).add(nbytes)
        for buffer, (low, high) in zip(program.values.buffer.tolist(), program.values.hulls.tolist(), strict=True):
            found.local[_key(program, index, buffer)] |= {low, high}
        found.sides += _sides(program, index)
    pairs = {(id(run.plan), id(run.program)): (run.plan, run.program) for run in document.runs}
    for plan, program in (*pairs.values(), *((plan, plan.program) for plan in document.plans)):
        for buffer in np.flatnonzero(plan.placed).tolist():
            arena, offset = int(plan.arena[buffer]), int(plan.offset[buffer])
            found.places.setdefault(_key(program, at[id(program)], buffer), set()).add((arena, offset))
            found.arenas[arena] |= {offset, offset + int(plan.nbytes[buffer])}
    for problem in document.problems:
        for buffer, offset in problem.fixed.items():
            found.arenas[int(problem.program.buffers.arena[buffer])].add(offset)
    return found


def _sides(program: Program, index: int) -> Iterator[tuple[Key, Key, int, int, int]]:
    """Yield the two sides of each `same` whose values have no holes."""
    home, hulls = program.values.buffer, program.values.hulls
    for step in np.flatnonzero(program.same_ops).tolist():
        op = program.ops[step]
        for one, other in zip(op.operands, op.results, strict=True):
            (start, end), begin = hulls[one].tolist(), int(hulls[other, 0])
            keys = (_key(program, index, int(home[value])) for value in (one, other))
            yield *keys, start, begin, end - start


def _flat_program(program: Program, index: int, found: _Map) -> Program:
    values, buffers = program.values, program.buffers
    keys = [_key(program, index, buffer) for buffer in range(len(buffers))]
    owner, hulls = values.buffer.tolist(), values.hulls.tolist()
    moved = [[found.within(keys[b], at) for at in hull] for b, hull in zip(owner, hulls, strict=True)]
    low, high = np.array(moved, dtype=np.int64).reshape(-1, 2).T
    count = len(values)
    return replace(
        program,
        buffers=replace(
            buffers,
            nbytes=np.array([found.within(keys[b], n) for b, n in enumerate(buffers.nbytes.tolist())], dtype=np.int64),
        ),
        values=replace(
            values,
            offset=low,
            dim_starts=np.arange(count + 1, dtype=np.int64),
            shape=(high - low) // values.itemsize,
            strides=values.itemsize,
        ),
    )


def _flat_problem(problem: Problem, found: _Map, program: Program) -> Problem:
    arena = program.buffers.arena
    return replace(
        problem,
        nbytes=_believed_sizes(problem, program, found.unit),
        fixed={buffer: found.address(int(arena[buffer]), offset) for buffer, offset in problem.fixed.items()},
    )


def _believed_sizes(problem: Problem, program: Program, unit: int) -> Any:
    """Return believed sizes that compare with the new sizes as the old ones did with the old sizes:
    equal, too small or too large.
    """
    old, new = problem.program.buffers.nbytes, program.buffers.nbytes
    small, large = problem.nbytes < old, problem.nbytes > old
    return np.where(small, np.maximum(new - 1, 0), np.where(large, new + unit, new)).astype(np.int64)


def _flat_plan(plan: Plan, found: _Map) -> Plan:
    offset, nbytes = plan.offset.copy(), plan.nbytes.copy()
    for buffer in np.flatnonzero(plan.placed).tolist():
        arena, at = int(plan.arena[buffer]), int(plan.offset[buffer])
        offset[buffer] = found.address(arena, at)
        nbytes[buffer] = found.address(arena, at + int(plan.nbytes[buffer])) - offset[buffer]
    return replace(plan, offset=offset, nbytes=nbytes)


def _weight(document: Document) -> tuple[int, int, int]:
    """Return bytes, dimensions and distances of a document, which flattening should reduce."""
    nbytes = sum(sum(program.buffers.nbytes.tolist()) for program in document.programs)  # Python ints: no sum wraps
    distances = sum(sum(map(abs, plan.offset.tolist())) + sum(plan.nbytes.tolist()) for plan in document.plans)
    return nbytes, distances, sum(len(program.values.shape) for program in document.programs)


# one length after the other -----------------------------------------------------------------------


def lengths(document: Document) -> list[int]:
    """Return the lengths of dimensions that could be shorter, the largest first."""
    found = {length for program in document.programs for length in program.values.shape.tolist() if length > 1}
    return sorted(found, reverse=True)


def shortened(document: Document, old: int, new: int) -> Document | None:
    """Return the document in which every dimension of length `old` has length `new`.

    The answer is None if a stride or an offset has no counterpart in the new shapes.
    """
    programs: list[Program] = []
    for program in document.programs:
        made = _short_program(program, old, new)
        if made is None:
            return None
        programs.append(made)
    at = {id(program): made for program, made in zip(document.programs, programs, strict=True)}
    problems = [
        replace(
            problem,
            nbytes=_believed_sizes(problem, at[id(problem.program)], 1),
            fixed={} if problem.fixed else problem.fixed,
        )
        for problem in document.problems
    ]
    plans = [_packed(plan, at[id(plan.program)]) for plan in document.plans]
    return rebuilt(document, programs=programs, problems=problems, plans=plans)


def _short_program(program: Program, old: int, new: int) -> Program | None:
    if program.buffers.nbytes_range:
        return None
    values = list(program.values)
    shapes = [tuple(new if length == old else length for length in value.shape) for value in values]
    scale: dict[int, dict[int, int]] = {}
    for value, shape in zip(values, shapes, strict=True):
        if value.strides == dense_strides(value.shape, value.width):
            table = scale.setdefault(value.buffer, {0: 0})
            for before, after in zip(value.strides, dense_strides(shape, value.width), strict=True):
                table.setdefault(before, after)
            table.setdefault(dense_nbytes(value.shape, value.width), dense_nbytes(shape, value.width))
            table.setdefault(value.itemsize, value.itemsize)
    strides, offsets = [], []
    for value, shape in zip(values, shapes, strict=True):
        table = scale.get(value.buffer, {0: 0})
        if value.strides == dense_strides(value.shape, value.width):
            strides.append(dense_strides(shape, value.width))
        elif any(abs(stride) not in table for stride in value.strides):
            return None
        else:
            strides.append(tuple(table[abs(stride)] * (1 if stride >= 0 else -1) for stride in value.strides))
        offset = _scaled(value.offset, table)
        if offset is None:
            return None
        offsets.append(offset)
    table_of_values = replace(
        program.values,
        offset=np.array(offsets, dtype=np.int64),
        shape=np.array([length for shape in shapes for length in shape], dtype=np.int64),
        strides=np.array([stride for row in strides for stride in row], dtype=np.int64),
    )
    try:
        return replace(
            program,
            values=table_of_values,
            buffers=replace(program.buffers, nbytes=_sizes(program, values, table_of_values)),
        )
    except ModelError:
        return None  # the sides of a `same` have different shapes, and no longer equal sizes


def _scaled(offset: int, table: Mapping[int, int]) -> int | None:
    """Return the offset that is as many steps of each new stride away as the old one was."""
    scaled, left = 0, offset
    for stride in sorted((stride for stride in table if stride), reverse=True):
        scaled += left // stride * table[stride]
        left %= stride
    return scaled if not left else None


def _sizes(program: Program, values: list[Value], table: Any) -> Any:
    """Return the sizes of buffers: the end of their values, and as many bytes more as before."""
    sizes = program.buffers.nbytes.copy()
    reach, reached = np.zeros_like(sizes), np.zeros_like(sizes)
    buffer = np.array([value.buffer for value in values], dtype=np.int64)
    np.maximum.at(reach, buffer, program.values.hulls[:, 1])
    np.maximum.at(reached, buffer, table.hulls[:, 1])
    touched = np.isin(np.arange(len(sizes)), buffer)
    return np.where(touched, np.maximum(reached + (sizes - reach), 0), sizes)


def _packed(plan: Plan, program: Program) -> Plan:
    """Return the plan with slots as close as the order and the overlaps of the old ones allow."""
    offset = plan.offset.copy()
    grown = plan.nbytes - plan.program.buffers.nbytes
    nbytes = np.where(plan.placed, np.maximum(program.buffers.nbytes + grown, 0), 0)
    unit = max(lcm(*program.buffers.alignment.tolist()), 1) if len(program.buffers) else 1
    for arena in range(len(program.arenas)):
        here = np.flatnonzero(plan.arena == arena)
        new_start: dict[int, int] = {}
        for start in sorted(set(plan.offset[here].tolist())):
            if start < 0 or start % unit:
                new_start[start] = start
                continue
            floor = 0
            for buffer in here.tolist():
                earlier = int(plan.offset[buffer])
                if earlier < start and earlier in new_start:
                    apart = earlier + int(plan.nbytes[buffer]) <= start
                    floor = max(floor, new_start[earlier] + (int(nbytes[buffer]) if apart else 1))
            new_start[start] = -(-floor // unit) * unit
        for buffer in here.tolist():
            offset[buffer] = new_start[int(plan.offset[buffer])]
    return replace(plan, offset=offset, nbytes=nbytes)


def shorter(document: Document) -> Iterator[Callable[[Document], Document | None]]:
    """Yield functions that shorten one length of a document: the largest length first, and for each
    length the shortest result first.
    """
    for old in lengths(document):
        for new in range(1, min(old, 4)):
            yield lambda best, old=old, new=new: shortened(best, old, new)  # type: ignore[misc]


SHRINKS: Final[dict[str, Callable[[Document], Iterator[Callable[[Document], Document | None]]]]] = {
    "flat": lambda _: iter((flattened,)),
    "short": shorter,
}
"""Name -> function that yields makers of smaller candidates, the most thorough one first."""
