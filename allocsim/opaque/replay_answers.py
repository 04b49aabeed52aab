"""What a replay says of each accusation: the numbers that differ, or that none did.

An accusation is the violations of one cause. A late read, a read of what nobody wrote and a result
over an operand are looked up in the replay by run, op and value; a race is replayed with its later
op just before the earlier one. What concerns beliefs, sizes, alignments and books changes no number
by itself.

What this module does not see: causes, parties and cures.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.judge.fast.facts import KindsTable
from allocsim.judge.violations import Violation
from allocsim.model import HOST_READ, UNPLACED, Document, index_of
from allocsim.model.layout import Int64s
from allocsim.opaque.memories import Apart, Read, RunGroup, Seen, Step, WrongRead, differences, exchanged
from allocsim.opaque.memory_cells import byte_ranges, grid_of
from allocsim.printable import one_line

RULE_ALONE: Final = "the plan breaks its rule; no number differed on this input"

NOT_TRIED: Final = "this race was not replayed (--replay)"

MEASURED: Final = "this was measured, and is not replayed"

UNASKED: Final = 10_000
"""Ops that are run where no replay was asked for: with races, those of each order tried."""

SHOWN: Final = 3
"""Ranges of bytes, and reads by the host, that a sentence names."""

Lost = tuple[int, int]
"""Plan and buffer, of a buffer without a slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAnswer:
    """What a replay says of a document and of each accusation."""

    numbers: tuple[str, ...] = ()
    """For each accusation, in their order."""
    differs: tuple[bool, ...] = ()
    """Whether numbers differ in it."""
    host: tuple[str, ...] = ()
    """What the host reads otherwise, where every op works with what it finds; the first few."""
    looks: bool = True
    """Whether the host reads anything."""
    unaccounted: tuple[str, ...] = ()
    """Reads that differ without a violation that says so: judge and replay disagree."""
    ops: int = 0
    reads: int = 0
    cells: int = 0
    """Numbers read."""
    why_not: str | None = None
    """Why nothing was replayed."""

    @property
    def state(self) -> str:
        """`not run`, `clean` or `found`; what was not run to the end is not clean."""
        if any(self.differs) or self.unaccounted:
            return "found"
        return "not run" if self.why_not is not None or NOT_TRIED in self.numbers else "clean"

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        fields = ("state", "why_not", "numbers", "differs", "host", "unaccounted", "ops", "reads", "cells")
        return {name: list(found) if isinstance(found := getattr(self, name), tuple) else found for name in fields}

    def lines(self) -> Iterator[str]:
        """Yield, for a terminal, what was run and what the host reads in the end."""
        if self.why_not is not None:
            yield f"not replayed: {self.why_not}"
            return
        found = "; ".join(self.host) or f"the host reads {'no other number' if self.looks else 'nothing'}"
        yield f"replayed, {self.ops} ops with opaque kernels beside one memory a value: {found}"
        for text in self.unaccounted[:SHOWN]:
            yield f"the replay differs where nothing was found: {text}"


class GroupReplay:
    """Runs that share a memory, run apart and under their plans."""

    def __init__(self, group: RunGroup) -> None:
        self.group = group
        self.apart = Apart.of(group)
        self.order = group.order()
        self.seen = differences(group, self.apart, self.order)
        self.by_read = by_read(self.seen)
        self.lost: dict[Lost, WrongRead] = {}
        for one in self.seen.differences:
            if (where := self.unplaced(one)) is not None:
                self.lost.setdefault(where, one)

    def unplaced(self, one: WrongRead) -> Lost | None:
        """Return plan and buffer of a read from a buffer that has no slot."""
        run = self.group.document.runs[one.run]
        buffer = int(run.program.values.buffer[one.value])
        none = run.plan.arena[buffer] == UNPLACED
        return (index_of(self.group.document.plans, run.plan), buffer) if none else None

    def told(self, v: Violation) -> WrongRead | None:
        """Return the read that a violation accuses, or the first of a buffer that it has no slot
        for, where it differs.
        """
        if v.kind == "Unplaced":
            return None if v.plan is None or v.buffer is None else self.lost.get((v.plan, v.buffer))
        return None if v.run is None or v.op is None or v.value is None else self.by_read.get((v.run, v.op, v.value))

    def raced(self, v: Violation) -> str | None:
        """Return in words the first read that finds something wrong in one order of the two ops of
        a race and not the same in the other; None where there is none.
        """
        place = {number: at for at, number in enumerate(self.group.numbers)}
        sides = (v.run, v.op), (v.run if v.other_run is None else v.other_run, v.other_op)
        steps = [(place[run], op) for run, op in sides if run in place and op is not None]
        order = exchanged(self.group, steps[0], steps[1]) if len(steps) == 2 else None
        if order is None:
            return None
        turned = by_read(differences(self.group, self.apart, order))
        first, second = (self.called(step) for step in sorted(steps, key=order.index))
        for reads, others, two in ((turned, self.by_read, (first, second)), (self.by_read, turned, (second, first))):
            for one in reads.values():
                if not one.alike(others.get(one.read)):
                    return self.words(one, "with {} before {}, ".format(*two))
        return None

    def called(self, step: Step) -> str:
        """Return an op in words, with its run where there are several."""
        run, op = step
        several = f" of run {self.group.numbers[run]}" if len(self.group.document.runs) > 1 else ""
        return f"op {op} {self.group.run(run).program.ops.called(op)!r}{several}"

    def cuts(self, one: WrongRead) -> Int64s:
        """Return where the buffer of a read is cut."""
        program, run = self.group.document.runs[one.run].program, self.group.numbers.index(one.run)
        return self.group.grid.cuts[self.group.grid.laid[run].sort[int(program.values.buffer[one.value])]]

    def words(self, one: WrongRead, how: str = "") -> str:
        """Return a difference in a sentence."""
        program = self.group.document.runs[one.run].program
        run = self.group.numbers.index(one.run)
        buffer = int(program.values.buffer[one.value])
        runs = byte_ranges(self.cuts(one), one.cells.tolist())
        shown = ", ".join(f"[{low}, {high})" for low, high in runs[:SHOWN]) + ", ..." * (len(runs) > SHOWN)
        does = "reads, after it has written over them," if one.in_place else "reads"
        return one_line(
            f"{how}{self.called((run, one.op))} {does} {shown_number(one.found[0])} where "
            f"{shown_number(one.wanted[0])} belongs, in bytes {shown} of buffer {buffer} "
            f"{program.buffers.names[buffer]!r}, read as value {one.value} {program.values.names[one.value]!r}"
        )


def told_by_replay(
    document: Document,
    accusations: Sequence[Sequence[Violation]],
    *,
    found: Iterable[Violation] | None = (),
    kinds: KindsTable | None = None,
    strict: bool = False,
    most: int | None = None,
) -> ReplayAnswer:
    """Replay every run of a document and say of each accusation what differs.

    Args:
        document: what was judged.
        accusations: the violations of each cause; none of what was measured.
        found: whatever else was found; None where that is not known to the end, and then nothing is
            unaccounted.
        kinds: what kernels promise where the document says that nobody knows.
        strict: whether an alias that nobody vouches for is unsafe.
        most: ops that are run at most; None for all that it takes.
    """
    ops = sum(len(run.program.ops) for run in document.runs)
    if most is not None and ops > most:
        return ReplayAnswer(why_not=f"{ops:,} ops; unasked at most {most:,} are run (--replay)")
    try:
        replays = replays_of(document, kinds, strict=strict)
    except ModelError as error:
        return ReplayAnswer(why_not=error.rule)
    whose = {run: replay for replay in replays for run in replay.group.numbers}
    left = None if most is None else most - ops
    said = []
    for accusation in accusations:
        text, left = _numbers(accusation, whose, left)
        said.append(text)
    listed = None if found is None else [*found, *chain(*accusations)]
    return ReplayAnswer(
        numbers=tuple(text or RULE_ALONE for text in said),
        differs=tuple(text not in {None, NOT_TRIED, MEASURED} for text in said),
        host=tuple(_host(replays)),
        looks=any(run.program.ops.is_kind(HOST_READ).any() for run in document.runs),
        unaccounted=()
        if listed is None
        else tuple(replay.words(one) for replay in replays for one in _unaccounted(replay, listed)),
        ops=sum(len(replay.order) for replay in replays),
        reads=sum(len(replay.apart.wanted) for replay in replays),
        cells=sum(len(numbers) for replay in replays for numbers in replay.apart.wanted.values()),
    )


def replays_of(document: Document, kinds: KindsTable | None = None, *, strict: bool = False) -> list[GroupReplay]:
    """Replay a session, or each run on its own memory where there is none.

    ModelError for what has too many cells, and for a malformed table of kinds.
    """
    every = list(range(len(document.runs)))
    groups = [every] if document.session is not None else [[run] for run in every]
    found: list[GroupReplay] = []
    touched = 0
    for group in groups:
        grid = grid_of(document, group, touched)
        touched = grid.touched
        found.append(GroupReplay(RunGroup.of(document, group, grid, kinds, strict=strict)))
    return found


def by_read(seen: Seen) -> dict[Read, WrongRead]:
    """Return reads that differ by run, op and value."""
    found: dict[Read, WrongRead] = {}
    for one in seen.differences:
        found.setdefault(one.read, one)
    return found


def _unaccounted(replay: GroupReplay, listed: Iterable[Violation]) -> Iterator[WrongRead]:
    """Yield the reads that differ and are of no op, and of no buffer without a slot, that was
    found.
    """
    ops, lost = set(), set()
    for v in listed:
        ops.add((v.run, v.op))
        lost |= {(v.plan, v.buffer)} if v.kind == "Unplaced" else set()
    for one in replay.seen.differences:
        if (one.run, one.op) not in ops and replay.unplaced(one) not in lost:
            yield one


def _numbers(
    accusation: Sequence[Violation], whose: dict[int, GroupReplay], left: int | None
) -> tuple[str | None, int | None]:
    """Return the first difference that an accusation is about, in words, and the ops left to be
    run.
    """
    if not accusation:
        return MEASURED, left
    for v in accusation:
        for replay in dict.fromkeys(whose.values()) if v.run is None else filter(None, [whose.get(v.run)]):
            if (one := replay.told(v)) is not None:
                return replay.words(one), left
    for v in accusation:
        if v.kind != "Race" or v.run is None:
            continue
        replay = whose[v.run]
        left = None if left is None else left - len(replay.order)
        if left is not None and left < 0:
            return NOT_TRIED, left
        if (raced := replay.raced(v)) is not None:
            return raced, left
    return None, left


def _host(replays: Sequence[GroupReplay]) -> Iterator[str]:
    """Yield what the host reads otherwise in the end."""
    found = [(replay, one) for replay in replays for one in replay.seen.host]
    for replay, one in found[:SHOWN]:
        program = replay.group.document.runs[one.run].program
        nbits = int(np.diff(replay.cuts(one))[one.cells].sum())
        yield one_line(
            f"the host reads {-(-nbits // 8):,} of {int(program.values.nbytes[one.value]):,} bytes of value "
            f"{one.value} {program.values.names[one.value]!r} otherwise (op {one.op}, run {one.run})"
        )
    if len(found) > SHOWN:
        yield f"and {len(found) - SHOWN} more of its reads"


def shown_number(number: np.uint64) -> str:
    """Return the first four bytes of a cell."""
    return f"{int(number) & 0xFFFFFFFF:08x}"
