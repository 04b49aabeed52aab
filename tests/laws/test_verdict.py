"""A verdict depends on bytes and steps alone: not on names, not on how anything is numbered, not on which process reaches it."""

import json
import subprocess
import sys

import pytest
from columns import difference
from evidences import lost
from few import ENOUGH, few_of
from hypothesis import given
from hypothesis import strategies as st
from renumbering import shuffled
from scenario_runs import ALL, small
from strategies import documents

from allocsim.model import Arena, Document
from allocsim.outcomes import verdict_entry
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.verdict import judge
from allocsim.verdict.causes import cure_all
from allocsim.verdict.evidence import Evidence, KernelRow, Origin, load, save


def essence(verdict):
    """Return what must not change: classes, parties and counts in order, statuses, the price of the cure."""
    return (
        [(f.class_, f.party, f.places, f.first.run, f.first.step) for f in verdict.joint],
        {name: (says["status"], says["count"]) for name, says in verdict.detectors.items()},
        (verdict.cure_bytes, verdict.pin_all_bytes),
    )


MEASURED = ("audit", "origins", "sanitizer", "diverges", "cure")


@pytest.fixture(scope="module", params=ALL)
def result(request):
    return small(request.param)


def test_more_evidence_never_finds_less_of_a_scenario(result):
    assert lost(result.evidence)[0] == []


@given(documents(), st.integers(0, 99))
@ENOUGH
def test_a_verdict_has_a_fault_exactly_where_the_checks_find_a_violation_and_names_and_numbers_do_not_matter(
    drawn, seed
):
    evidence = Evidence(document=drawn)
    verdict = judge(evidence)
    assert verdict.sound == verdict.report.clean
    assert all(finding.class_ in verdict.text for finding in verdict.joint)
    json.dumps(verdict.as_json(), allow_nan=False)
    assert essence(judge(shuffled(evidence, seed))) == essence(verdict)


@given(documents(), st.integers(0, 99), st.data())
@ENOUGH
def test_nor_do_they_beside_measured_evidence(drawn, seed, data):
    places = [
        (r, op.step) for r, it in enumerate(drawn.runs) for op in it.program.ops if op.results and op.kind != "view"
    ]
    chosen = data.draw(st.lists(st.sampled_from(places), max_size=3, unique=True)) if places else []
    origins = tuple(
        Origin(
            run=r, op=step, what="result", position=0, value=drawn.runs[r].program.ops[step].results[0], max_error=1.0
        )
        for r, step in sorted(chosen)
    )
    kinds = sorted({drawn.runs[r].program.ops[step].kind for r, step in chosen})
    audit = tuple(
        KernelRow(kind=kind, operand=0, result=0, declared=True, measured="unsafe", max_error=1.0, cases=1)
        for kind in kinds
    )
    evidence = Evidence(document=drawn, audit=audit, origins=origins, diverges=bool(origins))
    assert essence(judge(shuffled(evidence, seed))) == essence(judge(evidence))


@given(documents(sound=True))
@ENOUGH
def test_sound_documents_have_a_sound_verdict(drawn):
    verdict = judge(Evidence(document=drawn, audit=(), origins=(), diverges=False))
    assert verdict.sound, verdict.text


@pytest.mark.parametrize("seed", few_of([1, 2], 1))
def test_names_and_numbers_do_not_matter_to_scenarios(result, seed):
    other = judge(shuffled(result.evidence, seed))
    assert essence(other) == essence(result.verdict)
    assert other.classes == frozenset(result.scenario.expected)


def test_saved_evidence_gives_the_same_verdict(result, tmp_path):
    save(result.evidence, tmp_path)
    assert judge(load(tmp_path)).as_json() == result.verdict.as_json()


@pytest.mark.parametrize("name", few_of(ALL, 2))
def test_saved_evidence_gives_the_same_verdict_in_a_fresh_process(name, tmp_path):
    result = small(name)
    save(result.evidence, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "allocsim", "verdict", "--json", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout) == json.loads(
        json.dumps(verdict_entry(result.verdict, result.evidence, patched=True))
    )


@given(documents())
@ENOUGH
def test_a_saved_document_is_the_same_evidence(tmp_path_factory, drawn):
    """A verdict sees evidence alone, and what comes back is equal in each column: to judge both would ask nothing more."""
    folder = tmp_path_factory.mktemp("evidence")
    evidence = Evidence(document=drawn)
    save(evidence, folder)
    again = load(folder)
    assert difference(drawn, again.document) is None
    assert [getattr(again, name) for name in MEASURED] == [getattr(evidence, name) for name in MEASURED] == [None] * 5


def test_a_renumbered_belief_is_cured_by_the_same_changes_at_the_same_price():
    """Elements by what they are and when the buffers live, not by number."""
    result = small("ggml-1501-as-reported+ggml-1501-seed")
    prices = set()
    for seed in (None, 1, 2, 3):
        evidence = result.evidence if seed is None else shuffled(result.evidence, seed)
        document = evidence.document
        found = cure_all(document)
        start = document.problems[0].start
        kinds = sorted((e.kind, int(start[e.buffer]) if e.buffer is not None else e.op) for e in found.changes)
        prices.add((tuple(kinds), found.nbytes, found.pin_all_bytes))
    assert len(prices) == 1


def test_of_two_slots_that_do_not_fit_the_same_is_charged_with_what_is_between_them_whatever_their_numbers():
    """Both lie beyond the end of the arena, and over each other."""
    b = ProgramBuilder("p", arenas=(Arena(name="a", capacity=40),))
    x = b.value("x", b.buffer("x", 8, alignment=16), "f32", (2,))
    y = b.value("y", b.buffer("y", 12), "f16", (3,), strides=(4,))
    b.op("host.write", (), (x,))
    b.op("host.read", (x,), ())
    b.op("column", (x,), (y,))
    evidence = Evidence(document=Document.of(plan_of(b.build(), [56, 56])))
    found = [judge(shuffled(evidence, seed)) for seed in range(6)]
    assert {(verdict.cure_bytes, tuple(cause.places for cause in verdict.causes)) for verdict in found} == {
        (-44, (1, 4))
    }
