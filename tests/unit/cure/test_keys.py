"""What a violation is about, by its kind, and a change of a lifetime in words."""

from dataclasses import replace
from functools import partial

import pytest

from allocsim.cure import defects
from allocsim.cure.changes import Change
from allocsim.cure.cured import FEW_WAITS, words_of
from allocsim.cure.defects import key_of
from allocsim.judge.fast import check
from allocsim.judge.violations import Violation
from allocsim.model import Document
from repro.small.words import belief, plan, program

FIELDS = ("run", "plan", "problem", "program", "op", "value", "buffer", "other_op", "other_buffer")
ABOUT = {
    "LifetimeTooShort": {"problem", "buffer"},
    "MissingPin": {"problem", "buffer"},
    "StaleRead": {"run", "program", "op", "value"},
    "UnsafeInPlace": {"run", "program", "op"},
    "Race": {"run", "program", "op", "other_op", "buffer", "other_buffer"},
    "Overlap": {"run", "problem", "value", "buffer", "other_buffer"},
}


@pytest.mark.parametrize("kind", ABOUT)
def test_two_violations_are_one_where_all_that_they_are_about_is_equal(kind):
    """Of a plan, the plan counts where no run does."""
    one = Violation(kind=kind, message="", **dict.fromkeys(FIELDS, 1))
    differing = {name for name in FIELDS if key_of(one) != key_of(replace(one, **{name: 2}))}
    assert differing == ABOUT[kind]
    still = replace(one, run=None)
    of_plan = key_of(still) != key_of(replace(still, plan=2))
    assert of_plan is (kind == "Overlap")


@pytest.mark.parametrize(
    ("begins", "ends", "said"),
    [
        (False, True, "keep a until op 2 (g) has run"),
        (True, True, "keep a until op 2 (g) has run, from op 1 (f) on"),
        (True, False, "give a its bytes from op 1 (f) on"),
    ],
)
def test_a_change_of_a_lifetime_is_said(begins, ends, said):
    made = program("x = host.write; a = f x; b = g a; host.read b")
    document = Document.of(plan(made, "", belief(made)))
    element = Change(kind="lifetime", problem=0, buffer=1, start=1, stop=3, begins=begins, ends=ends)
    assert element.describe(document) == said


def test_a_few_waits_are_said_one_by_one_and_many_by_kind():
    made = program("x = host.write; a = f x; b = g x ~1; c = f x ~1; d = h x ~1; e = h x ~1; f = h x ~1; g = h x ~1")
    document = Document.of(plan(made, ""))
    waits = [Change(kind="wait", program=0, op=op, after=1) for op in range(2, 8)]
    for count in range(1, len(waits) + 1):
        said = words_of(waits[:count], document)
        kinds = {made.ops[wait.op].kind for wait in waits[:count]}
        assert len(said) == (count if count <= FEW_WAITS else len(kinds))


def test_of_every_kind_something_is_listed_whatever_else_there_is_too_much_of(monkeypatch):
    monkeypatch.setattr(defects, "check", partial(check, limit=1))
    made = program("x = host.write; a = f x; b = g x; c = h a b; host.read c")
    report = defects.listed(Document.of(plan(made, "x=0 a=64 b=64 c=128")))
    assert {v.kind for v in report.violations} == {"StaleRead", "Overlap"}
