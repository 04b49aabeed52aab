"""What the conformance suite shows of a finding, and that it notices when less was asked than it was to ask."""

import ast

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.conformance.test_planner import shown
from allocsim.conformance.test_planner import test_the_campaign_asked_what_it_was_to_ask as asked_it_all
from allocsim.fuzzing import PROPERTIES, Answer, CampaignResult, CampaignSpec, FuzzCase, Tally, Target
from allocsim.fuzzing.examination import finding_of
from allocsim.programs.builder import ProgramBuilder

TARGET = Target(name="strange:plan", seconds=3.0)


@pytest.mark.parametrize("name", list(PROPERTIES))
@pytest.mark.parametrize("answered", [True, False])
def test_every_property_is_shown_with_its_case_and_a_test(name, answered):
    builder = ProgramBuilder("two")
    value = builder.tensor("kilroy", "f32", (4,))
    builder.op("host.write", (), (value,))
    builder.op("host.read", (value,), ())
    told = {"pinned": {"pinned": np.array([True])}, "told": {"pinned": np.array([True]), "fixed": {0: 64}}}
    case = FuzzCase(program=builder.build(), **told.get(PROPERTIES[name].of, {}))
    answer = Answer(plan=ALLOCATORS["reference"].plan(case.program) if answered else None)
    text = shown(finding_of(name, ("a cause", "a message"), case, answer), TARGET)
    before, _, test = text.partition("a test to paste:\n")

    assert "a message" in before
    assert "host.read (kilroy)" in before
    assert ('told {"pinned": [0], ' in before) is (case.kind != "plain")
    assert f"examiner.find(case, {name!r}) is None" in test
    ast.parse(test[: test.rindex("again:")])


@pytest.mark.parametrize(("programs", "complete"), [(9, True), (10, False), (0, True)])
def test_less_than_was_to_be_asked_is_a_failure(programs, complete):
    class Explorer:
        asked = CampaignSpec(target=TARGET, source="hypothesis", examples=10)

    asked_it_all(CampaignResult(findings=(), tally=Tally(programs=10), complete=True), Explorer)
    with pytest.raises(AssertionError):
        asked_it_all(CampaignResult(findings=(), tally=Tally(programs=programs), complete=complete), Explorer)
