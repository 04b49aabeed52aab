"""Small documents with the answer each must get (`tests/data/cases`): class and party of every cause, and a cure that the judge bears out.

Those of the table that wait for another data model are not here.
"""

from pathlib import Path

import pytest

from allocsim import document as native
from allocsim.cure.defects import keys_of
from allocsim.judge.fast import check
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence, load

CASES = Path(__file__).parents[2] / "data" / "cases"

ANSWERS = {
    "plan-over-output": "C12 plan",
    "told-and-ignored": "C12 plan; C12 plan",  # two slots, and either mend leaves the other
    "results-in-one-buffer": "program caller",
    "own-mutation-on-stale-plan": "C03 caller",
    "upload-left-out-in-place": "C06 caller",
    "uninitialised-read": "C14 caller",
    "program-and-belief": "C14 caller; C01 plan",
    "lost-view-and-left-out-upload": "C02 plan; C06 caller",
    "missed-reader": "C01 plan",
    "missed-reader-with-calls": "C01 plan",
    "reuse-under-copy": "C09 plan",
    "reuse-under-copy-across-arenas": "C09 plan",
    "two-slots-overlap": "C12 plan",
    "collision-beside-handover": "C12 plan",
    "one-pair-of-eight": "C03 plan",
    "one-wait-for-twenty-races": "C09 schedule",
    "fault-beside-defect": "C01 plan; C14 caller",
    "both-plans-faulty": "C01 plan; C01 plan",
    "plan-and-kernel-K": "C01 plan; C04 kernel",
    "plan-and-kernel-KD": "C01 plan; C04 kernel",
    "format-md-parallel-carry": "",
    "carry-one-by-one-0": "",
    "carry-one-by-one-1": "C15 plan",
    "swap-one-by-one": "C15 plan",
    "pin-ignored-then-no-upload": "C12 plan",
    "padding-read-charged-to-schedule": "C14 caller",
    "misaligned-told-twice": "C12 plan",
    "screen-miss": "C11 plan",
    "cure-for-nothing": "C07 caller",
    "late-read-judged-alone": "C01 plan; C01 plan; C05 caller; C05 caller; C07 plan",
    "waiting-run-judged-alone": "C12 plan; C12 plan",
}
"""Name -> class and party of each cause."""

ELEMENTS = {
    "plan-over-output": ["place"],
    "lost-view-and-left-out-upload": ["lifetime", "upload"],
    "upload-left-out-in-place": ["upload"],
    "reuse-under-copy": ["wait"],
    "reuse-under-copy-across-arenas": ["wait"],
    "one-pair-of-eight": ["pair"],
    "one-wait-for-twenty-races": ["wait"],
    "fault-beside-defect": ["lifetime"],
    "both-plans-faulty": ["lifetime", "lifetime"],
}
"""Name -> kinds of the elements of the cure of all causes."""


def verdict_of(name):
    folder = CASES / name
    return judge(load(folder) if folder.is_dir() else Evidence(document=native.read(CASES / f"{name}.json")))


@pytest.mark.parametrize("name", ANSWERS)
def test_each_case_gets_its_answer(name):
    verdict = verdict_of(name)
    assert sorted(f"{cause.class_} {cause.party}" for cause in verdict.causes) == sorted(
        filter(None, ANSWERS[name].split("; "))
    )


@pytest.mark.parametrize("name", ELEMENTS)
def test_the_cure_is_made_of_what_it_should_and_is_borne_out(name):
    verdict = verdict_of(name)
    assert [change.kind for change in verdict.cure.changes] == ELEMENTS[name]
    before, after = keys_of(verdict.report.violations), keys_of(check(verdict.cure.document).violations)
    cured = keys_of(v for cause in verdict.causes if cause.cure is not None for v in cause.violations)
    assert not after & cured
    assert after <= before


def test_one_pair_is_forbidden_and_no_other():
    cure = verdict_of("one-pair-of-eight").cure
    assert cure.words == ("forbid y3 to take the bytes of b3",)
    assert cure.nbytes == 64 * 1024


def test_one_wait_covers_twenty_races():
    (cause,) = verdict_of("one-wait-for-twenty-races").causes
    assert cause.places == 20
    assert len(cause.cure.changes) == 1
    assert cause.cure.minimal


@pytest.mark.parametrize("name", ["reuse-under-copy", "reuse-under-copy-across-arenas"])
def test_a_race_over_reuse_has_two_cures_with_both_prices(name):
    (cause,) = verdict_of(name).causes
    assert cause.cure.changes[0].kind == "wait"
    assert (cause.cure.nbytes, cause.cure.overlap > 0) == (0, True)
    assert cause.cure.alternative.as_json()["elements"][0]["kind"] == "place"
    assert check(cause.cure.alternative.document).clean


def test_a_program_at_fault_does_not_make_its_plan_illegal():
    for name in ("uninitialised-read", "results-in-one-buffer"):
        assert verdict_of(name).clauses[0].startswith("the plan is legal (0 conflicts")


def test_the_belief_is_kept_until_the_reader_through_the_view():
    assert verdict_of("lost-view-and-left-out-upload").cure.words == (
        "keep y until op 4 (add_4) has run",
        "upload x before every run",
    )
