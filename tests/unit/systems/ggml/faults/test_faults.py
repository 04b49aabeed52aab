"""The seven faults show on both libraries, and the judge finds each from the addresses alone."""

import pytest
from ggml_live import BOTH, live

from allocsim.errors import EngineError
from allocsim.judge.fast import check
from allocsim.model import Document, Run
from allocsim.systems.ggml.capture.graph_document import document
from allocsim.systems.ggml.faults import FAULTS, evidence, repaired
from allocsim.systems.ggml.faults.observation import FaultObservation, first_ops
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence
from repro import scenarios

FOUND_BY_THE_JUDGE = {
    "stale-plan": {"Overlap", "StaleRead"},
    "late-output": {"MissingPin", "Overlap", "StaleRead"},
    "none-view": {"LifetimeTooShort", "Overlap", "StaleRead"},
    "output-on-view": {"MissingPin", "Overlap", "StaleRead"},
    "shared-gradient": {"MissingPin", "Overlap", "StaleRead"},
    "forward-then-backward": {"Overlap", "StaleRead"},
    "opt-accumulators": {"HistoryRead", "OverwrittenRead"},
}


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_gives_a_wrong_number(which, name):
    finding = live(which).call(FAULTS[name].task)

    assert finding.wrong, finding


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize("name", FAULTS)
def test_the_judge_finds_the_fault_without_ggml(which, name):
    captured = evidence(live(which).call(FAULTS[name].task))
    report = check(captured)

    assert {record.kind for record in (*report.violations, *report.warnings)} >= FOUND_BY_THE_JUDGE[name]


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize("name", FAULTS)
def test_the_verdict_names_class_and_party_and_clears_what_is_done_right(which, name):
    finding, row = live(which).call(FAULTS[name].task), FAULTS[name]

    assert judge(Evidence(document=evidence(finding), diverges=True)).classes == {(row.root_cause, row.party)}
    assert judge(Evidence(document=repaired(finding), diverges=False)).sound


def test_the_scenarios_say_what_the_table_says():
    said = {scenario.fault: scenario.expected for scenario in scenarios.every_on_ggml()}

    assert said == {name: ((row.root_cause, row.party),) for name, row in FAULTS.items()}


def test_a_finding_without_a_graph_is_no_evidence():
    with pytest.raises(EngineError, match="no graph called 'run'; it has none"):
        evidence(FaultObservation(found=1, wanted=2))


def test_a_program_cut_short_keeps_its_buffers_and_values():
    program = document(live("after").call(FAULTS["late-output"].task).rows["run"]).programs[0]
    short = first_ops(program, 2)

    assert [op.kind for op in short.ops] == [op.kind for op in program.ops][:2]
    assert (len(short.buffers), len(short.values)) == (len(program.buffers), len(program.values))


@pytest.mark.parametrize("which", BOTH)
def test_the_plan_a_rewired_graph_was_given_is_right_for_its_own_graph(which):
    finding = live(which).call(FAULTS["stale-plan"].task)

    assert check(document(finding.rows["planned"])).clean
    assert (finding.found, finding.wanted) == (60, 33)


def test_a_forward_plan_is_legal_for_its_own_graph_and_what_is_read_late_is_of_the_same_run():
    captured = evidence(live("after").call(FAULTS["forward-then-backward"].task))
    (run,) = captured.runs
    late = [found for found in check(captured).violations if found.kind == "StaleRead"]

    assert check(Document.of(Run.of(run.plan))).clean
    assert len(run.program.ops) > len(run.plan.program.ops)
    assert {(found.other_run, found.want_run) for found in late} == {(0, 0)}


def test_the_setter_protects_the_root_of_a_view_only_in_the_newer_library():
    by_setter = [live(which).call(FAULTS["output-on-view"].task).detail["by_setter"] for which in ("before", "after")]

    assert by_setter == [300, 6]


@pytest.mark.parametrize("which", BOTH)
def test_accumulators_of_ggml_opt_grow_by_one_gradient_each_step(which):
    norms = live(which).call(FAULTS["opt-accumulators"].task).detail["gradient_norms"]

    assert norms == pytest.approx([norms[0], 2 * norms[0], 3 * norms[0]])
