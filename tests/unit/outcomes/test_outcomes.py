"""Fingerprints, known faults, JUnit and SARIF: their structure, and that nothing gets lost or breaks out."""

import json
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import documents

from allocsim import document as native
from allocsim.errors import DocumentError
from allocsim.judge.violations import KINDS
from allocsim.model import Document
from allocsim.outcomes import JudgeRules, Outcome, baseline, fingerprint, judge_file, junit, outcome_of, sarif
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.reduction.cut import cut
from allocsim.verdict.attribution import charges
from repro.small.words import plan, program

MADE = program("x = host.write; a = f x; b = g x; c = h a b; host.read c")
WRONG = Document.of(plan(MADE, "x=0 a=64 b=64 c=128"))
SOUND = Document.of(plan(MADE, "x=0 a=64 b=128 c=192"))
VIOLATIONS = [kind for kind, (severity, _) in KINDS.items() if severity == "violation"]


def marks(document):
    return sorted(fingerprint(document, cause) for cause in charges(document)[1])


def test_a_fingerprint_does_not_change_with_numbers_addresses_or_what_else_there_is():
    grown = program("w = host.write; x = host.write; a = f x; d = f w; b = g x; c = h a b; host.read c d")
    moved = Document.of(plan(grown, "w=512 d=640 x=1024 a=0 b=0 c=2048"))
    assert marks(moved) == marks(WRONG)


def test_a_fingerprint_changes_with_the_names_of_those_who_take_part():
    renamed = program("x = host.write; a = f x; b = g x; c = k a b; host.read c")
    changed = set(marks(WRONG)) - set(marks(Document.of(plan(renamed, "x=0 a=64 b=64 c=128"))))
    assert len(changed) == 1  # the late reader has another name; the overlap it has no part in is the one it was


@given(documents(), st.integers(0, 99))
@settings(max_examples=30)
def test_leaving_out_ops_that_play_no_part_leaves_the_fingerprint(document, seed):
    """A violation that is found in the cut document with the same names has the same fingerprint there."""
    random = np.random.default_rng(seed)
    smaller = cut(document, ops=[random.random(len(p.ops)) < 0.8 for p in document.programs])
    if smaller is None:
        return

    def named(within, cause):
        """Names of programs are part of what a violation is called: two programs may hold the same one."""
        v = cause.violation
        program = within.programs[v.program].name if v.program is not None else None
        return cause.key, program, tuple(sorted(v.names.items()))

    known = {named(document, cause): fingerprint(document, cause) for cause in charges(document)[1]}
    for cause in charges(smaller)[1]:
        if named(smaller, cause) in known:
            assert fingerprint(smaller, cause) == known[named(smaller, cause)]


def test_a_baseline_read_back_makes_everything_known():
    outcome = outcome_of("f", WRONG)
    assert (outcome.new, outcome.passes) == (2, False)
    known = baseline.loads(baseline.dumps([outcome, outcome]))
    assert len(known) == 2
    again = outcome_of("f", WRONG, known=known)
    assert (again.new, again.passes) == (0, True)
    assert outcome_of("f", SOUND, known=known).passes


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b'{"format": "allocsim-baseline", "version": 2, "known": []}',
        b'{"format": "x", "version": 1}',
        b"\xff",
    ],
)
def test_what_is_no_baseline_is_one_line(data):
    with pytest.raises(DocumentError, match=r"^known\.json: ") as caught:
        baseline.loads(data, "known.json")
    assert "\n" not in str(caught.value)


# JUnit --------------------------------------------------------------------------------------------------------------------


def checked_junit(data):
    """Parse JUnit XML and check what its schema asks: suites, cases, and counts that add up."""
    root = ET.fromstring(data)
    assert root.tag == "testsuites"
    for suite in root:
        assert suite.tag == "testsuite"
        assert {"name", "tests", "failures", "errors", "skipped", "time"} <= set(suite.keys())
        for case in suite:
            assert case.tag == "testcase"
            assert {"name", "classname"} <= set(case.keys())
            assert [child.tag for child in case] in ([], ["failure"], ["error"], ["skipped"])
            for child in case:
                assert "message" in child.keys()  # noqa: SIM118 - an element is no mapping
        assert int(suite.get("tests")) == len(suite)
    assert set(root.keys()) <= {
        "name",
        "tests",
        "failures",
        "errors",
        "disabled",
        "time",
    }  # of Jenkins' schema; no `skipped` there
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        for part in (root, *root) if count != "skipped" else root:
            assert int(part.get(count)) == len(list(part.iter(tag)))
    return root


def test_junit_has_a_case_for_each_kind_whatever_is_found():
    for document in (WRONG, SOUND):
        (suite,) = checked_junit(junit.dumps([outcome_of("plan.json", document)]))
        assert [case.get("name") for case in suite] == VIOLATIONS
    failed = {c.get("name"): c for c in checked_junit(junit.dumps([outcome_of("f", WRONG)])).iter("testcase") if len(c)}
    assert set(failed) == {"StaleRead", "Overlap"}
    assert "op 3 'h' reads bytes [0, 32) of buffer 1 'a'" in failed["StaleRead"][0].text
    assert failed["StaleRead"][0].text.startswith("1. C0")


def test_junit_skips_what_is_known_and_reports_errors_peaks_and_what_is_not_listed():
    known = {finding.fingerprint for finding in outcome_of("f", WRONG).findings}
    (suite,) = checked_junit(junit.dumps([outcome_of("f", WRONG, known=known, max_peak=10)]))
    assert {case.get("name"): case[0].tag for case in suite if len(case)} == {
        "StaleRead": "skipped",
        "Overlap": "skipped",
        "max-peak": "failure",
    }
    (suite,) = checked_junit(junit.dumps([Outcome(file="gone", error="gone: No such file")]))
    assert [(case.get("name"), case[0].tag, case[0].get("message")) for case in suite] == [
        ("readable", "error", "gone: No such file")
    ]
    short = outcome_of("f", WRONG)
    (suite,) = checked_junit(junit.dumps([Outcome(file="f", report=short.report)]))
    assert suite[-1].get("name") == "listed"


@given(st.text(max_size=30))
@settings(max_examples=60)
def test_no_name_breaks_the_xml_or_the_json(name):
    b = ProgramBuilder(name)
    x = b.tensor(name, "f32", (8,))
    b.op("k", (x,), (), name=name)
    outcomes = [
        outcome_of(name.replace("\0", "") or "f", Document.of(plan_of(b.build(), [0]))),
        Outcome(file="g", error=name),
    ]
    checked_junit(junit.dumps(outcomes))
    checked_sarif(sarif.dumps(outcomes))
    assert len(baseline.loads(baseline.dumps(outcomes))) == 1


# SARIF --------------------------------------------------------------------------------------------------------------------

LOCATION = {"physicalLocation", "logicalLocations", "message", "id"}
RESULT = {
    "ruleId", "ruleIndex", "level", "message", "locations", "relatedLocations", "partialFingerprints", "properties", "suppressions",
}  # fmt: skip


def checked_sarif(data):
    """Parse a log and check what the schema of SARIF 2.1.0 asks of the parts that are used."""
    log = json.loads(data)
    assert set(log) == {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"
    for run in log["runs"]:
        assert {"tool", "results"} <= set(run) <= {"tool", "results", "invocations", "artifacts", "columnKind"}
        driver = run["tool"]["driver"]
        rules = [rule["id"] for rule in driver["rules"]]
        assert driver["name"] == "allocsim"
        assert len(set(rules)) == len(rules)
        assert all(
            rule["shortDescription"]["text"] and rule["defaultConfiguration"]["level"] == "error"
            for rule in driver["rules"]
        )
        for invocation in run["invocations"]:
            assert invocation["executionSuccessful"] == ("toolExecutionNotifications" not in invocation)
            for note in invocation.get("toolExecutionNotifications", ()):
                assert set(note) <= {"level", "message", "locations"}
                assert isinstance(note["message"]["text"], str)
        uris = {artifact["location"]["uri"] for artifact in run["artifacts"]}
        for result in run["results"]:
            assert {"ruleId", "message", "locations"} <= set(result) <= RESULT
            assert rules[result["ruleIndex"]] == result["ruleId"]
            assert result["level"] in {"none", "note", "warning", "error"}
            assert isinstance(result["message"]["text"], str)
            for location in (*result["locations"], *result.get("relatedLocations", ())):
                assert set(location) <= LOCATION
                for logical in location.get("logicalLocations", ()):
                    assert set(logical) == {"name", "fullyQualifiedName", "kind"}
                    assert logical["kind"] in {"function", "variable", "resource"}
            uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            assert uri in uris
            assert uri.isascii()
            assert " " not in uri
            for suppression in result.get("suppressions", ()):
                assert suppression["kind"] in {"inSource", "external"}
            assert all(isinstance(mark, str) for mark in result.get("partialFingerprints", {}).values())
    return log


def test_sarif_has_a_result_for_each_violation_with_its_parties():
    log = checked_sarif(sarif.dumps([outcome_of("a b/plan.json", WRONG), outcome_of("ok.json", SOUND)]))
    results = log["runs"][0]["results"]
    assert [result["ruleId"] for result in results] == [f.violation.kind for f in outcome_of("f", WRONG).findings]
    late = next(result for result in results if result["ruleId"] == "StaleRead")
    location = late["locations"][0]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "a%20b/plan.json"
    assert [one["fullyQualifiedName"] for one in location["logicalLocations"]] == [
        "p/ops[3]",
        "p/values[1]",
        "p/buffers[1]",
    ]
    assert [one["logicalLocations"][0]["name"] for one in late["relatedLocations"]] == ["g", "f"]
    assert late["partialFingerprints"]["allocsim/v1"] in marks(WRONG)
    assert late["properties"]["fault"] == "plan"


def test_sarif_suppresses_what_is_known_and_tells_of_files_and_peaks():
    known = {finding.fingerprint for finding in outcome_of("f", WRONG).findings}
    outcomes = [outcome_of("f", WRONG, known=known, max_peak=10), Outcome(file="gone", error="gone: No such file")]
    (run,) = checked_sarif(sarif.dumps(outcomes))["runs"]
    assert [("suppressions" in result, result["ruleId"]) for result in run["results"]][-1] == (False, "max-peak")
    assert all("suppressions" in result for result in run["results"][:-1])
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"] == "gone: No such file"


def test_an_absolute_path_is_a_file_uri():
    (run,) = checked_sarif(sarif.dumps([outcome_of("/a/b c.json", WRONG)]))["runs"]
    assert run["artifacts"][0]["location"]["uri"] == "file:///a/b%20c.json"


@given(document=documents(), most=st.none() | st.integers(0, 4096))
@settings(max_examples=20)
def test_a_file_is_judged_as_the_document_in_it_is(tmp_path_factory, document, most):
    path = str(tmp_path_factory.mktemp("judged") / "plan.json")
    native.write(document, path)
    judged, told = judge_file(path, max_peak=most), outcome_of(path, native.read(path), max_peak=most)
    assert judged.file == path
    assert (judged.report, judged.max_peak, judged.passes) == (told.report, told.max_peak, told.passes)
    assert [f.fingerprint for f in judged.findings] == [f.fingerprint for f in told.findings]
    assert judge_file(path, causes_too=False, max_peak=most).passes == judged.passes


def test_what_cannot_be_read_is_an_outcome_that_does_not_pass(tmp_path):
    nowhere = judge_file(str(tmp_path / "nowhere.json"))
    (tmp_path / "broken.json").write_text("{")
    broken = judge_file(str(tmp_path / "broken.json"))
    assert "No such file" in nowhere.error
    assert str(tmp_path / "broken.json") in broken.error
    assert not nowhere.passes
    assert not broken.passes
    assert nowhere.document is broken.document is None


def test_the_plain_report_is_that_of_the_plain_judge_alone(monkeypatch):
    late = Document.of(plan(program("x = host.write; a = f x; b = g x; c = h b a; host.read c"), "x=0 a=64 b=64 c=192"))
    of_columns = JudgeRules().report(late)

    def refuse(*_, **__):
        raise AssertionError("the columns were asked")

    monkeypatch.setattr("allocsim.outcomes.check", refuse)
    report = JudgeRules(plain=True).report(late)
    assert report == of_columns
    assert not report.clean
    assert all(
        v.message.startswith(w.message[:40]) for v, w in zip(report.violations, of_columns.violations, strict=True)
    )
