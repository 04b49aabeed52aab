"""One fault has one number: in the command line's text and JSON, SARIF, JUnit, a failing test, pictures and the page."""

import re
from xml.etree import ElementTree as ET

import pytest

import allocsim
from allocsim.cure.defects import key_of
from allocsim.judge.fast import check
from allocsim.outcomes import junit, outcome_of, sarif
from allocsim.outcomes.telling import lines_of
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence
from reports.figures.conflicts import conflicts, numbering
from reports.figures.scene import scene
from reports.interactive.boxes import exhibit
from repro.scenarios import SMALL, find_small
from repro.small.small_document import document as document_of


@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_cause_has_one_number_wherever_it_is_told(name):
    document = document_of(find_small(name).faulty)
    report = check(document, of_each_kind=True)
    outcome = outcome_of(f"{name}.json", document, report=report, cures=False)
    number = {cause.number: cause for cause in outcome.causes}
    assert [*number] == list(range(1, len(outcome.causes) + 1))
    assert [(c.number, c.mend) for c in judge(Evidence(document=document), cures=False).causes] == [
        (c.number, c.mend) for c in outcome.causes
    ]

    text = "\n".join(lines_of(outcome))
    for cause in outcome.causes:
        assert f"\n{cause.number}. {cause.class_} {cause.party}, " in f"\n{text}"
    filed = {key_of(f.violation): f.cause.cause.number for f in outcome.findings if f.cause.cause is not None}

    (run,) = sarif.log([outcome])["runs"]
    told = [result["properties"]["number"] for result in run["results"] if "number" in result.get("properties", {})]
    assert told == [f.cause.cause and f.cause.cause.number for f in outcome.findings]
    lines = [
        line
        for case in ET.fromstring(junit.dumps([outcome])).iter("failure")
        for line in (case.text or "").splitlines()
    ]
    for finding in outcome.findings:
        cause = finding.cause.cause
        assert any(
            line.startswith(f"{cause.number}. {cause.class_}, ") and finding.violation.message in line for line in lines
        )

    if outcome.causes:
        with pytest.raises(AssertionError) as failed:
            allocsim.assert_clean(document)
        said = re.findall(r"^(\d+)\. (\w+) (\w+), ", str(failed.value), re.MULTILINE)
        assert said == [(str(c.number), c.class_, c.party) for c in outcome.causes]

    causes = numbering(document, report)
    words = {}
    for index in range(len(document.runs)):
        shown = scene(document, index)
        for arena in range(len(document.arenas)) if shown is not None else ():
            drawn, _ = conflicts(shown, arena, index, report, causes)
            words |= {conflict.words: conflict.number for conflict in drawn}
    assert set(words.values()) <= set(number)
    page, _ = exhibit(document, report=report, causes=causes)
    assert [(c["number"], c["mend"]) for c in page["causes"]] == [(c.number, c.mend) for c in outcome.causes]
    assert all(
        words.get(each["words"], each["cause"]) == each["cause"] for one in page["plans"] for each in one["conflicts"]
    )
    assert filed.keys() >= {key_of(v) for cause in causes for v in cause.violations if v in report.violations}
