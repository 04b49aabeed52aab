"""Files of real systems, run with opaque kernels: what is clean shows no difference, and every cause has its numbers or says that none differed."""

from pathlib import Path

import pytest
from samples import SAMPLES, made

from allocsim.opaque import RULE_ALONE
from allocsim.outcomes import JudgeRules, judge_file, replayed
from allocsim.outcomes.telling import lines_of

DATA = Path(__file__).parents[2] / "data"
PLANS = sorted(
    path
    for path in (*DATA.glob("plans/*/*"), *DATA.glob("cases/*.json"))
    if path.suffix not in {".mlir", ".md"} and path.name != "README.md"
)
ALONE = {
    "executorch/view_also.json": ["C05"],
    "torch/snapshot_kept.pickle": ["C12"],
    "cases/program-and-belief.json": ["C01"],
    "cases/results-in-one-buffer.json": ["program"],
    "cases/told-and-ignored.json": ["C12", "C12"],
}
"""Causes that no number shows: a belief that did no harm, no ops, or bytes that nobody reads."""


def name(path):
    return f"{path.parent.name}/{path.name}"


def shown(path, rules=None):
    rules = rules or JudgeRules()
    outcome = replayed(judge_file(path, rules=rules), rules)
    assert outcome.replay.why_not is None
    assert outcome.replay.unaccounted == ()
    return outcome


@pytest.mark.parametrize("path", PLANS, ids=name)
def test_a_clean_plan_shows_no_difference_and_each_cause_has_its_numbers_or_says_that_none_differed(path):
    outcome = shown(path)

    assert outcome.report.clean is not bool(outcome.causes)
    assert (outcome.replay.host == ()) or outcome.causes
    assert outcome.passes is outcome.report.clean
    alone = [
        cause.class_ for cause, text in zip(outcome.causes, outcome.replay.numbers, strict=True) if text == RULE_ALONE
    ]
    assert alone == ALONE.get(name(path), [])


@pytest.mark.parametrize("system", SAMPLES)
def test_a_fault_planted_in_a_sample_is_shown_in_numbers_or_says_that_none_differed(system, tmp_path):
    assert shown(made(SAMPLES[system].clean, tmp_path)).replay.state == "clean"
    (tmp_path / "convicted").mkdir()
    outcome = shown(made(SAMPLES[system].convicted, tmp_path / "convicted"))

    assert len(outcome.replay.numbers) == len(outcome.causes) > 0
    assert any(outcome.replay.differs) or system in {"minimalloc", "torch-snapshot"}  # they have no ops


def test_the_lines_in_the_documentation_are_what_is_printed():
    path = DATA / "plans/executorch/cond_bug.pte"
    page = (DATA.parents[1] / "docs/plans.md").read_text(encoding="utf-8")
    shown_lines = page.partition("```text\n  replayed")[2].partition("```")[0].splitlines()[1:]

    assert len(shown_lines) == 6
    assert {*shown_lines} <= {*lines_of(shown(path))}


def test_a_pair_that_nobody_vouches_for_is_shown_where_it_is_accused():
    path = DATA / "plans/iree/emplaced.txt"

    assert shown(path).replay.state == "clean"
    assert shown(path, JudgeRules(strict=True)).replay.differs == (True,)
