"""What a report says before anything is charged: what only later runs show, and which runs overlap in time."""

from dataclasses import replace

import pytest

from allocsim.judge.fast import Violation, check
from allocsim.model import Document, Run
from allocsim.verdict.report_facts import at_once, only_later
from repro.small.words import plan, program

MADE = program("x = host.write; a = f x; host.read a")
PLANNED = plan(MADE, "x=0 a=64")
CLEAN = check(Document.of(PLANNED))


def found(kind="StaleRead", **told):
    return Violation(kind=kind, **{"program": 0, "op": 1, "value": 0, "buffer": 0, "run": 0, **told})


def later(*violations):
    return only_later(replace(CLEAN, violations=violations, count=len(violations)))


@pytest.mark.parametrize(
    ("violations", "count"),
    [
        ((found(),), 0),
        ((found(), found(run=1)), 0),
        ((found(run=1),), 1),
        ((found(), found(run=1, op=2)), 1),
        ((found(run=1), found(run=2)), 2),
        ((found(other_run=1),), 1),
        ((found(run=1, other_run=1), found(other_run=0)), 0),
        ((found(run=None, other_run=1),), 0),
        ((found("LifetimeTooShort", run=1),), 0),
        ((found("Overlap", other_buffer=1), found("Overlap", run=1, other_buffer=2)), 1),
        ((found(other_buffer=1), found(run=1, other_buffer=2)), 0),
    ],
)
def test_what_one_run_alone_would_not_have_is_counted(violations, count):
    assert later(*violations) == count


@pytest.mark.parametrize(
    ("afters", "count"),
    [
        ((None, None), 0),
        ((None, (0,)), 0),
        ((None, ()), 2),
        (((), ()), 2),
        ((None, (), (0, 1)), 2),
        ((None, (0,), (1,)), 0),
        ((None, (0,), (0,)), 2),
        ((None, (), None, (2,), ()), 5),
        ((None, (), None, (2,), (3,)), 2),
    ],
)
def test_runs_overlap_where_neither_waits_for_the_other(afters, count):
    assert at_once([Run.of(PLANNED, after=after) for after in afters]) == count
