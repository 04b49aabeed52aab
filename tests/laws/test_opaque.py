"""A run with opaque kernels against the judge: reads that differ are those the judge finds, in every order that streams allow.

The judge compares tags; here numbers are compared that kernels made of what they read, over cells and not bytes. Neither knows the other.
"""

import json
import random
from collections import Counter

import pytest
from few import few_of
from oracle2.generate import generate, table
from orders import happens_before, is_legal

from allocsim import document as native
from allocsim.judge.fast import check
from allocsim.opaque import RULE_ALONE, told_by_replay
from allocsim.opaque.memories import differences, exchanged
from allocsim.opaque.memory_cells import byte_ranges
from allocsim.opaque.replay_answers import replays_of

READS = ("StaleRead", "OverwrittenRead", "UninitialisedRead")


def made(seed):
    return native.loads(json.dumps(generate(seed)))


def differing(document, kinds=None):
    """By (run, op, value): bytes that differ; reads of buffers without a slot apart."""
    found, lost = {}, set()
    for replay in replays_of(document, kinds):
        for one in replay.seen.differences:
            key = (one.run, one.op, one.value)
            run = replay.group.numbers.index(one.run)
            buffer = int(document.runs[one.run].program.values.buffer[one.value])
            if not replay.group.kept(run, one.value):
                lost.add((document.plans.index(document.runs[one.run].plan), buffer))
                continue
            ranges = byte_ranges(replay.group.grid.cuts[replay.group.grid.laid[run].sort[buffer]], one.cells.tolist())
            found.setdefault(key, set()).update(byte for low, high in ranges for byte in range(low, high))
    return found, lost


@pytest.mark.parametrize("first", few_of(range(0, 300, 50), 2))
def test_the_reads_that_differ_are_those_that_the_judge_finds_byte_for_byte(first):
    agreed = Counter()
    for seed in range(first, first + 50):
        document, kinds = made(seed), table(seed) if seed % 3 == 0 else None
        report = check(document, limit=10**6, kinds=kinds, sizes=False)
        found, lost = differing(document, kinds)
        wrong: dict = {}
        for v in report.violations:
            if v.kind in READS:
                wrong.setdefault((v.run, v.op, v.value), set()).update(
                    byte for low, high in v.bytes for byte in range(low, high)
                )
        over = {(v.run, v.op) for v in report.violations if v.kind == "UnsafeInPlace"}
        assert lost <= {(v.plan, v.buffer) for v in report.violations if v.kind == "Unplaced"}, seed
        assert {key for key in found if key not in wrong and key[:2] not in over} == set(), seed
        for key, wanted in wrong.items():
            run = document.runs[key[0]]
            made_by, unplaced = (
                int(run.program.producer[key[2]]),
                run.plan.arena[run.program.values.buffer[key[2]]] == -2,
            )
            if made_by in run.skip or unplaced or key[:2] in over:
                continue  # any upload of it will do; nothing is kept; more differs
            assert found[key] == wanted if run.read_after is None else found[key] <= wanted, (seed, key)
            agreed["reads"] += 1
        moves = {run: set(document.runs[run].program.same_ops.nonzero()[0].tolist()) for run, _ in over}
        for run, op in over:
            assert op in moves[run] or any(key[:2] == (run, op) for key in found), (seed, run, op)
            agreed["in place"] += 1
    assert agreed["reads"] > 10
    assert agreed["in place"] > 3


def drawn_order(group, rng):
    """A legal order of one run, drawn."""
    ops = group.run(0).program.ops
    left, done = list(range(len(ops))), []
    while left:
        ready = [
            step
            for step in left
            if not any(ops.stream[other] == ops.stream[step] for other in left if other < step)
            and not set(ops[step].after) & set(left)
        ]
        done.append(rng.choice(ready))
        left.remove(done[-1])
    assert is_legal(group.run(0).program, done)
    kept = set(group.order())
    return [(0, step) for step in done if (0, step) in kept]


@pytest.mark.parametrize("seeds", few_of([120, 240], 1))
def test_a_document_without_a_finding_shows_no_difference_in_any_order_that_its_streams_allow(seeds):
    several = 0
    for seed in range(seeds):
        document = made(seed)
        if document.session is not None or not check(document, sizes=False).clean:
            continue
        for replay in replays_of(document):
            several += len(document.runs[replay.group.numbers[0]].program.streams) > 1
            for turn in range(4):
                order = drawn_order(replay.group, random.Random(seed * 10 + turn))
                assert differences(replay.group, replay.apart, order).differences == (), seed
    assert several > 5


@pytest.mark.parametrize("seeds", few_of([40, 120], 1))
def test_a_race_is_replayed_in_an_order_in_which_the_later_op_goes_first_and_nothing_overtakes_what_it_waits_for(seeds):
    tried = told = 0
    for seed in range(seeds):
        document = made(seed)
        races = [v for v in check(document, sizes=False).violations if v.kind == "Race"]
        replays = {run: replay for replay in replays_of(document) for run in replay.group.numbers} if races else {}
        for v in races:
            group = replays[v.run].group
            two = [(group.numbers.index(run), op) for run, op in ((v.other_run, v.other_op), (v.run, v.op))]
            order = exchanged(group, *two)
            assert order is not None, seed
            place, was = ({step: at for at, step in enumerate(some)} for some in (order, group.order()))
            assert sorted(order) == sorted(was)
            assert (place[two[0]] < place[two[1]]) is not (was[two[0]] < was[two[1]]), seed
            for run in range(len(group.numbers)):
                if group.run(run).read_after is None:
                    assert all(
                        place[run, i] < place[run, j]
                        for i, j in happens_before(group.run(run).program)
                        if {(run, i), (run, j)} <= set(place)
                    ), seed
            tried += 1
            told += bool(replays[v.run].raced(v))
    assert tried > seeds // 3
    assert told > tried // 4


@pytest.mark.parametrize("first", few_of(range(0, 120, 60), 1))
def test_every_late_read_is_told_with_numbers_and_no_difference_is_left_unaccounted_for(first):
    for seed in range(first, first + 60):
        document = made(seed)
        report = check(document, limit=10**6)
        answer = told_by_replay(document, [[v] for v in report.violations], found=report.violations)
        assert answer.unaccounted == (), seed
        assert (answer.state == "clean") is not any(answer.differs)
        for v, text, differs in zip(report.violations, answer.numbers, answer.differs, strict=True):
            assert differs is (text != RULE_ALONE)
            skipped = (
                v.kind == "OverwrittenRead"
                and int(document.runs[v.run].program.producer[v.value]) in document.runs[v.run].skip
            )
            ranged = v.ends is not None
            assert differs or v.kind not in READS or skipped or ranged, (seed, v)
