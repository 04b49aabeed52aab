"""One fault in several turns of a loop, or on several ways, is one cause whose cure mends all of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from allocsim import loads, systems
from allocsim.document import dumps
from allocsim.judge.fast import check
from allocsim.model import Document
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.programs.flattening import flat
from allocsim.programs.routines import Definition, PathLoop, PathOp, PathRegion, Routine
from allocsim.verdict import causes_of, judge
from allocsim.verdict.evidence import Evidence
from allocsim.verdict.turns import by_turns

CONDS = Path(__file__).parents[2] / "data/plans/executorch/live_conds.json"


def looped(turns, labels):
    """In each turn `a` is made, `b` laid over it, and both are read."""
    b = ProgramBuilder("loop")
    for turn in range(turns):
        one, two = (b.tensor(f"{name}.{turn}", "f32", (4,)) for name in "ab")
        meta = [{} if label is None else {"turn_of": label} for label in labels]
        b.op("f", (), (one,), name=f"f.{turn}", meta=meta[0])
        b.op("g", (), (two,), name=f"g.{turn}", meta=meta[1])
        b.op("h", (one, two), (), name=f"h.{turn}", meta=meta[2])
    slots = [32 * (number // 2) for number in range(2 * turns)]
    return loads(dumps(Document.of(plan_of(b.build(), slots))))


def test_turns_of_one_instruction_are_one_cause_with_all_their_places():
    (one,) = judge(Evidence(document=looped(1, "fgh"))).causes
    alone = judge(Evidence(document=looped(5, (None, None, None)))).causes
    (cause,) = judge(Evidence(document=looped(5, "fgh"))).causes

    assert len(alone) == 5
    assert len(cause.turns) == 5
    assert cause.places == sum(each.places for each in alone) == 5 * one.places
    assert cause.wrong_bytes == sum(each.wrong_bytes for each in alone)
    assert (cause.class_, cause.party, cause.first.op) == (one.class_, one.party, one.first.op)
    assert {each.change for each in cause.turns} == {each.change for each in alone}
    assert cause.as_json()["turns"] == 5
    assert "turns" not in one.as_json()


def test_the_cure_of_turns_mends_them_all():
    document = looped(4, "fgh")
    (cause,) = judge(Evidence(document=document)).causes
    assert cause.cure is not None
    assert check(cause.cure.document).clean


@pytest.mark.parametrize("label", [None, True, ["f"], 1.5, {}])
def test_what_does_not_say_of_what_it_is_a_turn_is_a_cause_of_its_own(label):
    assert len(causes_of(looped(3, (label, "g", "h")))) == 3


def test_turns_of_two_instructions_are_two_causes():
    """The second of four turns is another instruction."""
    document = looped(4, "fgh")
    ops = document.programs[0].ops.meta
    for step in (3, 4, 5):
        ops[step]["turn_of"] += "2"
    assert sorted(len(cause.turns) for cause in causes_of(document)) == [0, 3]


def test_ways_through_one_program_have_one_cause():
    (cause,) = judge(Evidence(document=systems.load(CONDS))).causes
    assert (cause.class_, cause.party, cause.places, len(cause.turns)) == ("C15", "plan", 12, 2)
    assert {turn.change.plan for turn in cause.turns} == {0, 1}
    assert cause.cure is not None
    assert check(cause.cure.document).clean


def two_programs(path):
    """One fault in two programs of one name."""
    plans = []
    for way in range(2):
        (plan,) = looped(1, (None, None, None)).plans
        plans.append(replace(plan, program=replace(plan.program, path=f"{path} {way}" if path else "")))
    return loads(dumps(Document.of(*plans)))


def test_programs_of_one_name_are_ways_only_where_they_say_which():
    assert [len(cause.turns) for cause in causes_of(two_programs("cond"))] == [2]
    assert [len(cause.turns) for cause in causes_of(two_programs(""))] == [0, 0]


def test_the_first_turn_in_time_speaks_for_all():
    """The cause that is found first is of the later turn."""
    early, late = causes_of(looped(2, (None, None, None)))
    (joined,) = by_turns(looped(2, "fgh"), [late, early])
    assert joined.turns == (early, late)
    assert (joined.first, joined.mend) == (early.first, early.mend)


def test_a_wait_left_out_in_each_turn_is_one_cause():
    b = ProgramBuilder("loop", streams=("a", "b"))
    for turn in range(3):
        one = b.tensor(f"a.{turn}", "f32", (4,))
        b.op("f", (), (one,), name=f"f.{turn}", meta={"turn_of": "f"})
        b.op("h", (one,), (), name=f"h.{turn}", stream=1, meta={"turn_of": "h"})
    (cause,) = judge(Evidence(document=Document.of(plan_of(b.build(), [32 * turn for turn in range(3)])))).causes
    assert (cause.class_, cause.places, len(cause.turns)) == ("C09", 3, 3)
    assert check(cause.cure.document).clean


def test_the_first_way_in_time_speaks_for_all():
    """The way that runs second has the earlier op."""
    (joined,) = causes_of(two_programs("cond"))
    one, other = joined.turns
    moved = replace(one, first=replace(one.first, step=one.first.step + 5))
    (again,) = by_turns(two_programs("cond"), [other, moved])
    assert again.turns == (moved, other)


def test_programs_of_one_name_that_are_no_ways_keep_their_causes_though_their_ops_are_turns():
    """Two kernels of one name, of which each says of what its ops are turns."""
    plans = [looped(turns, "fgh").plans[0] for turns in (2, 3)]
    assert sorted(len(cause.turns) for cause in causes_of(loads(dumps(Document.of(*plans))))) == [2, 3]


def test_two_plans_of_one_program_are_two_causes():
    (plan,) = looped(2, "fgh").plans
    other = replace(plan, offset=plan.offset + 512)
    assert [len(cause.turns) for cause in causes_of(loads(dumps(Document.of(plan, other))))] == [2, 2]


def test_loops_whose_ops_share_their_names_are_two_causes():
    """Each has a body with an f, a g and an h."""
    body = {
        name: PathRegion(
            items=(
                PathOp(kind="f", results=(f"{name}a",), name="f"),
                PathOp(kind="g", results=(f"{name}b",), name="g"),
                PathOp(kind="h", operands=(f"{name}a", f"{name}b"), name="h"),
            )
        )
        for name in "xy"
    }
    loops = tuple(PathLoop(name=f"loop {name}", body=region) for name, region in body.items())
    four = {f"{name}{letter}": Definition("f32", (4,)) for name in "xy" for letter in "ab"}
    program = flat(Routine(name="two", body=PathRegion(items=loops), definitions=four), {})
    slots = [64 * (number // 2) for number in range(len(program.buffers))]
    found = causes_of(Document.of(plan_of(program, slots)))
    assert [(cause.class_, len(cause.turns)) for cause in found] == [("C01", 2), ("C01", 2)]
