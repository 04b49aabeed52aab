"""What a replay says of each accusation: the numbers that differ, or that none did.

An accusation is the violations of one cause. A late read, a read of what nobody wrote and a result
over an operand are looked up in the replay by run, op and value; a race is replayed with its later
op first. What concerns beliefs, sizes, alignments and books changes no number by itself.

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
from allocsim.model import UNPLACED, Document, index_of
from allocsim.opaque.memories import Apart, RunGroup, Seen, WrongRead, differences, exchanged
from allocsim.opaque.memory_cells import byte_ranges, grid_of
from allocsim.printable import one_line

RULE_ALONE: Final = "the plan breaks its rule; no number differed on this input"

NOT_TRIED: Final = "this race was not replayed (--replay)"

UNASKED: Final = 10_000
"""Ops that are run where no replay was asked for: with races, those of each order tried."""

SHOWN: Final = 3
"""Ranges of bytes, and reads by the host, that a sentence names."""

Key = tuple[int | None, int | None, int | None]
"""Run, op and value; of what has no slot, no run, plan and buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAnswer:
    """What a replay says of a document and of each accusation."""

    numbers: tuple[str, ...] = ()
    """For each accusation, in their order."""
    differs: tuple[bool, ...] = ()
    """Whether numbers differ in it."""
    host: tuple[str, ...] = ()
    """What the host reads otherwise, where every op works with what it finds; the first few."""
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
        """`not run`, `clean` or `found`."""
        if self.why_not is not None:
            return "not run"
        return "found" if any(self.differs) or self.unaccounted else "clean"

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        fields = ("state", "why_not", "numbers", "differs", "host", "unaccounted", "ops", "reads", "cells")
        return {name: list(found) if isinstance(found := getattr(self, name), tuple) else found for name in fields}

    def lines(self) -> Iterator[str]:
        """Yield, for a terminal, what was run and what the host reads in the end."""
        if self.why_not is not None:
            yield f"not replayed: {self.why_not}"
            return
        found = "; ".join(self.host) or "the host reads no other number"
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
        self.by_place: dict[Key, WrongRead] = {}
        for one in self.seen.differences:
            self.by_place.setdefault((one.run, one.op, one.value), one)
            self.by_place.setdefault(self.unplaced(one), one)

    def unplaced(self, one: WrongRead) -> Key:
        """Return plan and buffer of a read from a buffer that has no slot."""
        run = self.group.document.runs[one.run]
        buffer = int(run.program.values.buffer[one.value])
        none = run.plan.arena[buffer] == UNPLACED
        return (None, index_of(self.group.document.plans, run.plan), buffer) if none else (None, None, None)

    def raced(self, v: Violation) -> tuple[WrongRead, ...]:
        """Return the reads that differ, and else do not, where the op of a race that comes later
        goes first.
        """
        place = {number: at for at, number in enumerate(self.group.numbers)}
        late, early = (v.run, v.op), (v.run if v.other_run is None else v.other_run, v.other_op)
        steps = [(place[run], op) for run, op in (early, late) if run in place and op is not None]
        order = exchanged(self.group, steps[0], steps[1]) if len(steps) == 2 else None
        if order is None:
            return ()
        seen: Seen = differences(self.group, self.apart, order)
        return tuple(one for one in seen.differences if (one.run, one.op, one.value) not in self.by_place)

    def words(self, one: WrongRead, how: str = "") -> str:
        """Return a difference in a sentence."""
        program = self.group.document.runs[one.run].program
        run = self.group.numbers.index(one.run)
        buffer = int(program.values.buffer[one.value])
        cuts = self.group.grid.cuts[self.group.grid.laid[run].sort[buffer]]
        runs = byte_ranges(cuts, one.cells.tolist())
        shown = ", ".join(f"[{low}, {high})" for low, high in runs[:SHOWN]) + ", ..." * (len(runs) > SHOWN)
        several = f" of run {one.run}" if len(self.group.document.runs) > 1 else ""
        does = "reads, after it has written over them," if one.in_place else "reads"
        return one_line(
            f"{how}op {one.op} {program.ops.called(one.op)!r}{several} {does} {shown_number(one.found)} where "
            f"{shown_number(one.wanted)} belongs, in bytes {shown} of buffer {buffer} {program.buffers.names[buffer]!r}, "
            f"read as value {one.value} {program.values.names[one.value]!r}"
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
        accusations: the violations of each cause.
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
    known = None if found is None else {key for v in chain(found, *accusations) for key in ((v.run, v.op), _key(v))}
    return ReplayAnswer(
        numbers=tuple(text or RULE_ALONE for text in said),
        differs=tuple(text not in {None, NOT_TRIED} for text in said),
        host=tuple(_host(replays)),
        unaccounted=()
        if known is None
        else tuple(
            replay.words(one)
            for replay in replays
            for one in replay.seen.differences
            if (one.run, one.op) not in known and replay.unplaced(one) not in known
        ),
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
    return [
        GroupReplay(RunGroup.of(document, group, grid_of(document, group), kinds, strict=strict)) for group in groups
    ]


def _numbers(
    accusation: Sequence[Violation], whose: dict[int, GroupReplay], left: int | None
) -> tuple[str | None, int | None]:
    """Return the first difference that an accusation is about, in words, and the ops left to be
    run.
    """
    for v in accusation:
        for replay in dict.fromkeys(whose.values()) if v.run is None else filter(None, [whose.get(v.run)]):
            if (one := replay.by_place.get(_key(v))) is not None:
                return replay.words(one), left
    for v in accusation:
        if v.kind != "Race" or v.run is None:
            continue
        replay = whose[v.run]
        left = None if left is None else left - len(replay.order)
        if left is not None and left < 0:
            return NOT_TRIED, left
        raced = replay.raced(v)
        if raced:
            program, other = (replay.group.document.runs[run or 0].program for run in (v.run, v.other_run))
            ops = (
                f"op {step} {which.ops.called(step or 0)!r}" for which, step in ((program, v.op), (other, v.other_op))
            )
            return replay.words(raced[0], "with {} before {}, ".format(*ops)), left
    return None, left


def _key(v: Violation) -> Key:
    return (None, v.plan, v.buffer) if v.kind == "Unplaced" else (v.run, v.op, v.value)


def _host(replays: Sequence[GroupReplay]) -> Iterator[str]:
    """Yield what the host reads otherwise in the end."""
    found = [(replay, one) for replay in replays for one in replay.seen.host]
    for replay, one in found[:SHOWN]:
        program = replay.group.document.runs[one.run].program
        cells = replay.group.grid.cuts[_sort(replay, one)]
        nbits = int(np.diff(cells)[one.cells].sum())
        yield one_line(
            f"the host reads {-(-nbits // 8):,} of {int(program.values.nbytes[one.value]):,} bytes of value "
            f"{one.value} {program.values.names[one.value]!r} otherwise (op {one.op}, run {one.run})"
        )
    if len(found) > SHOWN:
        yield f"and {len(found) - SHOWN} more of its reads"


def _sort(replay: GroupReplay, one: WrongRead) -> Any:
    program = replay.group.document.runs[one.run].program
    where = replay.group.grid.laid[replay.group.numbers.index(one.run)]
    return where.sort[int(program.values.buffer[one.value])]


def shown_number(number: int) -> str:
    """Return the first four bytes of a cell."""
    return f"{number & 0xFFFFFFFF:08x}"
