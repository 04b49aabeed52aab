"""A plan against its own problem: the shelf keeps what it was told, and every single disobedience is found.

The programs and beliefs are drawn; what is planted is one change of one slot or event of an obedient plan.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from few import ENOUGH
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_programs import listed
from strategies import SMALL, arenas, recipes

from allocsim import document as native
from allocsim.allocators import ALLOCATORS, Constraints, plan_program
from allocsim.fuzzing.program_recipes import assemble
from allocsim.judge.fast import check
from allocsim.judge.fast.s_promises import PROMISE_KINDS
from allocsim.model import OWN, Document, Event, Plan, Problem
from allocsim.model.belief import STATABLE
from allocsim.programs.builder import plan_of
from allocsim.systems import load
from repro.small.words import program as tiny_program

FEWER = settings(max_examples=20)
DATA = Path(__file__).parents[1] / "data" / "ggml"


@st.composite
def obedient(draw: Any) -> Plan:
    """A plan of the shelf for a drawn program, told drawn pins, memory of its own and fixed offsets."""
    program = listed(assemble(draw(recipes(max_size=14)), arenas=draw(arenas(capacities=(None,)))))
    count = len(program.buffers)
    assume(count)
    some = st.lists(st.integers(0, count - 1), max_size=2)
    told = Constraints.of(program)
    pinned, own = told.pinned.copy(), told.own.copy()
    pinned[draw(some)] = True
    own[[buffer for buffer in draw(some) if not pinned[buffer]]] = True
    far = {buffer: (1 << 20) + 4096 * buffer for buffer in draw(some) if not own[buffer]}
    name = draw(st.sampled_from([name for name in ALLOCATORS if name not in ("buddy", "tlsf", "caching") or not far]))
    plan = ALLOCATORS[name].plan(program, Constraints.of(program, pins=pinned, own=own, fixed=far))
    return replace(plan, problem=replace(plan.problem, stated=STATABLE))


def broken(plan: Plan) -> dict[str, int]:
    """Return how many records there are of each kind that is about the plan's own problem."""
    counts = check(Document.of(plan)).counts
    return {kind: counts[kind] for kind in PROMISE_KINDS if counts.get(kind)}


@ENOUGH
@given(obedient())
def test_the_shelf_keeps_its_promises(plan):
    assert broken(plan) == {}


@pytest.mark.parametrize("name", ALLOCATORS)
@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda path: path.stem)
def test_the_shelf_keeps_its_promises_on_captured_problems(path, name):
    document = load(path)
    for program in document.programs:
        told = next((problem for problem in document.problems if problem.program is program), None)
        assert broken(plan_program(ALLOCATORS[name], program, believed=told)) == {}


# --- one disobedience -----------------------------------------------------------------------------------------------------


def own_instead(plan: Plan, buffer: int, _: int) -> tuple[str, Plan] | None:
    problem = plan.problem
    lives = problem.start[buffer] < problem.stop[buffer] or problem.pinned[buffer]
    if problem.own[buffer] or not plan.placed[buffer] or not problem.nbytes[buffer] or not lives:
        return None
    return "OwnUntold", slot(plan, buffer, arena=OWN, offset=0, nbytes=0)


def placed_instead(plan: Plan, buffer: int, _: int) -> tuple[str, Plan] | None:
    if not plan.problem.own[buffer]:
        return None
    nbytes = plan.problem.nbytes[buffer]
    return "OwnIgnored", slot(plan, buffer, arena=plan.program.buffers.arena[buffer], offset=1 << 30, nbytes=nbytes)


def moved(plan: Plan, buffer: int, _: int) -> tuple[str, Plan] | None:
    if not plan.placed[buffer] or buffer not in plan.problem.fixed:
        return None
    return "FixedIgnored", slot(plan, buffer, offset=1 << 30)


def cut(plan: Plan, buffer: int, _: int) -> tuple[str, Plan] | None:
    if not plan.placed[buffer] or not plan.problem.nbytes[buffer]:
        return None
    return "SizeIgnored", slot(plan, buffer, nbytes=plan.problem.nbytes[buffer] - 1)


def laid_over(plan: Plan, buffer: int, choice: int) -> tuple[str, Plan] | None:
    """Put a buffer on another's last byte, though both are believed to live, or the other is pinned and was there first."""
    problem, other = plan.problem, choice % len(plan.arena)
    if other == buffer or not (plan.placed[buffer] and plan.placed[other]) or plan.arena[buffer] != plan.arena[other]:
        return None
    if problem.nbytes[buffer] < 1 or problem.nbytes[other] < 2 or buffer in problem.fixed:
        return None
    one, two = ((int(problem.start[b]), int(problem.stop[b])) for b in (buffer, other))
    moved_there = slot(plan, buffer, offset=plan.offset[other] + problem.nbytes[other] - 1)
    if max(one[0], two[0]) < min(one[1], two[1]):
        return "LifetimeIgnored", moved_there
    if problem.pinned[other] and two[1] <= one[0] < one[1]:
        return "PinIgnored", moved_there
    return None


def freed_early(plan: Plan, buffer: int, _: int) -> tuple[str, Plan] | None:
    problem = plan.problem
    rows = plan.events.tolist()
    start, stop = int(problem.start[buffer]), int(problem.stop[buffer])
    places = [n for n, (_, event, whose) in enumerate(rows) if whose == buffer and event == Event.FREE]
    if not places or stop - start < 2 or next(event for _, event, whose in rows if whose == buffer) == Event.FREE:
        return None
    rows[places[-1]][0] = start
    return "EventOutsideLifetime", replace(plan, events=np.array(rows, dtype=np.int64))


def slot(plan: Plan, buffer: int, **columns: int) -> Plan:
    changed = {name: getattr(plan, name).copy() for name in columns}
    for name, number in columns.items():
        changed[name][buffer] = number
    return replace(plan, **changed)


Plant = Callable[[Plan, int, int], tuple[str, Plan] | None]


@pytest.mark.parametrize(
    "plant", [own_instead, placed_instead, moved, cut, laid_over, freed_early], ids=lambda f: f.__name__
)
def test_a_single_disobedience_is_found(plant: Plant):
    """In every place where it can be planted; some are planted, whatever is drawn."""
    planted: list[str] = []

    @settings(FEWER, database=None)
    @given(obedient(), SMALL)
    def law(plan: Plan, choice: int) -> None:
        for buffer in range(len(plan.arena)):
            found = plant(plan, buffer, buffer + 1 + choice)
            if found is None:
                continue
            kind, disobedient = found
            assert broken(disobedient).get(kind), (kind, buffer, plan.source)
            planted.append(kind)

    law()
    assert planted


UNSTATED = {
    "LifetimeIgnored": {"start", "stop"},
    "EventOutsideLifetime": {"start", "stop"},
    "SizeIgnored": {"nbytes"},
    "OwnIgnored": {"own"},
}


@FEWER
@given(recipes(max_size=14), st.sets(st.sampled_from(sorted(STATABLE))), st.data())
def test_a_plan_is_held_only_to_what_its_problem_states(recipe, left_out, data):
    """Any slots at all: what is left out is never broken, and what is stated is broken as if all were."""
    program = listed(assemble(recipe))
    count = len(program.buffers)
    assume(count)
    slots = data.draw(st.lists(st.sampled_from([0, 32, 64, "own"]), min_size=count, max_size=count))
    pinned = data.draw(st.lists(st.integers(0, count - 1), max_size=3))
    told = Problem.of(program, pinned=pinned)
    assert not told.stated
    judged = [
        broken(plan_of(program, slots, problem=replace(told, stated=stated)))
        for stated in (STATABLE, STATABLE - left_out)
    ]
    silent = {kind for kind, needs in UNSTATED.items() if needs & left_out}
    assert not silent & judged[1].keys()
    for kind in set(UNSTATED) - silent - {"LifetimeIgnored"} | {"FixedIgnored", "OwnUntold"}:
        assert judged[0].get(kind) == judged[1].get(kind), kind


def test_two_pinned_buffers_share_no_bytes_though_no_lifetime_is_stated():
    made = tiny_program("x = host.write; a = f x; b = f x; host.read a; host.read b")
    problem = Problem.of(made, pinned=[1, 2])
    assert broken(plan_of(made, {"x": 64, "a": 0, "b": 0}, problem=problem)) == {"PinIgnored": 1}
    assert broken(plan_of(made, {"x": 0, "a": 0, "b": 64}, problem=problem)) == {}


def test_pairs_that_ops_declare_may_be_used_by_who_was_told_of_none_and_not_by_who_was_told_of_no_pair():
    made = tiny_program("x = host.write; y = relu! x; host.read y")
    lives = {"start": [0, 1], "stop": [2, 3], "pinned": [1]}
    slots = {"x": 0, "y": 0}
    assert broken(plan_of(made, slots, problem=Problem.of(made, **lives))) == {}
    assert broken(plan_of(made, slots, problem=Problem.of(made, may_share=[], **lives))) == {"LifetimeIgnored": 1}


@FEWER
@given(obedient(), st.sets(st.sampled_from(sorted(STATABLE))))
def test_a_document_keeps_what_was_stated(plan, left_out):
    problem = replace(plan.problem, stated=STATABLE - left_out)
    read = native.loads(native.dumps(Document.of(replace(plan, problem=problem))))
    assert read.problems[0].stated == problem.stated


@FEWER
@given(obedient())
def test_a_plan_that_was_told_nothing_breaks_no_promise(plan):
    assert broken(replace(plan, problem=None)) == {}
