"""What a verdict says first of the plan, and of each detector whether it looked and what it found."""

import pytest
from several import several

from allocsim.model import Document, Role, Run
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence
from repro.small.words import belief, plan, program

MADE = program("x = host.write; a = f x; b = g a; c = h b a; host.read c")
KEPT = program("x = host.write; a = f x s; host.read a", roles={"s": Role.STATE})
BETWEEN = program("q = host.write; r = h q; t = h r; u = h t; host.read u")


def verdict(*runs):
    return judge(Evidence(document=Document.of(*runs)), cures=False)


def over_the_state(slots):
    """A program keeps s at 0; another, of which a run comes between two of the first, has these slots."""
    first = Run.of(plan(KEPT, "s=0 x=256 a=320"))
    return verdict(first, Run.of(plan(BETWEEN, slots)), first)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (plan(MADE, "x=0 a=64 b=128 c=0"), "the plan is legal (0 conflicts in 5 ops)"),
        (plan(MADE, "x=0 a=64 b=64 c=0"), "the plan is not legal (3 conflicts in 1 run of 5 ops)"),
        (plan(MADE, "x=8 a=96 b=160 c=224"), "the plan is not legal (1 conflict in 1 run of 5 ops)"),
    ],
    ids=["legal", "conflicts", "one conflict, of no run"],
)
def test_the_first_clause_says_whether_the_plan_is_legal(document, said):
    assert verdict(document).clauses[0] == said


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        ("q=256 r=320 t=256 u=320", "the plan is legal (0 conflicts in 5 ops)"),
        ("q=256 r=0 t=256 u=320", "the plan is legal within one run (0 conflicts in 5 ops) but not over 3 runs (1 conflict)"),
    ],
)  # fmt: skip
def test_a_plan_that_is_legal_within_each_run_may_not_be_over_all_and_the_longest_is_counted(slots, said):
    assert over_the_state(slots).clauses[0] == said


def test_what_two_later_runs_read_late_are_conflicts():
    first = Run.of(plan(KEPT, "s=0 x=256 a=320"))
    found = verdict(first, Run.of(plan(BETWEEN, "r=0")), first, Run.of(plan(BETWEEN, "r=0")), first)
    assert found.clauses[0].endswith("but not over 5 runs (2 conflicts)")


def test_each_detector_says_whether_it_ran_and_on_what():
    told = verdict(plan(MADE, "x=0 a=64 b=128 c=0", belief(MADE))).detectors
    assert told["S"] == {"status": "clean", "count": 0, "ops": 5, "truncated": False}
    assert told["L"] == {"status": "clean", "count": 0, "too_long": 0}
    assert told["H"] == {"status": "not run", "count": None, "why": "one stream"}
    assert told["R"] == {"status": "not run", "count": None, "why": "one run"}
    longer = verdict(plan(MADE, "x=0 a=64 b=128 c=192", belief(MADE, x=(0, 4)))).detectors
    assert longer["L"] == {"status": "clean", "count": 0, "too_long": 1}


def test_plans_beside_each_other_are_no_runs_after_each_other():
    lies = plan(MADE, "x=0 a=64 b=128 c=0")
    two = Document(programs=(MADE,), plans=(lies, lies))
    told = judge(Evidence(document=two), cures=False).detectors["R"]
    assert told == {"status": "not run", "count": None, "why": "no run after another over its memory"}
    assert verdict(Run.of(lies), Run.of(lies)).detectors["R"] == {"status": "clean", "count": 0, "runs": 2}


def test_a_document_without_runs_has_no_streams():
    told = judge(Evidence(document=Document(programs=()))).detectors
    assert told["H"] == {"status": "not run", "count": None, "why": "one stream"}


def test_of_two_findings_one_is_the_first_and_one_stands_beside_it():
    """b is laid over a, which is read later, and x is not where its alignment of 32 asks for."""
    found = verdict(plan(MADE, "x=8 a=96 b=96 c=192"))
    first, other = found.joint
    told = found.as_json()
    assert (told["class"], told["fault"]) == (first.class_, first.party)
    assert [(one["class"], one["fault"]) for one in told["also"]] == [(other.class_, other.party)]


def test_a_late_read_is_said_with_its_reader_and_who_took_the_bytes():
    (cause,) = verdict(plan(MADE, "x=0 a=64 b=64 c=192")).causes
    assert cause.text.startswith("a was overwritten by g (op 2) before h (op 3) read it: ")
    (cause,) = verdict(plan(MADE, "x=8 a=96 b=160 c=224")).causes
    (found,) = cause.violations
    assert cause.text == f"{cause.evidence}: {found.message}"


def test_counts_add_up_where_a_violation_stands_under_two_causes():
    """Of every class the places are told once each; what stands under two classes is told, and how much."""
    seen = 0
    for one in several(range(40), 2):
        found = judge(one.evidence, cures=False)
        places = {id(v) for cause in found.causes for v in cause.violations}
        measured = sum(cause.places - len(cause.violations) for cause in found.causes)
        twice = sum(finding.places for finding in found.joint) - len(places) - measured
        said = [clause for clause in found.clauses if "several causes explain it" in clause]
        assert [int(clause.split()[0]) for clause in said] == [twice] * bool(twice)
        seen += bool(twice)
    assert seen
