"""Which of several causes comes first: what the judge's places say, and, of equal weight, what tells their mends apart."""

from dataclasses import replace

import pytest

from allocsim.cure.changes import Change
from allocsim.model import Document
from allocsim.verdict.causes import causes_of, ordered
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.evidence import Evidence
from allocsim.verdict.records import Cause, FirstPlace
from repro.small.words import belief, plan, program

MADE = program("x = host.write; a = f x; b = g a; c = h b; host.read c")


def cause(first=FirstPlace(), places=1, **mend):  # noqa: B008 - it is frozen
    return Cause(
        class_="C04", party="kernel", evidence="", text="", places=places, first=first, mend="", change=Change(**mend)
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"op_kind": "f"}, {"op_kind": "g"}),
        ({"op_kind": None}, {"op_kind": "f"}),
        ({"operand": 0}, {"operand": 1}),
        ({"operand": None}, {"operand": 0}),
        ({"result": 0}, {"result": 1}),
        ({"plan": 0, "op": 1}, {"plan": 0, "op": 2}),
        ({"plan": 0, "buffer": 1}, {"plan": 0, "buffer": 3}),
        ({"plan": 0, "buffer": None}, {"plan": 0, "buffer": 0}),
        ({"first": FirstPlace(run=0, step=2)}, {"first": FirstPlace(run=1, step=1)}),
        ({"first": FirstPlace(run=0, step=1)}, {"first": FirstPlace(run=0, step=2)}),
        ({"first": FirstPlace(run=0, step=None)}, {"first": FirstPlace(run=0, step=0)}),
        ({"first": FirstPlace(step=3)}, {"first": FirstPlace(run=0, step=0)}),
        ({"places": 2}, {"places": 1}),
    ],
)
def test_causes_of_equal_weight_stand_in_one_order_however_they_were_found(first, second):
    dossier = Dossier(Evidence(document=Document.of(plan(MADE, ""))))
    one, other = cause(kind="kernel", **first), cause(kind="kernel", **second)
    numbered = replace(one, number=1), replace(other, number=2)
    assert ordered(dossier, [other, one]) == ordered(dossier, [one, other]) == numbered


def test_a_wrong_belief_that_did_no_harm_comes_after_what_did():
    """b lies on 32 bytes of a that nobody reads; that x is needed at op 1 was not believed, and nobody took its bytes."""
    document = Document.of(plan(MADE, "x=0 a=64 b=96 c=256", belief(MADE, x=(0, 1))))
    harm, harmless = causes_of(document)
    assert {v.kind for v in harm.violations} == {"Overlap", "LifetimeIgnored"}
    assert {v.kind for v in harmless.violations} == {"LifetimeTooShort"}
