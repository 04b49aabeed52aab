"""Which violation of a cause is shown first, who allowed what, and which call a buffer belongs to."""

from dataclasses import replace
from functools import partial

import pytest

from allocsim.cure import defects
from allocsim.judge.fast import check
from allocsim.model import Document, Run
from allocsim.verdict import judge
from allocsim.verdict.attribution import charges as charges_of
from allocsim.verdict.attribution import leading
from allocsim.verdict.calls import homes
from allocsim.verdict.evidence import Evidence
from repro.small.words import belief, plan, program


def document(text, slots, **lives):
    made = program(text)
    return Document.of(Run.of(plan(made, slots, belief(made, **lives))))


def charges(made):
    return {
        (c.change.kind, made.programs[0].buffers.names[c.change.buffer]) for c in judge(Evidence(document=made)).causes
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


TWO_KINDS = "x = host.write; a = f x; b = g x; c = h a b; d = k a c; host.read d"
"""With b over a: two late reads and an overlap."""


def test_a_report_that_leaves_some_out_is_charged_by_one_with_every_kind(monkeypatch):
    """More late reads than a report lists come before the read of what nobody wrote: of that too it is said whose fault it is."""
    reads = " ".join(f"r{n} = k a c;" for n in range(12))
    made = document(
        f"x = host.write; a = f x; b = g x; c = h a b; {reads} d = k u; host.read d", "x=0 a=64 b=64 c=128 d=192 u=256"
    )
    monkeypatch.setattr(defects, "check", partial(check, limit=10))
    report = check(made, limit=1, of_each_kind=True)
    judged, found = charges_of(made, report)

    assert judged is report
    assert ("UninitialisedRead", "caller") in {(c.violation.kind, c.fault) for c in found}


def test_a_report_that_lists_all_is_taken_as_it_is():
    """What it was told is charged, not what another judgement would find."""
    made = document(TWO_KINDS, "x=0 a=64 b=64 c=128 d=192")
    report = check(made, of_each_kind=True)
    assert len(report.violations) == report.count > 1
    few = replace(report, violations=report.violations[:1], count=1)

    (cause,) = {id(c.cause): c.cause for c in charges_of(made, few)[1]}.values()
    assert cause.violations == few.violations


def test_a_pair_of_results_that_overlaps_by_the_plan_too_stands_under_both_causes():
    """The op's own results overlap in one buffer; that the judge's one record of the op names b is the plan's doing."""
    made = document("a b v:a = f; t = m v b; host.read t", "a=0 b=0 t=128")
    parties = {
        cause.party
        for cause in judge(Evidence(document=made)).causes
        for v in cause.violations
        if v.kind == "ResultsOverlap"
    }

    assert parties == {"caller", "plan"}
