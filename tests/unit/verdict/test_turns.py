"""One fault in several turns of a loop, or on several ways, is one cause whose cure mends all of them."""

from pathlib import Path

import pytest

from allocsim import loads, systems
from allocsim.document import dumps
from allocsim.judge.fast import check
from allocsim.model import Document
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.verdict import causes_of

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
    (one,) = causes_of(looped(1, "fgh"), cures=True)
    alone = causes_of(looped(5, (None, None, None)), cures=True)
    (cause,) = causes_of(looped(5, "fgh"), cures=True)

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
    (cause,) = causes_of(document, cures=True)
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
    (cause,) = causes_of(systems.load(CONDS), cures=True)
    assert (cause.class_, cause.party, cause.places, len(cause.turns)) == ("C15", "plan", 12, 2)
    assert {turn.change.plan for turn in cause.turns} == {0, 1}
    assert cause.cure is not None
    assert check(cause.cure.document).clean
