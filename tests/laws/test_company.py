"""An answer does not depend on company, names, numbers, true calls, dead ops, pieces or order: each law on faults of every plant."""

import pytest
from company import LAWS, broken
from culprits import PLANTS, culprits

EACH = 1
"""Faults of each plant that are tried here; more by `benchmarks/verdicts.py causes --laws`."""


@pytest.mark.parametrize("each", [EACH, pytest.param(2 * EACH, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("name", LAWS)
def test_an_answer_does_not_change_with(name, each):
    """On faults of every plant; how many are tried is part of the claim."""
    answers = {culprit.name: broken(name, culprit) for culprit in culprits(range(2000, 2000 + each * len(PLANTS)))}
    assert {culprit: wrong for culprit, wrong in answers.items() if wrong} == {}
    assert sum(wrong is not None for wrong in answers.values()) > len(answers) / 4
