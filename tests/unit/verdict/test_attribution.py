"""Which violation of a cause is shown first, who allowed what, and which call a buffer belongs to."""

import pytest

from allocsim.model import Document, Run
from allocsim.verdict import judge
from allocsim.verdict.attribution import leading
from allocsim.verdict.calls import homes
from allocsim.verdict.evidence import Evidence
from repro.small.words import belief, plan, program


def document(text, slots, **lives):
    made = program(text)
    return Document.of(Run.of(plan(made, slots, belief(made, **lives))))


def charges(made):
    return {
        (c.charge.kind, made.programs[0].buffers.names[c.charge.buffer]) for c in judge(Evidence(document=made)).causes
    }


def test_the_leading_violation_is_the_one_at_the_first_place_of_the_first_cause():
    found = leading(
        document("x = host.write; a = f x; b = g x; c = h a b; host.read c", "x=0 a=64 b=64 c=128", a=(1, 2))
    )
    place = found.cause.first
    assert len(found.cause.violations) > 2
    assert found.violation.kind == "StaleRead"
    assert (found.violation.op, found.violation.value, found.violation.buffer) == (place.op, place.value, place.buffer)


@pytest.mark.parametrize(("taker", "right"), [("r", {("lifetime", "x")}), ("s", {("lifetime", "x"), ("slot", "s")})])
def test_a_result_is_handed_only_the_operand_it_is_declared_with(taker, right):
    """`f` may write `r` over `x`, not `s`: there the placement broke what it was told, whatever else was believed."""
    other = "s" if taker == "r" else "r"
    made = document("x = host.write; r s = f! x; t = g x r s; host.read t", f"x=0 {taker}=0 {other}=64 t=128", x=(0, 2))
    assert charges(made) == right


def test_a_buffer_belongs_to_the_outer_of_two_calls_that_write_it():
    made = program("x = host.write; @a/b a = f x; @a a1:a = g x; @a b = f x; @a/b b1:b = g x; host.read a1")
    names = made.buffers.names
    assert {names[buffer]: home for buffer, home in homes(made).items() if names[buffer] in "ab"} == {
        "a": ("a",),
        "b": ("a",),
    }
