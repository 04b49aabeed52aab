"""Planners with a known bug: what is planted, and that a campaign of few programs finds it."""

from dataclasses import replace

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS, find
from allocsim.fuzzing import CampaignSpec, Target
from allocsim.fuzzing import exercised as exercising
from allocsim.fuzzing.batch import join
from allocsim.fuzzing.bulk import Cut, batch_of
from allocsim.fuzzing.examination import Examiner
from allocsim.fuzzing.exercised import Within, exercised, first_finding, killed_by
from allocsim.fuzzing.features import marks, names
from allocsim.fuzzing.mutants import MUTANTS
from allocsim.fuzzing.properties import asked_of
from allocsim.fuzzing.tally import Tally
from allocsim.judge.fast import check
from allocsim.model import Document
from allocsim.programs.builder import ProgramBuilder

ASKED = CampaignSpec(target=Target(name="greedy_by_size"), source="hypothesis")


def test_there_are_enough_of_enough_classes():
    assert len(MUTANTS) >= 41
    assert len({row.class_ for row in MUTANTS.values()}) >= 9
    assert all(row.into in ALLOCATORS and row.bug for row in MUTANTS.values())


@pytest.mark.parametrize("name", list(MUTANTS))
def test_a_mutant_is_a_target_and_plans_what_its_bug_is_not_about(name):
    """One input, read at once: nothing to go wrong for nearly all of them."""
    builder = ProgramBuilder("plain")
    value = builder.tensor("x", "f64", (8,))
    builder.op("host.write", (), (value,))
    builder.op("host.read", (value,), ())
    planner = find(f"allocsim.fuzzing.mutants:{name}")
    plan = planner.plan(builder.build())

    assert planner.name == name
    clean = check(Document.of(plan)).clean
    assert clean or name in {"freed_one_step_early", "host_reads_forgotten"}


@pytest.mark.parametrize(
    "name", ["greedy_by_size", "tlsf"]
)  # ggml promises no soundness for pairs that nobody declares
def test_what_they_are_planted_into_is_found_nothing_against(name):
    assert first_finding(ASKED, ALLOCATORS[name], cases=20) is None


@pytest.mark.parametrize(
    ("name", "breaks"),
    [
        ("freed_one_step_early", "sound"),
        ("first_operand_only", "sound"),
        ("unread_has_no_life", "sound"),
        ("arenas_mixed", "sound"),
        ("told_pins_forgotten", "kept"),
        ("moody", "deterministic"),
    ],
)
def test_a_mutant_is_found_among_the_first_programs(name, breaks):
    finding = killed_by(ASKED, name, cases=60)

    assert finding is not None
    assert finding.breaks == breaks


@pytest.mark.parametrize(("source", "options"), [("exhaustive", {"ops": 3}), ("bulk", {}), ("hypothesis", {})])
def test_a_planner_that_takes_a_gap_for_the_end_is_found_by_every_source(source, options):
    asked = replace(ASKED, source=source, options=options)

    assert killed_by(asked, "gap_is_the_end", cases=250).breaks == "gaps"


def test_only_a_belief_with_gaps_shows_a_planner_that_takes_a_gap_for_the_end():
    without = [name for name in asked_of(ALLOCATORS["greedy_by_size"].guarantees) if name != "gaps"]
    examiner = Examiner(Within(MUTANTS["gap_is_the_end"].allocator()), properties=without)

    assert examiner.examine(Cut(batch_of(np.random.default_rng(1), 32))) == []


@pytest.mark.parametrize(("source", "options"), [("exhaustive", {"ops": 3}), ("bulk", {}), ("hypothesis", {})])
def test_a_mutant_is_asked_as_many_programs_as_are_said(monkeypatch, source, options):
    tallies = []

    class Kept(Examiner):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            tallies.append(self.tally)

    monkeypatch.setattr(exercising, "Examiner", Kept)

    assert first_finding(replace(ASKED, source=source, options=options), ALLOCATORS["greedy_by_size"], cases=30) is None
    assert [tally.programs for tally in tallies] == [30]
    assert tallies[0].judged["sound"] == 30


def test_a_planner_is_held_to_what_the_one_it_is_planted_into_promises(monkeypatch):
    """Buddy takes more than it would need without reuse, and does not promise otherwise."""
    monkeypatch.setitem(
        MUTANTS, "unmutated", replace(MUTANTS["double_free"], name="unmutated", make=lambda *_: ALLOCATORS["buddy"])
    )

    assert killed_by(replace(ASKED, source="exhaustive", options={"ops": 3}), "unmutated", cases=255) is None
    assert killed_by(ASKED, "unmutated", cases=60) is None


def test_what_was_exercised_is_said_and_counted(monkeypatch):
    tally = Tally(programs=2)
    tally.features.update({0b11: 1, 0b1: 1})
    sound = replace(MUTANTS["arenas_mixed"], name="sound", make=lambda name, planner: replace(planner, name=name))
    monkeypatch.setitem(MUTANTS, "sound", sound)
    shown = exercised(ASKED, tally, mutants=["arenas_mixed", "sound"], cases=60)
    words = "\n".join(shown.lines())

    assert shown.features["view"] == 2
    assert shown.pairs_met == 1
    assert shown.mutants == {"arenas_mixed": "sound", "sound": None}
    assert "mutants killed: 1 of 2; alive: sound" in words
    assert "pairs of features: 1 of" in words
    assert shown.as_json()["pairs"]["met"] == 1


ONLY = {
    "third_operand_forgotten": "three operands",
    "step_of_eight_bits": "above 200 ops",
    "alignment_of_a_mask": "odd granule",
    "alignment_at_most_64": "wide alignment",
    "table_of_64": "above 64 buffers",
    "same_ends_a_life": "same",
    "strength_ignored": "bytes pair",
    "some_pins_forgotten": "told",
    "own_forgotten": "told",
    "fixed_forgotten": "told",
}
"""Mutants that only programs with a feature kill, or only what is told, and that feature."""


@pytest.mark.parametrize("name", list(ONLY))
def test_a_mutant_of_a_feature_is_killed_by_what_has_the_feature(name):
    found = killed_by(ASKED, name, cases=400)

    assert found is not None
    (mask,) = marks(join([found.case.program])).tolist()
    assert ONLY[name] in {*names(mask), found.case.kind}
