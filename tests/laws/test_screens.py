"""What a screen selects covers what is wrong, and what no two buffers overlap is read right: proved within bounds, each claim beside mutants that are refuted, and the
formulas held against the judge's own code.

`benchmarks/at_length.py screen_claims` proves larger bounds.
"""

import json
from random import Random

import numpy as np
import overlap_claims
import pytest
import screen_claims as claims
from agreement_plain import compare, forced
from oracle2.generate import generate
from overlap_claims import OVERLAPS
from screen_claims import LATE, MEETINGS, RANGES, RANKS, READS, Numbers, Story, Streams

from allocsim import document as native
from allocsim.judge.fast import check, h_clocks
from allocsim.judge.fast.s_script import Runs
from allocsim.judge.fast.screens import late, reads, rectangles
from allocsim.judge.fast.selector import PLAIN
from allocsim.judge.fast.trial import TrialDocument

RUNS, PARALLEL = {"ops": 3, "cells": 3}, {"ops": 2, "slots": 2, "runs": 1, "cells": 3}
"""Bounds: two runs with one operand and one result to an op; one run with two of each."""

PARALLEL_ONLY = ("results at rest are there after the others", "two results of a `same` in one buffer")


IN_PARTS = {"ops": 4, "cells": 3, "runs": 1, "same": False}
"""One run that writes a buffer in parts, without a `same`."""


@pytest.fixture
def z3():
    return pytest.importorskip("z3", reason="z3-solver is not installed")


@pytest.mark.parametrize("bounds", [RUNS, PARALLEL], ids=["runs", "parallel"])
@pytest.mark.usefixtures("z3")
def test_reads_that_are_selected_cover_the_wrong_ones(bounds):
    assert claims.holds_of_reads(**bounds)


@pytest.mark.parametrize("mutant", READS)
@pytest.mark.usefixtures("z3")
def test_a_screen_of_reads_with_one_clause_changed_is_refuted(mutant):
    assert not claims.holds_of_reads(mutant, **(PARALLEL if mutant in PARALLEL_ONLY else RUNS))


@pytest.mark.parametrize("mutant", [None, *MEETINGS])
@pytest.mark.usefixtures("z3")
def test_rectangles_that_are_selected_cover_those_that_meet(mutant):
    assert claims.holds_of_meetings(mutant, count=3) is (mutant is None)


@pytest.mark.parametrize("mutant", [None, *LATE])
@pytest.mark.usefixtures("z3")
def test_accesses_that_are_selected_cover_the_races(mutant):
    assert claims.holds_of_late(mutant, ops=4) is (mutant is None)


@pytest.mark.parametrize("bounds", [RUNS, PARALLEL, IN_PARTS], ids=["runs", "parallel", "in parts"])
@pytest.mark.usefixtures("z3")
def test_where_nothing_overlaps_but_at_a_hand_over_no_read_is_stale(bounds):
    assert overlap_claims.holds_of_overlaps(**bounds)


OVERLAPS_OF = {"a write of a part ends what was there": IN_PARTS, "results of one op may share": PARALLEL}


@pytest.mark.parametrize("mutant", OVERLAPS)
@pytest.mark.usefixtures("z3")
def test_an_overlap_with_one_clause_changed_lets_a_stale_read_pass(mutant):
    assert not overlap_claims.holds_of_overlaps(mutant, **OVERLAPS_OF.get(mutant, RUNS))


# the formulas are those of the code -----------------------------------------------------------------------------------------


def drawn_story(random):
    """Return a document of small programs, as parsed JSON, and its story."""
    buffers, units, runs = random.randint(2, 3), 2, random.randint(1, 3)
    persistent = [random.random() < 0.4 for _ in range(buffers)]
    home, unit, made, handed, ops, known = [], [], [], [], [], []

    def value(size, *, make, by_same=False):
        home.append(random.randrange(buffers))
        unit.append(tuple(random.sample(range(units), 2)) if size == 2 else (random.randrange(units),) * 2)
        made.append(make)
        handed.append(by_same)
        return len(home) - 1

    known += [value(random.choice((1, 2)), make=False) for _ in range(2)]
    for _ in range(random.randint(2, 4)):
        kind, slots = random.choice(("host.write", "f", "same", "same")), random.randint(1, 2)
        taken = [] if kind == "host.write" else [random.choice(known) for _ in range(slots)]
        sizes = [1 if unit[v][0] == unit[v][1] else 2 for v in taken] if kind == "same" else [random.choice((1, 2))]
        given = [value(size, make=True, by_same=kind == "same") for size in sizes]
        ops.append((kind, taken, given))
        known += given
    ops += [("host.read", [v], []) for v in random.sample(known, min(len(known), 3))]
    base = [[random.randrange(4) for _ in range(buffers)] for _ in range(runs)]
    skip = [
        [step for step, (kind, *_) in enumerate(ops) if run and kind == "host.write" and random.random() < 0.5]
        for run in range(runs)
    ]
    told = [(run, *ops[step]) for run in range(runs) for step in range(len(ops)) if step not in skip[run]]
    slots = lambda chosen: [(k < len(chosen), chosen[k] if k < len(chosen) else 0) for k in (0, 1)]  # noqa: E731 - short
    story = Story(
        buffers=buffers,
        units=units,
        runs=runs,
        run=[run for run, *_ in told],
        same=[kind == "same" for _, kind, *_ in told],
        vouched=[vouched(taken, given) for *_, taken, given in told],
        read=[slots(taken) for _, _, taken, _ in told],
        write=[slots(given) for *_, given in told],
        home=home,
        unit=unit,
        made=made,
        handed=handed,
        persistent=persistent,
        base=base,
        cells=6,
    )
    steps = [(run, step) for run in range(runs) for step in range(len(ops)) if step not in skip[run]]
    return written(story, ops, skip), story, steps


def vouched(taken, given):
    """Whether an op of a drawn story promises `whole`: every other one does."""
    return bool(taken) and sum(given) % 2 == 1


def pairs(taken, given):
    return [[i, j, "whole"] for i in range(len(taken)) for j in range(len(given)) if vouched(taken, given)]


def written(story, ops, skip):
    values = [
        {"buffer": home, "dtype": "u8", "shape": [1 if a == b else 2], "strides": [(b - a) or 1], "offset": a}
        for home, (a, b) in zip(story.home, story.unit, strict=True)
    ]
    buffers = [
        {"name": f"b{b}", "nbytes": story.units, "alignment": 1, "role": "state" if lasts else "temporary"}
        for b, lasts in enumerate(story.persistent)
    ]
    rows = [
        {"kind": kind, "operands": taken, "results": given, "in_place": pairs(taken, given)}
        for kind, taken, given in ops
    ]
    plans = [
        {"program": 0, "slots": [{"arena": 0, "offset": at, "nbytes": story.units} for at in row]} for row in story.base
    ]
    return {
        "format": "allocsim",
        "version": 2,
        "arenas": [{"name": "cpu"}],
        "programs": [{"buffers": buffers, "values": values, "ops": rows}],
        "plans": plans,
        "session": [{"plan": run, "skip": left_out} for run, left_out in enumerate(skip)],
    }


def selected(document):
    """Return the reads that the screen selects, None for all."""
    runs = Runs.of(TrialDocument(document, PLAIN).trials)
    found = reads.reads_to_look_at(runs)
    if found is None:
        return None
    scripts = [runs.scripts[number] for number in runs.follows]
    return {
        (run, int(script.op[row]), int(script.value[row]))
        for run, (script, rows) in enumerate(zip(scripts, found, strict=True))
        for row in rows.tolist()
    }


READ = ("StaleRead", "UninitialisedRead", "OverwrittenRead", "HistoryRead")


def test_the_story_says_of_drawn_documents_what_check_and_screen_say(monkeypatch):
    monkeypatch.setattr(reads, "COMPILE_FROM", 0)
    wrong_ones = few = overlaps = 0
    for seed in range(80):
        raw, story, steps = drawn_story(Random(seed))
        assert all(claims.valid(Numbers, story)), seed
        document = native.loads(json.dumps(raw))
        report = check(document, plain=True)
        told = claims.reads(Numbers, story)
        of = lambda op, place, steps=steps, story=story: (*steps[op], story.read[op][place][1])  # noqa: E731 - short
        rows = [(of(op, place), wrong, noted) for op, place, there, wrong, noted in told if there]
        wrong = {read for read, is_wrong, _ in rows if is_wrong}
        assert wrong == {(v.run, v.op, v.value) for v in (*report.violations, *report.warnings) if v.kind in READ}, seed
        all_of_them = any(story.same[op] and there and noted for op, _, there, _, noted in told)
        all_of_them |= any(claims.rests_under_itself(Numbers, story))
        found = selected(document)
        assert found == (None if all_of_them else {read for read, _, noted in rows if noted}), seed
        assert claims.claim_of_reads(Numbers, story), seed
        over = {
            (v.run, min(step for run, step in steps if run == v.run and step >= v.op), v.buffer, v.other_buffer)
            for v in report.violations
            if v.kind == "Overlap"
        }
        assert overlaps_of(story, steps) == over, seed
        assert overlap_claims.claim_of_overlaps(Numbers, story), seed
        overlaps += len(over)
        wrong_ones += len(wrong)
        few += found is not None and len(found) < len(rows)
    assert wrong_ones > 80
    assert few > 10
    assert overlaps > 80


def overlaps_of(story, steps):
    """Return the first op, no upload left out, of each run at which two buffers overlap, as the formula has it: (run, op, lower buffer, higher buffer)."""
    first = {}
    for number, one, other, found in overlap_claims.overlaps(Numbers, story):
        run, op = steps[number]
        if found:
            first.setdefault((run, one, other), op)
    return {(run, op, one, other) for (run, one, other), op in first.items()}


def test_the_sweep_of_rectangles_is_that_of_the_formula(monkeypatch):
    monkeypatch.setattr(rectangles, "STRETCH", 2)
    random = Random(1)
    for _ in range(200):
        rows = sorted((*sorted(random.sample(range(6), 2)), *sorted(random.sample(range(6), 2))) for _ in range(4))
        columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
        left, right, more = rectangles.met(*columns, cap=99)
        told = list(claims.meetings(Numbers, rows, 2))
        assert not more
        assert sorted(zip(left.tolist(), right.tolist(), strict=True)) == sorted(
            (a, b) for a, b, _, noted in told if noted
        )
        assert all(share == noted for *_, share, noted in told)


def test_the_sweep_of_streams_is_that_of_the_formula():
    random, races = Random(1), 0
    for _ in range(200):
        ops = 5
        drawn = Streams(
            stream=[random.randrange(2) for _ in range(ops)],
            waits=[[random.random() < 0.3 for _ in range(op)] for op in range(ops)],
            write=[random.random() < 0.5 for _ in range(ops)],
            range=[random.randrange(len(RANGES)) for _ in range(ops)],
        )
        told = list(claims.late(Numbers, drawn))
        races += sum(race for *_, race, _ in told)
        assert all(noted or not race for *_, race, noted in told)
        for sweep in (h_clocks.sweep, late.sweep):
            assert swept(sweep, drawn) == {(op, source) for op, source, _, noted in told if noted}
    assert races > 50


def swept(sweep, s):
    """Return what the sweep itself notes: (op, source)."""
    ops = len(s.stream)
    previous = [max((one for one in range(op) if s.stream[one] == s.stream[op]), default=-1) for op in range(ops)]
    after = [[one for one in range(op) if s.waits[op][one]] for op in range(ops)]
    one_each = list(range(ops + 1))
    low, high = zip(*(RANGES[number] for number in s.range), strict=True)
    column = lambda row: np.array(row, dtype=np.int64)  # noqa: E731 - short
    facts = [
        s.stream, previous, np.cumsum([0, *map(len, after)]), [one for row in after for one in row], one_each, list(range(ops)),
        list(map(int, s.write)), one_each, low, high,
    ]  # fmt: skip
    found = set()
    for source in range(2):
        trees = [np.full(4 * RANKS, -1, dtype=np.int32) for _ in range(2)]
        known, noted, knows = (np.full(ops, -1, dtype=np.int32) for _ in range(3))
        count = sweep(source, ops, *map(column, facts), 2 * RANKS, *trees, known, noted, knows)
        found |= {(int(op), source) for op in noted[:count]}
    return found


# on drawn documents ------------------------------------------------------------------------------------------------------------


def test_reads_that_are_selected_cover_the_wrong_ones_of_random_documents(monkeypatch):
    monkeypatch.setattr(reads, "COMPILE_FROM", 0)
    wrong = fewer = 0
    for seed in range(6_000_000, 6_000_060):
        document = native.loads(json.dumps(generate(seed)))
        case = TrialDocument(document, PLAIN)
        if not case.joined:
            continue
        found = selected(document)
        report = check(document, plain=True)
        guilty = {(v.run, v.op, v.value) for v in (*report.violations, *report.warnings) if v.kind in READ}
        assert found is None or found >= guilty, seed
        wrong += len(guilty)
        fewer += found is not None
    assert wrong > 30
    assert fewer > 3


def test_a_result_at_rest_is_taken_by_another_result_of_its_same():
    """Found by the proof: both results have one key, so the screen took the one's bytes for the other's."""
    values = [
        {"buffer": b, "dtype": "u8", "shape": [2], "strides": [s], "offset": o}
        for b, s, o in ((0, 1, 0), (1, -1, 1), (1, 1, 0))
    ]
    buffers = [
        {"name": "a", "nbytes": 2, "alignment": 1, "role": "parameter"},
        {"name": "b", "nbytes": 2, "alignment": 1},
    ]
    ops = [
        {"kind": "same", "operands": [0, 0], "results": [1, 2]},
        {"kind": "host.read", "operands": [2], "results": []},
    ]
    raw = {
        "format": "allocsim",
        "version": 2,
        "arenas": [{"name": "cpu"}],
        "programs": [{"buffers": buffers, "values": values, "ops": ops}],
        "plans": [{"program": 0, "slots": [{"arena": 0, "offset": 1, "nbytes": 2}] * 2}],
    }
    report = forced(native.loads(json.dumps(raw)))
    assert [v.kind for v in report.violations] == ["ResultsOverlap", "StaleRead"]
    assert compare(raw, report=report) == []
