"""Laws on real plans of ggml: a slot moved onto a live neighbour is found, and so is a `same` that is dropped.

Which buffers live at one time is taken from the program alone, by the values that are still to be read. CONT gives the elements of a view another
layout and no other value, so it is written as `same` here; the graphs have no other copy (RESHAPE is a view to ggml).
"""

import json
import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from allocsim import document
from allocsim.judge.fast import check
from allocsim.model import SAME, VIEW
from allocsim.systems import load
from allocsim.verdict import causes_of

DATA = Path(__file__).parents[1] / "data" / "ggml"
NAMES = sorted(path.stem for path in DATA.glob("*.json"))
SAMPLE = 2
"""Slots that the tests move, and `same` that they drop, of each plan; `benchmarks/at_length.py shifts` takes every one."""


@cache
def given(name):
    """Return the document of a dump with each CONT as a `same`."""
    tree = json.loads(document.dumps(load(DATA / f"{name}.json")))
    tree["version"] = 2
    for op in tree["programs"][0]["ops"]:
        op["kind"] = SAME if op["kind"] == "cont" else op["kind"]
    return document.loads(json.dumps(tree))


@cache
def needed(name):
    """Return, for each buffer with a slot, the half-open ranges of steps after an op in which some value in it is still to be read."""
    made = given(name)
    program, plan = made.programs[0], made.plans[0]
    buffer, spans = program.values.buffer.tolist(), {}
    base = {}
    for op in program.ops:
        if op.kind == VIEW:
            base[op.results[0]] = base.get(op.operands[0], op.operands[0])
            continue
        for value in op.operands:
            source = base.get(value, value)
            spans[source] = (int(program.producer[source]), op.step)
    found = {}
    for value, span in spans.items():
        if plan.placed[buffer[value]] and program.buffers.nbytes[buffer[value]] and span[0] >= 0:
            found.setdefault(buffer[value], []).append(span)
    return found


def neighbours(name):
    """Return, for each buffer with a slot, those that are needed at a time when it is needed."""
    spans = needed(name)
    return {
        one: [
            other
            for other in spans
            if other != one and any(max(a[0], b[0]) < min(a[1], b[1]) for a in spans[one] for b in spans[other])
        ]
        for one in spans
    }


def moved(made, buffer, onto):
    plan = made.plans[0]
    arena, offset = plan.arena.copy(), plan.offset.copy()
    arena[buffer], offset[buffer] = arena[onto], offset[onto]
    return replace(made, plans=(replace(plan, arena=arena, offset=offset),))


@cache
def shifts(name):
    """Return every slot that has a live neighbour with one of these, in an order drawn by the name of the plan."""
    rng = random.Random(name)
    found = [(buffer, rng.choice(others)) for buffer, others in neighbours(name).items() if others]
    rng.shuffle(found)
    return found


def missed(name, pairs):
    return [pair for pair in pairs if check(moved(given(name), *pair)).clean]


def sames(made):
    return [op.step for op in made.programs[0].ops if op.kind == SAME]


def dropped(made, step):
    """Return a document in which one op does nothing, and every other stands where it stood."""
    tree = json.loads(document.dumps(made))
    tree["programs"][0]["ops"][step] = {"kind": "nothing"}
    return document.loads(json.dumps(tree))


def apart(made, step):
    """Whether the sides of a `same` lie in different places."""
    op, plan, buffer = made.programs[0].ops[step], made.plans[0], made.programs[0].values.buffer
    one, other = buffer[op.operands[0]], buffer[op.results[0]]
    return plan.arena[one] != plan.arena[other] or plan.offset[one] != plan.offset[other]


@pytest.mark.parametrize("name", NAMES)
def test_a_real_plan_is_clean_with_its_copies_as_same(name):
    assert check(given(name)).clean
    assert len(sames(given(name))) >= 4
    assert len(shifts(name)) >= 0.9 * int(given(name).plans[0].placed.sum())


@pytest.mark.parametrize("name", NAMES)
def test_a_slot_moved_onto_a_live_neighbour_is_found_and_is_the_plans(name):
    assert missed(name, shifts(name)[:SAMPLE]) == []
    assert {cause.party for cause in causes_of(moved(given(name), *shifts(name)[0]))} == {"plan"}


@pytest.mark.parametrize("name", NAMES)
def test_a_same_that_is_dropped_where_its_sides_lie_apart_is_found(name):
    made = given(name)
    away = [step for step in sames(made) if apart(made, step)]
    assert away
    assert [step for step in away[:SAMPLE] if check(dropped(made, step)).clean] == []
