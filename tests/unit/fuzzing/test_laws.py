"""Laws on pairs: what is promised is asked, who breaks it is found, and who keeps it is not accused."""

from dataclasses import replace

import numpy as np
import pytest
from planted_planners import LAWLESS

from allocsim.allocators import ALLOCATORS, GUARANTEES, find
from allocsim.fuzzing import CampaignSpec, FuzzCase, Target, campaign
from allocsim.fuzzing.bulk import Cut, batch_of
from allocsim.fuzzing.exercised import Within, first_finding
from allocsim.fuzzing.fuzz_case import Answer
from allocsim.fuzzing.laws import LAWS, renumbered, tops
from allocsim.fuzzing.pasting import pasted
from allocsim.fuzzing.properties import PROPERTIES, asked_of
from allocsim.fuzzing.told_constraints import gapped
from allocsim.judge.fast import check
from allocsim.model import Document

SEED = 7
ASKED = CampaignSpec(target=Target(name="reference"), source="hypothesis", seed=SEED)
STATED = {law: f"planted_planners:{LAWLESS[law].__name__}" for law in LAWS}


def cases(law, count=60):
    """Cases that a law speaks of, of programs drawn from a seed; `capped` ones among them."""
    for number in range(4):
        rng = np.random.default_rng([SEED, number])
        for case in Cut(batch_of(rng, count // 4, capped=number == 3)):
            yield gapped(case.program) if PROPERTIES[law].of == "gapped" else FuzzCase(program=case.program)


def test_each_law_is_a_guarantee_and_a_property_that_must_be_promised():
    assert set(LAWS) <= set(GUARANTEES)
    assert set(LAWS) <= set(PROPERTIES)
    assert not set(LAWS) & set(asked_of(None))
    assert set(LAWS) & set(asked_of(("sound", "monotone"))) == {"monotone"}
    assert "add_pin" not in asked_of(("add_pin",), told=False)
    assert "enlarge" not in asked_of(("enlarge",), places=False)


@pytest.mark.parametrize("law", LAWS)
def test_who_breaks_a_law_is_found_by_it_alone(law):
    """Held to all that it keeps, the planner is not accused; held to the law, it is."""
    planner = find(STATED[law])
    assert first_finding(ASKED, planner, guarantees=("sound", "deterministic", "no_worse"), cases=30) is None

    finding = first_finding(ASKED, planner, guarantees=(law,), cases=600)
    assert finding is not None
    assert finding.breaks == law


def test_a_finding_of_a_law_says_what_differs_and_fails_as_pasted():
    """Of two cases that differ it says in what, and the test of it asks both again."""
    target = Target(name=STATED["monotone"], seconds=5)
    held = ("sound", "monotone")
    asked = CampaignSpec(
        target=target, source="hypothesis", seed=SEED, examples=150, guarantees=held, reduce_seconds=1.0
    )
    findings = campaign(asked).findings
    assert {finding.breaks for finding in findings} == {"monotone"}
    lower = next(finding for finding in findings if finding.cause == "a lower peak")
    assert lower.message.startswith("with buffer ")
    test = {}
    exec(pasted(lower, target, by="a test"), test)
    with pytest.raises(AssertionError):
        test["test_the_planner_does_not_do_it_again"]()


@pytest.mark.parametrize("name", ALLOCATORS)
def test_no_planner_of_the_shelf_breaks_a_law_that_it_promises(name):
    within = Within(ALLOCATORS[name])
    promised = set(ALLOCATORS[name].guarantees) & set(LAWS)
    assert "rename" in promised
    for law in promised:
        pairs = [pair for case in cases(law) for pair in LAWS[law].pairs(case, 2)]
        assert len(pairs) > 20
        broken = [LAWS[law].broken(pair, *within.ask([pair.one, pair.other])) for pair in pairs]
        assert [why for why in broken if why is not None] == [], law


def test_the_laws_of_what_asks_for_more_hold_of_the_least_peak():
    """Where a search proves its answer, more bytes, a longer life or one pin more never lower it."""
    place = ALLOCATORS["best"]
    for law in ("add_pin", "enlarge", "monotone"):
        seen = 0
        for case in cases(law):
            for pair in LAWS[law].pairs(case, 1):
                one, other = Within(place).ask([pair.one, pair.other])
                proved = [answer.plan is not None and answer.plan.meta["exact"]["proved"] for answer in (one, other)]
                assert not all(proved) or LAWS[law].broken(pair, one, other) is None
                seen += all(proved)
        assert seen > 20


def test_a_program_is_the_same_under_other_numbers():
    """Reads, writes and sizes go with their buffers: numbered back, it is the program as it was, and a plan of one is as sound as
    of the other.
    """
    for case in cases("permute"):
        program, rng = case.program, np.random.default_rng(SEED)
        buffers, values = rng.permutation(len(program.buffers)), rng.permutation(len(program.values))
        other = renumbered(program, buffers, values)
        back = renumbered(other, np.argsort(buffers), np.argsort(values))
        for table in ("buffers", "values", "ops"):
            old, new = getattr(program, table), getattr(back, table)
            for column in ("nbytes", "buffer", "operands", "results", "shape", "strides", "offset", "dim_starts"):
                assert np.array_equal(getattr(old, column, None), getattr(new, column, None)), column
        unbounded = replace(other, arenas=tuple(replace(arena, capacity=None) for arena in other.arenas))
        assert check(Document.of(ALLOCATORS["reference"].plan(unbounded))).clean


@pytest.mark.parametrize(
    ("law", "changes"), [("add_pin", {"pinned"}), ("enlarge", {"nbytes"}), ("monotone", {"start", "stop"})]
)
def test_a_pair_asks_for_more_in_one_buffer_alone(law, changes):
    for case in cases(law):
        for pair in LAWS[law].pairs(case):
            one, other = ((c.problem if c.believed is None else c.believed) for c in (pair.one, pair.other))
            for column in ("start", "stop", "nbytes", "pinned", "own"):
                grown = getattr(other, column).astype(np.int64) - getattr(one, column).astype(np.int64)
                assert np.count_nonzero(grown) == (0 if column not in changes else np.count_nonzero(grown))
                assert (grown <= 0).all() if column == "start" else (grown >= 0).all()
                assert np.count_nonzero(grown) <= 1


def test_a_failure_or_a_refusal_is_compared_as_the_law_says():
    """More may be refused; what was refused may not be planned once it asks for more."""
    pair = next(pair for case in cases("monotone") for pair in LAWS["monotone"].pairs(case))
    planned, refused = (Answer(plan=ALLOCATORS["reference"].place(pair.one.believed)), Answer(refused="no room"))
    assert LAWS["monotone"].broken(pair, planned, refused) is None
    assert LAWS["monotone"].broken(pair, refused, planned) is not None
    assert LAWS["rename"].broken(pair, planned, refused) is not None
    assert LAWS["split_arena"].broken(pair, refused, planned) is None
    assert (
        tops(planned.plan) == [max(planned.plan.offset + planned.plan.nbytes, default=0)] or len(tops(planned.plan)) > 1
    )
