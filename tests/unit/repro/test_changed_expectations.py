"""Where a scenario expects something else than the catalogue of bugs, a replay shows why.

`tests/power/scenarios.py` has what the catalogue expects.
"""

import re
from dataclasses import replace

import pytest

from allocsim.judge.fast import check
from repro import scenarios
from repro.small.small_document import SmallDocument, document
from repro.small_runs import run


def faulty(name: str) -> SmallDocument:
    """Return the document with the defect."""
    return scenarios.find_small(name).faulty


def kinds(small: SmallDocument) -> set[str]:
    """Return what the judge reports of a document."""
    return {found.kind for found in check(document(small)).violations}


def verdict_on(name: str, small: SmallDocument) -> tuple[tuple[str, str], ...]:
    """Return (class, fault) of what the verdict names where `small` is the faulty document."""
    scenario = scenarios.find_small(name)
    found = run(replace(scenario, sound=small, change={})).faulty.verdict
    return tuple((finding.class_, finding.party) for finding in found.joint)


def without_calls(small: SmallDocument) -> SmallDocument:
    """Return the document without the words that say which ops were a call."""
    return replace(small, text=re.sub(r"@\S+ ", "", small.text))


@pytest.mark.parametrize("name", ["index-leaf", "padded-attention"])
def test_what_is_wrong_in_every_run_alike_is_told_by_the_first(name):
    found = check(document(replace(faulty(name), runs=((), ())))).violations
    first, second = ({(v.kind, v.op, v.value) for v in found if v.run == number} for number in (0, 1))
    assert first == second != set()


def test_a_kernel_that_is_wrong_in_every_run_is_told_by_one_run():
    scenario = scenarios.find_small("rmsnorm-back-30")
    once = replace(scenario, sound=replace(scenario.sound, runs=((),)), not_run="H R")
    assert run(once).matches


@pytest.mark.parametrize(
    ("name", "other_order", "kind"),
    [
        ("parallel-in-place", "x = host.write; a = f! x; b = g x; y = h a b; host.read y", "StaleRead"),
        (
            "saved-activation-order",
            "x = host.write; s = f x; d:s = mul! s x; g = reduce s x; o = add d g; host.read o",
            "OverwrittenRead",
        ),
    ],
)
def test_a_replay_of_the_other_order_finds_what_that_of_the_list_does_not(name, other_order, kind):
    assert kinds(faulty(name)) == {"Race"}
    assert kind in kinds(replace(faulty(name), text=other_order))


@pytest.mark.parametrize(("name", "kind"), [("saved-activation-order", "Race"), ("mutated-concat", "OverwrittenRead")])
def test_what_no_plan_is_at_fault_for_is_wrong_with_every_buffer_apart(name, kind):
    assert kinds(replace(faulty(name), slots="", share="")) == {kind}


@pytest.mark.parametrize("name", ["branch-outputs", "loop-body", "unused-input"])
def test_between_a_call_and_its_surroundings_the_call_changes_nothing(name):
    flat = without_calls(faulty(name))
    assert kinds(flat) == kinds(faulty(name))
    assert verdict_on(name, flat) == scenarios.find_small(name).expected


def test_between_two_calls_it_does():
    assert verdict_on("two-conds", without_calls(faulty("two-conds"))) == (("C01", "plan"),)


def test_a_gradient_that_escapes_is_an_output_once_the_program_says_so():
    found = check(document(faulty("escaping-grad"))).violations
    assert {(v.run, v.want_run) for v in found if v.kind == "StaleRead"} == {(1, 0)}
    told = "first:e = host.write; y = f before:e; after:e = g y; t = h y; host.read t; host.read after"
    untold = replace(faulty("escaping-grad"), text=told, pinned="t", believed={"e": (0, 3)}, runs=((),))
    assert verdict_on("escaping-grad", untold) == (("C05", "caller"),)


def test_the_view_of_a_foreign_buffer_is_not_what_is_lost():
    direct = replace(faulty("foreign-view"), text="x = host.write; y = relu! w; z = add y x; host.read z")
    assert kinds(direct) == kinds(faulty("foreign-view"))
    assert verdict_on("foreign-view", direct) == scenarios.find_small("foreign-view").expected


def test_a_sanitized_run_of_two_programs_over_one_memory_is_not_to_be_had():
    scenario = scenarios.find_small("encoder-result")
    assert len(document(scenario.faulty).programs) == 2
    assert run(scenario).faulty.said["P"] is None
