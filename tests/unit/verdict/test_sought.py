"""Cures of single causes are sought until the work set for them is spent; what was not sought is said, and never told as if there were none."""

import pytest

from allocsim.cure import effort
from allocsim.model import Document
from allocsim.outcomes import outcome_of
from allocsim.outcomes.telling import lines_of
from allocsim.verdict import causes, judge
from allocsim.verdict.evidence import Evidence
from repro.small.words import belief, plan, program


def ending_early(count):
    """So many chains of one plan, in each of which a life ends before its last reader."""
    text = "; ".join(
        f"x{n} = host.write; a{n} = f x{n}; b{n} = g x{n}; c{n} = h b{n} a{n}; host.read c{n}" for n in range(count)
    )
    slots = " ".join(f"x{n}={64 + 256 * n} a{n}={256 * n} b{n}={256 * n} c{n}={128 + 256 * n}" for n in range(count))
    made = program(text)
    early = {f"a{n}": (5 * n + 1, 5 * n + 2) for n in range(count)}
    return Document.of(plan(made, slots, belief(made, **early)))


def test_each_of_sixteen_causes_gets_its_cure():
    found = judge(Evidence(document=ending_early(16))).causes
    assert len(found) == 16
    assert all(cause.cure is not None and cause.cure.nbytes <= 64 for cause in found)
    assert all("cure_sought" not in cause.as_json() for cause in found)


def test_what_was_not_sought_is_said(monkeypatch):
    monkeypatch.setattr(causes, "WORK", 1)
    verdict = judge(Evidence(document=ending_early(3)))
    assert [(cause.sought, cause.cure is not None) for cause in verdict.causes] == [
        (True, True),
        (False, False),
        (False, False),
    ]
    assert [cause.as_json().get("cure_sought") for cause in verdict.causes] == [None, False, False]
    assert len(verdict.cure.changes) == 3  # together they are cured all the same
    lines = list(lines_of(outcome_of("x", ending_early(3), cures=True)))
    assert sum("a cure was not looked for" in line for line in lines) == 2


def test_runs_count_however_few_ops_they_have(monkeypatch):
    """What is done once for each run is most of the work where programs are small."""
    monkeypatch.setattr(causes, "WORK", effort.RUN)
    verdict = judge(Evidence(document=ending_early(2)))
    assert [cause.sought for cause in verdict.causes] == [True, False]


def test_a_verdict_says_what_waits_cost_and_what_placing_apart_costs_instead():
    made = program("x = host.write; y = f x; z = f y ~1 ^1; t = f x; o = h t z ^2; host.read o")
    clauses = judge(Evidence(document=Document.of(plan(made, "x=0 y=64 z=128 t=64 o=192")))).clauses
    assert any(clause.startswith("cure: let") and "can no longer overlap" in clause for clause in clauses)
    assert any(clause.startswith("or place t at") for clause in clauses)


def test_a_cure_whose_search_was_ended_says_so(monkeypatch):
    """In its JSON and in its line; with all steps it is whole, and says nothing."""
    whole = judge(Evidence(document=ending_early(2)))
    assert "cut" not in whole.cure.as_json()
    for steps in range(1, 400):
        monkeypatch.setattr(causes, "STEPS", steps)
        verdict = judge(Evidence(document=ending_early(2)))
        if verdict.cure is not None and verdict.cure.cut:
            break
    assert verdict.cure.as_json()["cut"] is True
    assert any("cheaper ones not looked for to the end" in clause for clause in verdict.clauses)


def test_what_is_begun_is_ended_and_nothing_is_begun_without_a_step_left():
    left = effort.Effort(2)
    left.begin()
    left.take(5)
    assert (left.over, left.cut, left.spent) == (True, False, 5)
    with pytest.raises(effort.SpentError):
        left.begin()
    assert left.cut


def test_a_move_costs_more_where_plans_have_more_buffers():
    few, many = (Document.of(ending_early(count).plans[0]) for count in (1, 40))
    assert effort.steps_of_a_move(few) == effort.DRAFT
    assert effort.steps_of_a_move(many) == effort.DRAFT + 4 * 40 // 32
