"""Graphs that a compiler re-inplaced, imported as what the user meant: the plan is convicted, with a cure.

`put!` is a functional op whose kernel is safe in place; the compiler wrote its result over an operand that is still read. Imported as
mechanics, the result would be one more value in the operand's buffer, and nothing would be left to find (docs/format.md).
"""

import json

import pytest
from encodings_2 import case

from allocsim import check, loads
from allocsim.model import Document, Run
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence
from repro.small.words import belief, plan, program

GRAPHS = {
    "output also returned": ("x = host.write; a = f x; v = put! a; host.read a; host.read v", "a", "C05"),
    "view": ("x = host.write; a = f x; w:a = view a; v = put! a; z = add w v; host.read z", "a", "C02"),
    "mutated view": (
        "x = host.write; a = f x; w:a = view a; m:a = scale! w; v = put! m; u:a = view m; z = add u v; host.read z",
        "a",
        "C02",
    ),
    "view of an input": ("x = host.write; w:x = view x; v = put! w; z = add x v; host.read z", "x", "C06"),
    "view of an input, read as a view": (
        "x = host.write; w:x = view x; v = put! x; z = add w v; host.read z",
        "x",
        "C06",
    ),
}
"""Graph, the buffer that the compiler wrote over, and the class."""


def verdict_of(document):
    return judge(Evidence(document=document))


def answers(verdict):
    return {(cause.class_, cause.party) for cause in verdict.causes}


@pytest.mark.parametrize(("text", "lost", "class_"), GRAPHS.values(), ids=GRAPHS)
def test_what_a_compiler_wrote_in_place_though_it_is_still_read_is_the_plans(text, lost, class_):
    verdict = verdict_of(Document.of(Run.of(plan(program(text), f"{lost}=0 v=0"))))
    assert answers(verdict) == {(class_, "plan")}
    assert verdict.cure.verified


@pytest.mark.parametrize(("text", "lost", "class_"), GRAPHS.values(), ids=GRAPHS)
def test_so_with_the_belief_that_made_it_look_right(text, lost, class_):
    made = program(text)
    over = next(op.step for op in made.ops if op.kind == "put")
    wrong = belief(made, share=f"{lost}>v", **{lost: (0 if lost == "x" else 1, over + 1)})
    verdict = verdict_of(Document.of(Run.of(plan(made, f"{lost}=0 v=0", wrong))))
    assert {party for _, party in answers(verdict)} == {"plan"}
    assert verdict.cure.verified


@pytest.mark.parametrize(("text", "lost", "class_"), GRAPHS.values(), ids=GRAPHS)
def test_the_plan_that_copies_first_is_clean(text, lost, class_):
    assert check(Document.of(Run.of(plan(program(text), f"{lost}=0 v=64")))).clean


def test_the_case_given_is_the_plans_with_a_cure():
    verdict = verdict_of(loads(json.dumps(case("reinplaced-view-as-intent")).encode()))
    assert answers(verdict) == {("C02", "plan")}
    assert verdict.cure.verified
