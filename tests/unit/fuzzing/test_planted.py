"""Planners that the fuzzer once found nothing wrong with are found, and odd ones that are sound are not accused."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from allocsim.allocators import find
from allocsim.fuzzing import CampaignSpec, Target, campaign
from allocsim.fuzzing.exercised import first_finding
from allocsim.fuzzing.history import CLOCK, FOLDER, HASHES, HISTORY, THREAD
from allocsim.fuzzing.pasting import pasted
from allocsim.fuzzing.properties import asked_of

ROOT = Path(__file__).parents[3]
ASKED = CampaignSpec(target=Target(name="greedy_by_size"), source="hypothesis", seed=3)
SEEDS = {"unknown_taken_for_may": 7}
"""Of planners that the seed above finds after hundreds of programs, one that finds them after a few."""


def told(name, examples=50):
    """A planted planner's campaign in a process of its own, of few programs."""
    target = Target(name=f"planted_planners:{name}", seconds=5)
    return campaign(CampaignSpec(target=target, source="hypothesis", seed=3, examples=examples, reduce_seconds=0.0))


@pytest.mark.parametrize(
    ("name", "breaks"),
    [
        ("own_for_everything", {"sound"}),
        ("own_without_belief", {"sound"}),
        ("partial_pins_ignored", {"told"}),
        ("fixed_ignored", {"told"}),
        ("own_ignored", {"told"}),
        ("third_operand_freed_early", {"sound"}),
        ("unknown_taken_for_may", {"sound"}),
        ("wrong_above_16", {"sound", "no_worse"}),
        ("wrong_above_64", {"sound", "no_worse"}),
        ("wrong_after_step_200", {"sound"}),
        ("alignment_capped", {"sound", "pins", "told"}),
        ("offsets_wrapped", {"sound", "pins", "told"}),
        ("refuses_three_alignments", {"answers"}),
        ("refuses_mixed_with_room", {"no_worse"}),
        ("refuses_the_empty", {"answers", "no_worse"}),
    ],
)
def test_what_only_some_programs_or_questions_show_is_found(name, breaks):
    asked = replace(ASKED, seed=SEEDS.get(name, ASKED.seed))
    finding = first_finding(asked, find(f"planted_planners:{name}"), guarantees=("sound", "no_worse"), cases=400)

    assert finding is not None
    assert finding.breaks in breaks


def test_what_depends_on_the_seed_of_hashes_is_said_to_and_fails_as_pasted(tmp_path):
    (finding,) = told("by_hash_seed", examples=10).findings
    assert finding.cause == HASHES
    assert "{'hash_seed': 7}" in pasted(finding, Target(name="planted_planners:by_hash_seed"), by="a test")


@pytest.mark.parametrize(
    ("name", "cause", "examples"),
    [
        ("by_folder", FOLDER, 10),
        ("by_hour", CLOCK, 10),
        ("by_hour_of_utc", CLOCK, 50),
        ("by_month", CLOCK, 10),
        ("by_year", CLOCK, 10),
        ("by_thread", THREAD, 10),
    ],
)
def test_what_an_answer_depends_on_is_said_and_fails_as_pasted(name, cause, examples):
    found = [finding for finding in told(name, examples).findings if finding.breaks == "deterministic"]

    assert [finding.cause for finding in found] == [cause]
    test = {}
    exec(pasted(found[0], Target(name=f"planted_planners:{name}", seconds=5), by="a test"), test)
    with pytest.raises(AssertionError):
        test["test_two_fresh_processes_answer_alike"]()


def test_state_that_is_kept_is_found_with_the_questions_that_show_it(tmp_path):
    finding = next(finding for finding in told("keeps_state", examples=3).findings if finding.cause == HISTORY)
    assert len(finding.before) == 1
    assert "after 1 other questions" in finding.message

    (tmp_path / "test_state.py").write_text(
        pasted(finding, Target(name="planted_planners:keeps_state", seconds=5), by="a test")
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_state.py"]
    done = subprocess.run(
        run, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert "FAILED test_state.py::test_the_planner_answers_as_if_nothing_had_been_asked_before" in done.stdout, (
        done.stdout
    )


@pytest.mark.parametrize(
    ("name", "breaks"),
    [
        ("more_than_apart", {"no_worse"}),
        ("told_of_nothing", set()),
        ("two_of_three_alike", {"no_worse", "deterministic"}),
    ],
)
def test_a_stranger_is_held_to_what_a_campaign_holds_it_to_also_in_this_process(name, breaks):
    """One that states nothing is held to all that need no promise, and not to pins that it is not told."""
    finding = first_finding(ASKED, find(f"planted_planners:{name}"), cases=60)
    assert (finding and finding.breaks) in (breaks or {None})
    shown = {one.breaks for one in told(name).findings}
    assert (bool(shown), shown <= breaks) == (bool(breaks), True)


@pytest.mark.parametrize("name", ["large_gaps", "pages", "in_a_thread", "forks_once"])
def test_an_odd_planner_that_is_sound_is_not_accused(name):
    result = told(name)

    assert [(finding.breaks, finding.message) for finding in result.findings] == []
    assert result.tally.programs == 50


def test_a_planner_is_held_to_what_it_states_and_to_what_is_not_left_out():
    assert "no_worse" not in asked_of(("sound", "deterministic"))
    assert "deterministic" not in asked_of(("no_worse",))
    assert {"no_worse", "deterministic"} <= set(asked_of(None))
    assert "told" not in asked_of(None, without=("told",))
