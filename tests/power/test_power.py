"""Detection power: each planted fault is reported by the detectors that must and by no other, and the verdict names class and party.

The rows are data (`faults.py`), the twins are the same rows without the fault.
"""

from functools import cache
from pathlib import Path

import pytest
from evidences import lost
from expected import agree
from power.fault import PLACES, Fault
from power.faults import FAULTS
from power.kernels import softmax
from power.report import page
from power.scenarios import CLASSES, EXPECTED
from renumbering import shuffled

from allocsim.outcomes.description import EVENTS, describe
from allocsim.verdict import CLASSES as ALL_CLASSES
from allocsim.verdict import NAMES, judge
from allocsim.verdict.attribution import charges
from allocsim.verdict.evidence import load, save
from engine.d_differential.orders import explore
from repro import scenarios
from repro.small.answers import DETECTORS, said
from repro.small.on_engine import inputs_of, lowered_of
from repro.small.small_document import document

WARNINGS = {"HistoryRead", "AssumedInPlace"}
BY_NAME = {fault.name: fault for fault in FAULTS}
PAGE = Path(__file__).parents[2] / "docs" / "power.md"
LARGE = "the backward pass of 30 layers normalises in place"
each = pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=pytest.mark.slow if fault.name == LARGE else ()) for fault in FAULTS],
    ids=[f"{fault.verdict.split(';')[0].replace(' ', '-')}: {fault.name}" for fault in FAULTS],
)
SMALL = tuple(fault for fault in FAULTS if fault.name != LARGE)


@cache
def asked(name: str, *, planted: bool):
    """Return the evidence of a fault or its twin, the verdict, and what each detector said; once for all tests of a process."""
    evidence = BY_NAME[name].evidence(planted=planted)
    verdict = judge(evidence)
    return evidence, verdict, said(evidence, verdict)


@each
def test_those_report_a_fault_who_must_and_no_other_and_the_verdict_names_class_and_party(fault: Fault):
    evidence, verdict, found = asked(fault.name, planted=True)
    assert {detector: kinds or frozenset() for detector, kinds in found.items()} == {
        d: fault.fires(d) for d in DETECTORS
    }
    for detector, kinds in found.items():
        status = verdict.detectors[detector]["status"]
        assert status == ("not run" if kinds is None else "violations" if kinds - WARNINGS else "clean"), detector
    assert [f"{finding.class_} {finding.party}" for finding in verdict.joint] == fault.verdict.split("; ")
    names_and_numbers_do_not_matter(evidence, verdict)
    each_violation_is_shown_with_the_ops_round_it(evidence)


@each
def test_the_twin_is_clean_in_all(fault: Fault):
    """Clean because there is nothing to find, not because nobody looked: who could look at the fault can look at the twin."""
    _, verdict, found = asked(fault.name, planted=False)
    assert not {detector: kinds for detector, kinds in found.items() if kinds}
    assert verdict.sound
    assert "nothing wrong was found" in verdict.text
    looked = {detector for detector, kinds in asked(fault.name, planted=True)[2].items() if kinds is not None}
    assert looked <= {detector for detector, kinds in found.items() if kinds is not None}


@each
def test_more_evidence_never_finds_less(fault: Fault):
    assert lost(asked(fault.name, planted=True)[0])[0] == []


def names_and_numbers_do_not_matter(evidence, verdict):
    """Counts may differ where two states share a slot: content is laid in the order of buffers."""
    for seed in (1, 2):
        other = judge(shuffled(evidence, seed))
        assert [(f.class_, f.party, f.first.run, f.first.step) for f in other.joint] == [
            (f.class_, f.party, f.first.run, f.first.step) for f in verdict.joint
        ]


def each_violation_is_shown_with_the_ops_round_it(evidence):
    """The op it is filed under is marked, every buffer concerned has its line, and class and party stand above."""
    report, found = charges(evidence.document)
    for cause in found:
        v = cause.violation
        head, class_, *lines = describe(evidence.document, v, cause=cause).splitlines()
        assert head.startswith(f"{v.kind}: ")
        assert class_.startswith(f"  {cause.class_}, fault of the {cause.fault}: "), v.kind
        marked = [number for number, line in enumerate(lines) if line.startswith("  > ")]
        assert len(marked) == (v.op is not None or v.kind in EVENTS)
        assert all("<- " in lines[number] or "<- " in lines[number + 1] for number in marked)
        assert sum(" bytes" in line and "(buffer " in line for line in lines) >= (v.buffer is not None)
    assert len(found) == len(report.violations)


@pytest.mark.parametrize("fault", SMALL[::9], ids=lambda fault: fault.name)
def test_saved_evidence_alone_gives_the_same_verdict(fault: Fault, tmp_path):
    evidence, verdict, _ = asked(fault.name, planted=True)
    save(evidence, tmp_path)
    assert judge(load(tmp_path)).as_json() == verdict.as_json()


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.shows is not None], ids=lambda fault: fault.name)
@pytest.mark.parametrize("planted", [True, False], ids=["planted", "twin"])
def test_a_race_that_some_read_can_see_gives_a_wrong_number_in_another_order(fault: Fault, planted: bool):
    doc = fault.document(planted=planted)
    (run,) = doc.runs
    lowered = lowered_of(run.program)
    found = explore(lowered, run.plan, inputs_of(lowered))
    assert (found.first is not None) == (planted and fault.shows)


# --- the suite itself -----------------------------------------------------------------------------------------------------


def test_the_suite_is_large_and_covers_every_class_place_and_detector():
    assert len(FAULTS) >= 100
    assert len(BY_NAME) == len(FAULTS)
    first = [fault.verdict.split()[0] for fault in FAULTS]
    assert {class_ for class_ in ALL_CLASSES if first.count(class_) < 3} == {"program"}
    assert {fault.planted_in for fault in FAULTS} == set(PLACES)
    for detector in DETECTORS:
        assert any(fault.fires(detector) for fault in FAULTS), detector


def test_every_detector_is_alone_somewhere_or_cannot_be():
    """P, K and H see what no other does; S, L too. K and D go together, R repeats S, P or D of a later run."""
    alone = {next(iter(fault.kinds)) for fault in FAULTS if len([d for d in DETECTORS if fault.fires(d)]) == 1}
    assert alone >= {"S", "L", "H", "P"}


def test_every_name_of_a_cause_is_reached_by_some_fault():
    """No kernel here could be given results that lie on each other in one buffer; no sketch has runs at once, late looks or ranges of sizes."""
    reached = {cause.evidence for fault in SMALL for cause in asked(fault.name, planted=True)[1].causes}
    assert [
        row.evidence
        for row in NAMES
        if row.evidence not in reached
        and not ({*row.mends} & {"results", "runs", "late"} or "end of the ranges of sizes" in row.evidence)
    ] == []


def test_an_unsafe_kernel_convicts_nobody_until_a_pin_makes_the_plan_use_it():
    verdict = judge(softmax("two_pass", pinned=False))
    assert verdict.sound
    assert verdict.detectors["K"]["status"] == "violations"
    assert verdict.detectors["D"]["status"] == "clean"


def test_every_scenario_of_the_catalogue_is_in_the_library():
    assert set(EXPECTED) == set(CLASSES) <= set(scenarios.SMALL)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_scenario_gets_the_verdict_the_catalogue_gives_it_or_there_is_a_reason(name: str):
    scenario = scenarios.find_small(name)
    _, verdict, found = asked(scenario.title, planted=True)
    otherwise = {detector for detector, wanted in EXPECTED[name].items() if bool(found[detector]) != wanted}
    if CLASSES[name] not in {finding.class_ for finding in verdict.joint}:
        otherwise.add("class")
    assert otherwise == set(scenario.reasons)


@pytest.mark.slow
def test_the_published_table_is_what_the_detectors_say():
    agree(PAGE, page(FAULTS, lambda fault: asked(fault.name, planted=True)[2]))


def test_a_sketch_builds_the_same_document_each_time():
    from allocsim import document as native  # noqa: PLC0415 - only here

    for fault in FAULTS:
        if fault.sound is not None:
            assert native.dumps(document(fault.sound)) == native.dumps(document(fault.sound))
