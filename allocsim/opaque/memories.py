"""What reads want, apart, and what they find where a plan puts them: numbers of opaque kernels.

A *step* is (run, op). `Apart.of` runs a group in the order of the list; `differences` runs it under
its plans in any order, and lists the reads that find other numbers. Numbers are uint64, one a cell.

What this module does not see: what is a defect.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.judge.fast.facts import KindsTable, rows_of
from allocsim.model import BYTES, EXACT, HOST_READ, UNPLACED, VIEW, WHOLE, Document, Op, Run
from allocsim.model.layout import Int64s
from allocsim.opaque.memory_cells import Cells, Grid, inside, listed, moved, pieces, ranges

Numbers = NDArray[np.uint64]

Step = tuple[int, int]

Read = tuple[int, int, int]
"""Run, op and value."""

MASK: Final = (1 << 64) - 1
STRIDE: Final = 0x9E3779B97F4A7C15
NOBODY, CONTENT, KERNEL, CLEARED = (stage << 60 for stage in range(1, 5))
"""Seeds of what nobody wrote, of what was there before the session, of results, and of results that
are not final yet.
"""


def spread(numbers: Numbers) -> Numbers:
    """Return numbers mixed: a bijection in which each bit depends on all (MurmurHash3, public
    domain).
    """
    found = numbers.copy()
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        found ^= found >> np.uint64(33)
        found *= np.uint64(factor)
    return found ^ (found >> np.uint64(33))


def drawn(seed: int, count: int) -> Numbers:
    """Return `count` numbers of a seed."""
    return spread(np.arange(count, dtype=np.uint64) * np.uint64(STRIDE) + np.uint64(seed & MASK))


def digest(seed: int, reads: Iterable[Numbers]) -> int:
    """Return one number made of a seed and of all numbers read, each at its place."""
    for read in reads:
        placed = spread(read + drawn(KERNEL, len(read)))
        seed = int(spread(np.array([(seed * STRIDE + int(placed.sum(dtype=np.uint64))) & MASK], dtype=np.uint64))[0])
    return seed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WrongRead:
    """A read that finds other numbers than it wants."""

    run: int
    op: int
    value: int
    cells: Int64s
    """Cells of the buffer that differ, ascending."""
    found: Numbers
    """The numbers in them."""
    wanted: Numbers
    in_place: bool
    """Whether the op's own results were there, written before it had read."""

    @property
    def read(self) -> Read:
        """Run, op and value."""
        return self.run, self.op, self.value

    def alike(self, other: "WrongRead | None") -> bool:
        """Return whether another replay finds the same numbers in the same cells."""
        return other is not None and np.array_equal(self.cells, other.cells) and np.array_equal(self.found, other.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a replay under the plans comes to."""

    differences: tuple[WrongRead, ...]
    host: tuple[WrongRead, ...]
    """Reads by the host that differ where ops make theirs of what they find."""


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """Runs that share a memory, with their cells and what their kernels promise."""

    document: Document
    numbers: tuple[int, ...]
    grid: Grid
    kinds: Mapping[str, Sequence[tuple[int, int, str, int]]]
    strict: bool
    _picks: dict[tuple[int, int, int], Int64s] = field(default_factory=dict)

    @classmethod
    def of(
        cls, document: Document, numbers: Sequence[int], grid: Grid, kinds: KindsTable | None, *, strict: bool
    ) -> "RunGroup":
        """Gather them; ModelError for a malformed table of kinds."""
        return cls(document=document, numbers=tuple(numbers), grid=grid, kinds=rows_of(kinds), strict=strict)

    def run(self, number: int) -> Run:
        """Return a run by its place in the group."""
        return self.document.runs[self.numbers[number]]

    def cells(self, run: int, value: int) -> Cells:
        """Return the cells of a value in its buffer."""
        return self.grid.of(run, self.run(run).program, value)

    def apart(self, run: int, value: int) -> Cells:
        """Return the cells of a value in the memory apart."""
        buffer = int(self.run(run).program.values.buffer[value])
        return moved(self.cells(run, value), self.grid.apart[self.grid.laid[run].identity[buffer]])

    def planned(self, run: int, value: int) -> Cells:
        """Return the cells of a value in the memory of the plans."""
        buffer = int(self.run(run).program.values.buffer[value])
        return moved(self.cells(run, value), self.grid.planned[self.grid.laid[run].place[buffer]])

    def order(self) -> list[Step]:
        """Return the steps in the order of the list, without uploads left out; late looks behind
        the run that they follow.
        """
        late: dict[int, list[Step]] = {}
        found: list[Step] = []
        for run in range(len(self.numbers)):
            ran = self.run(run)
            ops, skip = ran.program.ops, frozenset(ran.skip)
            looks = ops.is_kind(HOST_READ)
            for step in np.flatnonzero(~ops.is_kind(VIEW)).tolist():
                if step in skip:
                    continue
                behind = found if ran.read_after is None or not looks[step] else late.setdefault(ran.read_after, [])
                behind.append((run, step))
            found += late.pop(run, ())
        return found

    def content(self, memory: Numbers, *, planned: bool) -> None:
        """Lay the content of what lasts, once, where the first run that has it puts it."""
        laid = set()
        for where, run in zip(self.grid.laid, map(self.run, range(len(self.numbers))), strict=True):
            for buffer in np.flatnonzero(run.program.buffers.persistent).tolist():
                identity = where.identity[buffer]
                if identity in laid:
                    continue
                laid.add(identity)
                if planned and run.plan.arena[buffer] == UNPLACED:
                    continue
                start = self.grid.planned[where.place[buffer]] if planned else self.grid.apart[identity]
                count = len(self.grid.cuts[where.sort[buffer]]) - 1
                memory[start : start + count] = drawn(CONTENT + (len(laid) << 32), count)

    def results(self, run: int, op: Op, reads: Sequence[Numbers], stage: int = KERNEL) -> list[Numbers]:
        """Return what an op gives to each of its results."""
        program = self.run(run).program
        counts = [len(listed(self.cells(run, value))) for value in op.results]
        seed = stage + (run << 40) + (op.step << 8)
        if program.same_ops[op.step] and stage == KERNEL:
            unknown = [drawn(NOBODY + seed, count) for count in counts]
            picks = [self._picked(run, op, position) for position in range(len(op.results))]
            return [
                np.where(pick >= 0, read[pick] if len(read) else none, none)
                for pick, read, none in zip(picks, reads, unknown, strict=True)
            ]
        whole = digest(seed, reads)
        return [drawn(whole + (position + 1) * (STRIDE >> 7), count) for position, count in enumerate(counts)]

    def _picked(self, run: int, op: Op, position: int) -> Int64s:
        """Return for each cell of a result of a `same` which number of its operand it gets, -1 for
        none.
        """
        program = self.run(run).program
        key = id(program), op.step, position
        if key in self._picks:
            return self._picks[key]
        source, target = op.operands[position], op.results[position]
        chunks = inside(program, source, target)
        sides = []
        for side, value in enumerate((source, target)):
            cuts = self.grid.cuts[self.grid.laid[run].sort[int(program.values.buffer[value])]]
            low, high = (np.searchsorted(cuts, at) for at in (chunks[:, side], chunks[:, side] + chunks[:, 2]))
            sides.append(np.searchsorted(listed(self.cells(run, value)), ranges(low, high)[0]))
        pick = np.full(len(listed(self.cells(run, target))), -1, dtype=np.int64)
        pick[sides[1]] = sides[0]
        self._picks[key] = pick
        return pick

    def written(self, run: int, op: Op, where: Callable[[int, int], Cells]) -> list[Cells | None]:
        """Return the cells that an op writes for each of its results.

        None where both sides of a `same` lie at one address, since nothing moves.
        """
        found = [where(run, value) for value in op.results]
        if not self.run(run).program.same_ops[op.step]:
            return found
        picks = (self._picked(run, op, position) for position in range(len(found)))
        sources = (listed(where(run, value)) for value in op.operands)
        return [
            None if (pick >= 0).all() and np.array_equal(source[pick], listed(cells)) else cells
            for pick, source, cells in zip(picks, sources, found, strict=True)
        ]

    def kept(self, run: int, value: int) -> bool:
        """Return whether the plan has a place for the buffer of a value: else nothing is kept
        there.
        """
        ran = self.run(run)
        return int(ran.plan.arena[ran.program.values.buffer[value]]) != UNPLACED

    def late(self, run: int, op: Op) -> frozenset[int]:
        """Return the positions of the operands that the worst kernel that keeps its promises reads
        after it has written a result over them.
        """
        reads, writes = ([self.planned(run, value) for value in values] for values in (op.operands, op.results))
        (low, high), (begin, end) = (np.array([_hull(cells) for cells in some]).T for some in (reads, writes))
        near = np.argwhere((low[:, None] < end) & (begin < high[:, None])).tolist()
        found: set[int] = set()
        for position, other in near:
            if position not in found and meet(reads[position], writes[other]):
                found |= set() if self._vouched(run, op, position, other) else {position}
        return frozenset(found)

    def _vouched(self, run: int, op: Op, position: int, other: int) -> bool:
        """Return whether the document vouches for an operand and a result as the plan lays them."""
        program = self.run(run).program
        operand, result = op.operands[position], op.results[other]
        strengths = self._strengths(op, (position, other))
        if WHOLE in strengths:
            return True
        if program.same_ops[op.step]:
            return np.array_equal(listed(self.planned(run, operand)), listed(self.planned(run, result)))
        if not strengths or self._begins(run, operand) != self._begins(run, result):
            return False
        one, another = program.values[operand], program.values[result]
        if EXACT in strengths and one.same_layout(another):
            return True
        smaller = bool(program.values.nbytes[result] <= program.values.nbytes[operand])
        return BYTES in strengths and smaller and all(len(pieces(side)[0]) == 1 for side in (one, another))

    def _strengths(self, op: Op, pair: tuple[int, int]) -> set[int]:
        """Return what is promised of a pair; where nobody knows, `exact`."""
        if op.in_place is not None:
            return {strength for said, strength in zip(op.in_place, op.strengths, strict=True) if said == pair}
        rows = [row[2:] for row in self.kinds.get(op.kind, ()) if row[:2] == pair]
        if any(says == "unsafe" for says, _ in rows):
            return set()
        return {strength for says, strength in rows if says == "safe"} or (set() if self.strict else {EXACT})

    def _begins(self, run: int, value: int) -> Any:
        program = self.run(run).program
        space, base = self.grid.laid[run].place[int(program.values.buffer[value])]
        row = program.values[value]
        return space, base + 8 * row.offset + row.bit_offset


def _hull(cells: Cells) -> tuple[int, int]:
    """Return the first of some cells and the one behind the last."""
    if isinstance(cells, slice):
        return cells.start, cells.stop
    return (int(cells[0]), int(cells[-1]) + 1) if len(cells) else (0, 0)


def meet(one: Cells, other: Cells) -> bool:
    """Return whether two sets of cells share one."""
    if isinstance(one, slice) and isinstance(other, slice):
        return bool(max(one.start, other.start) < min(one.stop, other.stop))
    return bool(np.intersect1d(listed(one), listed(other)).size)


@dataclass(frozen=True, kw_only=True)
class Apart:
    """What each read of a group wants, and what each op gives."""

    wanted: dict[Read, Numbers]
    """By run, op and value."""
    given: dict[tuple[int, int], Numbers]
    """By run and value."""

    @classmethod
    def of(cls, group: RunGroup) -> "Apart":
        """Run a group in the order of the list, each buffer in memory of its own."""
        memory = drawn(NOBODY, group.grid.sizes[0])
        group.content(memory, planned=False)
        wanted: dict[Read, Numbers] = {}
        given: dict[tuple[int, int], Numbers] = {}
        for run in range(len(group.numbers)):
            skip, program = frozenset(group.run(run).skip), group.run(run).program
            for step in np.flatnonzero(~program.ops.is_kind(VIEW)).tolist():
                if step in skip:
                    continue
                op = program.ops[step]
                for value in op.operands:
                    made = given.get((run, value))
                    wanted[run, step, value] = memory[group.apart(run, value)].copy() if made is None else made
                reads = [wanted[run, step, value] for value in op.operands]
                if program.same_ops[step]:  # it hands on what it finds
                    reads = [memory[group.apart(run, value)].copy() for value in op.operands]
                results = group.results(run, op, reads)
                lay(memory, group.written(run, op, group.apart), results)
                given |= {(run, value): numbers for value, numbers in zip(op.results, results, strict=True)}
        return cls(wanted=wanted, given=given)


def differences(group: RunGroup, apart: Apart, order: Sequence[Step]) -> Seen:
    """Run a group under its plans, its steps in an order that they allow."""
    planned = drawn(NOBODY + (1 << 50), group.grid.sizes[1])
    group.content(planned, planned=True)
    followed = planned.copy()
    single: list[WrongRead] = []
    host: list[WrongRead] = []
    for run, step in order:
        program = group.run(run).program
        op = program.ops[step]
        cells = [group.planned(run, value) for value in op.operands]
        wants = [apart.wanted[run, step, value] for value in op.operands]
        targets = [
            at if group.kept(run, value) else None
            for value, at in zip(op.results, group.written(run, op, group.planned), strict=True)
        ]
        late = group.late(run, op) if op.results and op.operands else frozenset()
        reads, follows = ([memory[at].copy() for at in cells] for memory in (planned, followed))
        results = [apart.given[run, value] for value in op.results]
        if program.same_ops[step]:  # it hands on what it finds, but for what has no place: that is told once
            kept = [group.kept(run, value) for value in op.operands]
            results = group.results(
                run, op, [one if at else want for one, at, want in zip(reads, kept, wants, strict=True)]
            )
        for memory, some in ((planned, reads), (followed, follows)) if late else ():
            lay(memory, targets, group.results(run, op, some, CLEARED))
            for position in late:
                some[position] = memory[cells[position]].copy()
        for found, some in ((single, reads), (host, follows if op.kind == HOST_READ else [])):
            for position, (read, want) in enumerate(zip(some, wants, strict=False)):
                wrong = np.flatnonzero(read != want)
                if len(wrong):
                    found.append(
                        WrongRead(
                            run=group.numbers[run],
                            op=step,
                            value=op.operands[position],
                            cells=listed(group.cells(run, op.operands[position]))[wrong],
                            found=read[wrong],
                            wanted=want[wrong],
                            in_place=position in late,
                        )
                    )
        lay(planned, targets, results)
        lay(followed, targets, group.results(run, op, follows) if op.results else [])
    return Seen(differences=tuple(single), host=tuple(host))


def lay(memory: Numbers, targets: Sequence[Cells | None], results: Sequence[Numbers]) -> None:
    """Write results where they have a place and move."""
    for at, numbers in zip(targets, results, strict=True):
        if at is not None:
            memory[at] = numbers


def exchanged(group: RunGroup, one: Step, other: Step) -> list[Step] | None:
    """Return an order in which that of two steps which comes later runs just before the other, with
    what it waits for; None if it waits for the other. O(steps + waits).

    All that comes before both stays there: the one may have to overwrite, or to be overwritten by,
    what was written long before.
    """
    order = group.order()
    place = {step: at for at, step in enumerate(order)}
    if not {one, other} <= set(place):
        return None
    first, second = sorted((one, other), key=place.__getitem__)
    at = place[first]
    before, behind = _waits(group)
    needed: set[Step] = set()
    entered: set[int] = set()
    asked = [second]
    while asked:
        step = asked.pop()
        if step in needed:
            continue
        needed.add(step)
        asked += before[step]
        run = step[0]
        if run not in entered:
            entered.add(run)
            waits = group.run(run).after
            for earlier in range(run) if waits is None else waits:
                asked += behind[earlier]
    if first in needed:
        return None
    rest = order[at:]
    return order[:at] + [step for step in rest if step in needed] + [step for step in rest if step not in needed]


def _waits(group: RunGroup) -> tuple[dict[Step, list[Step]], list[list[Step]]]:
    """Return what each step of a group waits for, and, for each run, what those wait for that wait
    for it: its steps, else what it waits for itself, and the late looks behind it, for which
    nothing else waits.
    """
    before: dict[Step, list[Step]] = {}
    behind: list[list[Step]] = []
    late: dict[int, list[Step]] = {}
    for run, ran in enumerate(map(group.run, range(len(group.numbers)))):
        last: dict[int, Step] = {}
        mine: list[Step] = []
        reads = ran.program.ops.is_kind(HOST_READ)
        for op in ran.program.ops:
            before[run, op.step] = [last[op.stream]] if op.stream in last else []
            before[run, op.step] += [(run, other) for other in op.after if ran.read_after is None or not reads[other]]
            if ran.read_after is not None and reads[op.step]:
                late.setdefault(ran.read_after, []).append((run, op.step))
                continue
            mine.append((run, op.step))
            last[op.stream] = run, op.step
        waits = range(run) if ran.after is None else ran.after
        looks = late.pop(run, [])
        for look in looks:
            before[look] += mine
        behind.append([*(mine or dict.fromkeys(step for earlier in waits for step in behind[earlier])), *looks])
    return before, behind
