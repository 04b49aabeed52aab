"""Three laws for every importer of real plans, on what it reads.

*Clean stays clean*: a plan that is believed right is. *Shift*: a slot that is moved onto bytes which are still read is found, and the plan is at
fault. *Elide*: an op that is taken out is missed by whoever reads its results, and no plan is blamed for it. What must be found is told by the
steps of reads and writes alone, with no code of the project's liveness or checks.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from allocsim.document import dumps, loads
from allocsim.errors import DocumentError
from allocsim.judge.fast import check
from allocsim.model import HOST_READ, SAME, VIEW, Document, Role
from allocsim.outcomes import JudgeRules, judge_file

PLANS = Path(__file__).parent / "data" / "plans"

DAMAGED = pytest.mark.parametrize("times", [200, pytest.param(2000, marks=pytest.mark.campaign)])
"""How often a file is damaged."""


def causes(path: Path | str) -> list[tuple[str, str]]:
    """Return class and party of each cause that `allocsim check` names."""
    outcome = judge_file(path, rules=JudgeRules(), cures=False)
    assert outcome.error is None, outcome.error
    return [(cause.class_, cause.party) for cause in outcome.causes]


def shifts(document: Document) -> Iterator[tuple[int, int, int]]:
    """Yield (plan, buffer, victim): laid at the victim's offset, the buffer is written between a write and a read of the victim's first bytes."""
    for number, plan in enumerate(document.plans):
        program = plan.program
        written: dict[int, list[int]] = {}
        read: dict[int, list[int]] = {}
        linked: set[frozenset[int]] = set()
        home = program.values.buffer
        for step, op in enumerate(program.ops):
            if op.kind == VIEW:
                continue
            for value in op.results:
                written.setdefault(int(home[value]), []).append(step)
            for value in op.operands:
                if int(program.values[value].offset) == 0 and program.values[value].shape.count(0) == 0:
                    read.setdefault(int(home[value]), []).append(step)
            if op.kind == SAME:
                linked |= {frozenset((int(home[a]), int(home[b]))) for a in op.operands for b in op.results}
        places = [b for b in range(len(program.buffers)) if plan.arena[b] >= 0 and program.buffers.nbytes[b] > 0]
        for victim in places:
            if len(written.get(victim, ())) != 1 or program.buffers.role[victim] in (Role.STATE, Role.PARAMETER):
                continue
            last = max(read.get(victim, [-1]))
            for mover in places:
                steps = written.get(mover, ())
                apart = (
                    mover != victim
                    and frozenset((mover, victim)) not in linked
                    and plan.arena[mover] == plan.arena[victim]
                )
                if (
                    apart
                    and plan.offset[mover] != plan.offset[victim]
                    and any(written[victim][0] < s < last for s in steps)
                ):
                    yield number, mover, victim


def shifted(document: Document, where: tuple[int, int, int]) -> Document:
    """Return the document with one slot moved to where another begins."""
    number, mover, victim = where
    plan = document.plans[number]
    offset = plan.offset.copy()
    offset[mover] = offset[victim]
    plans = list(document.plans)
    plans[number] = replace(plan, offset=offset)
    return Document.of(*plans)


def law_of_shift(document: Document, seed: int, most: int = 12) -> int:
    """Assert that shifted slots are found; return how many were tried."""
    found = list(shifts(document))
    drawn = random.Random(seed).sample(found, min(most, len(found)))
    for where in drawn:
        moved = Document.of(*shifted(document, where).plans)
        kinds = {v.kind for v in check(moved).violations}
        assert kinds & {"StaleRead", "UnsafeInPlace", "OverwrittenRead"}, (where, kinds)
        assert kinds & {"Overlap", "UnsafeInPlace", "ResultsOverlap"}, (where, kinds)
    return len(drawn)


def blamed(document: Document, where: tuple[int, int, int], folder: Path) -> set[str]:
    """Return the parties that `check` names for a shifted slot."""
    path = folder / "shifted.json"
    path.write_bytes(dumps(Document.of(*shifted(document, where).plans)))
    return {party for _, party in causes(path)}


def law_of_elide(document: Document, seed: int, most: int = 12) -> int:
    """Assert that a missing writer is found where its result is read, and breaks no slot; return how many were tried."""
    found = []
    for number, plan in enumerate(document.plans):
        program = plan.program
        readers = {int(v) for op in program.ops for v in op.operands}
        for step, op in enumerate(program.ops):
            alone = [v for v in op.results if np.count_nonzero(program.values.buffer == program.values.buffer[v]) == 1]
            kept = any(
                program.buffers.role[program.values.buffer[v]] in (Role.STATE, Role.PARAMETER) for v in op.results
            )
            if (
                op.kind not in (VIEW, HOST_READ)
                and not kept
                and any(v in readers and program.values[v].shape.count(0) == 0 for v in alone)
            ):
                found.append((number, step))
    drawn = random.Random(seed).sample(found, min(most, len(found)))
    for number, step in drawn:
        kinds = {v.kind for v in check(without_op(document, number, step)).violations}
        assert "UninitialisedRead" in kinds, (number, step, kinds)
        assert not kinds & {"OutOfBounds", "Undersized", "Misaligned", "Unplaced"}, (number, step, kinds)
    return len(drawn)


def without_op(document: Document, number: int, step: int) -> Document:
    """Return a document of one plan whose program lacks an op; waits for it are waits for nothing."""
    import json  # noqa: PLC0415 - only here

    text = json.loads(dumps(Document.of(replace(document.plans[number], problem=None))))
    ops = text["programs"][0]["ops"]
    del ops[step]
    for op in ops:
        if "after" in op:
            op["after"] = [a - (a > step) for a in op["after"] if a != step]
    return loads(json.dumps(text).encode())


def law_of_damage(data: bytes, loads_: Callable[[bytes, str], Document], seed: int, times: int) -> tuple[int, int]:
    """Assert that damaged bytes end in a document or in one line; return how often each came."""
    rng = random.Random(seed)
    read = refused = 0
    lines: list[str] = []
    for _ in range(times):
        damaged = bytearray(data)
        if rng.random() < 0.2:
            damaged = damaged[: rng.randrange(len(damaged))]
        for _ in range(rng.randint(1, 6)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        try:
            loads_(bytes(damaged), "damaged")
            read += 1
        except DocumentError as error:
            lines.append(str(error))
            refused += 1
    assert not [line for line in lines if "\n" in line or len(line) > 600]
    return read, refused
