"""S and H against brute force on damaged documents: sound ones of `generation.py` with waits dropped and slots moved, sessions included.

Two oracles: the judge's twin (`oracle.py`: byte by byte, every pair of accesses) gives every record, and all legal orders spelled out
(`orders.py`) give every pair of ops that some order exchanges.
"""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from facts import addresses, planned
from few import few_of
from generation import lot
from oracle import judge as oracle
from orders import legal_orders

from allocsim.judge.fast import check
from allocsim.model import VIEW, Document, Plan, Program, Run

FIELDS = (
    "kind", "run", "program", "plan", "step", "op", "value", "buffer", "other_run", "other_op", "other_buffer", "want_run",
    "want_op", "bytes", "in_apart", "hazards",
)  # fmt: skip
BLOCKS, EACH = 10, 60
SMALL_BLOCKS, SMALL_EACH = 12, 100


def damaged(seed: int, *, ops: int) -> Document:
    """Return a document of `generation` with some waits dropped and some slots moved onto others; beliefs left out."""
    rng = Random(seed)
    document = lot(seed, ops=ops).document
    program = without_waits(document.runs[0].program, rng)
    plans = {id(run.plan): moved(run.plan, program, rng) for run in document.runs}
    return Document.of(*(Run.of(plans[id(run.plan)], skip=run.skip) for run in document.runs))


def without_waits(program: Program, rng: Random) -> Program:
    """Return the program with each wait kept by the toss of a coin."""
    rows = [[wait for wait in op.after if rng.random() < 0.5] for op in program.ops]
    ops = replace(
        program.ops,
        after_starts=np.cumsum([0, *map(len, rows)], dtype=np.int64),
        after=np.array([wait for row in rows for wait in row], dtype=np.int32),
    )
    return replace(program, ops=ops)


def moved(plan: Plan, program: Program, rng: Random) -> Plan:
    """Return the plan with up to two slots put onto, or a little beside, other slots."""
    offset = plan.offset.copy()
    placed = np.flatnonzero(plan.arena >= 0).tolist()
    for _ in range(rng.randrange(3)):
        one, other = rng.choice(placed), rng.choice(placed)
        offset[one] = max(int(offset[other]) + rng.choice((0, 0, 4, -4, 1)), 0)
    return Plan(program=program, arena=plan.arena, offset=offset, nbytes=plan.nbytes)


def records(violations) -> Counter:
    return Counter(tuple(getattr(v, name) for name in FIELDS) for v in violations)


@pytest.mark.slow
@pytest.mark.parametrize("block", few_of(range(BLOCKS), 2))
def test_every_record_of_a_damaged_document_is_the_twins(block: int):
    """Most are faulty, a good part races, and sessions are among them."""
    kinds, faulty, sessions = Counter(), 0, 0
    for seed in range(EACH * block, EACH * (block + 1)):
        document = damaged(seed, ops=8)
        report, expected = check(document), oracle(document)
        assert records(report.violations) == records(expected.violations), f"seed {seed}"
        assert records(report.warnings) == records(expected.warnings), f"seed {seed}"
        faulty += not report.clean
        sessions += len(document.runs) > 1
        kinds.update({v.kind for v in report.violations})
    assert 3 * faulty >= EACH
    assert 5 * sessions >= EACH
    assert min(kinds["StaleRead"], kinds["Overlap"], kinds["Race"]) >= 3


@pytest.mark.parametrize("block", few_of(range(SMALL_BLOCKS), 3))
def test_races_are_exactly_the_pairs_that_legal_orders_exchange(block: int):
    """For each of 300 small programs, 1,200 in a campaign: two ops that meet on a byte, one writing, and of which either may be first."""
    races = sessions = several = 0
    for seed in range(SMALL_EACH * block, SMALL_EACH * (block + 1)):
        document = damaged(10 * seed + (2, 5)[seed % 2], ops=4)  # seeds of two and of three streams
        found = {(v.run, v.other_op, v.op) for v in check(document).of_kind("Race")}
        expected = {
            (number, *pair)
            for number, run in enumerate(document.runs)
            for pair in exchanged(document, run) & meeting(document, run)
        }
        assert found == expected, f"seed {seed}"
        races += bool(found)
        sessions += len(document.runs) > 1
        several += len(document.runs[0].program.streams) > 1
    assert several == SMALL_EACH
    assert 3 * races >= SMALL_EACH
    assert 5 * sessions >= SMALL_EACH


def exchanged(document: Document, run: Run) -> set[tuple[int, int]]:
    """Return the pairs of ops, the earlier in the list first, that some legal order runs the other way round."""
    pairs = set()
    for order in legal_orders(run.program):
        place = {step: number for number, step in enumerate(order)}
        pairs |= {(i, j) for j in place for i in range(j) if place[j] < place[i]}
    return pairs


def meeting(document: Document, run: Run) -> set[tuple[int, int]]:
    """Return the pairs of ops that touch a common byte as planned, at least one of them writing it; what is left out does nothing."""
    program, where = run.program, planned(document, run)
    done = []
    for op in program.ops:
        silent = op.kind == VIEW or op.step in run.skip
        reads, writes = (
            set() if silent else set().union(*(addresses(program, value, where) for value in side))
            for side in (op.operands, op.results)
        )
        done.append((reads, writes))
    return {
        (i, j)
        for j, (reads, writes) in enumerate(done)
        for i in range(j)
        if writes & (done[i][0] | done[i][1]) or reads & done[i][1]
    }
