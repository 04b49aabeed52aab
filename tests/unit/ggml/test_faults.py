"""The seven faults show on both libraries, and the judge finds each from the addresses alone."""

import pytest
from ggml_live import BOTH, live

from allocsim.checks import check
from engine.ggml.capture import document
from engine.ggml.faults import FAULTS, evidence

FOUND_BY_THE_JUDGE = {
    "stale-plan": {"Overlap", "StaleRead"},
    "late-output": {"MissingPin", "Overlap", "StaleRead"},
    "none-view": {"LifetimeTooShort", "Overlap", "StaleRead"},
    "output-on-view": {"MissingPin", "Overlap", "StaleRead"},
    "shared-gradient": {"MissingPin", "Overlap", "StaleRead"},
    "forward-then-backward": {"Overlap", "StaleRead"},
}


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_gives_a_wrong_number(which, name):
    finding = live(which).call(FAULTS[name].task)

    assert finding.wrong, finding


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize("name", FOUND_BY_THE_JUDGE)
def test_the_judge_finds_the_fault_without_ggml(which, name):
    captured = evidence(live(which).call(FAULTS[name].task))

    assert {violation.kind for violation in check(captured).violations} >= FOUND_BY_THE_JUDGE[name]


@pytest.mark.parametrize("which", BOTH)
def test_the_plan_a_rewired_graph_was_given_is_right_for_its_own_graph(which):
    finding = live(which).call(FAULTS["stale-plan"].task)

    assert check(document(finding.rows["planned"])).clean
    assert (finding.found, finding.wanted) == (60, 33)


def test_the_setter_protects_the_root_of_a_view_only_in_the_newer_library():
    by_setter = [live(which).call(FAULTS["output-on-view"].task).detail["by_setter"] for which in ("before", "after")]

    assert by_setter == [300, 6]


@pytest.mark.parametrize("which", BOTH)
def test_accumulators_of_ggml_opt_grow_by_one_gradient_each_step(which):
    norms = live(which).call(FAULTS["opt-accumulators"].task).detail["gradient_norms"]

    assert norms == pytest.approx([norms[0], 2 * norms[0], 3 * norms[0]])
