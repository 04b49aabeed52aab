"""Outcomes as JUnit XML, the format in which continuous integration shows tests.

A file is a test suite, and each kind of violation is a test case in it, so that all files and runs
have cases with the same names. A case fails with all violations of its kind in its text, is skipped
if all of them are known, and passes if there are none. `max-peak` is another case if a limit was
given, and so is a read that differs in a replay although no violation was found. A file that cannot
be read is a suite with one error.

What this module does not see: time. Every case has the time 0.
"""

from collections.abc import Iterable
from typing import Final
from xml.etree import ElementTree as ET

from allocsim.judge.violations import KINDS
from allocsim.outcomes import FiledViolation, Outcome

SHOWN: Final = 100
"""Most violations of one kind that are written out."""


def dumps(outcomes: Iterable[Outcome]) -> bytes:
    """Return the outcomes as UTF-8 XML; characters that XML does not allow are written as codes."""
    suites = [_suite(outcome) for outcome in outcomes]
    totals = {
        name: count for name, count in _totals(suites).items() if name != "skipped"
    }  # Jenkins' schema has none there
    root = ET.Element("testsuites", {"name": "allocsim", **totals})
    root.extend(suites)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _suite(outcome: Outcome) -> ET.Element:
    name = _text(outcome.file)
    suite = ET.Element("testsuite", {"name": name})
    if outcome.report is None:
        case = _case(suite, name, "readable")
        ET.SubElement(case, "error", {"message": _text(outcome.error or ""), "type": "unreadable"})
    else:
        for kind, (severity, meaning) in KINDS.items():
            if severity == "violation":
                _judged(_case(suite, name, kind), meaning, [f for f in outcome.findings if f.violation.kind == kind])
        for place, cause in enumerate(outcome.measured):
            case = _case(suite, name, f"measured-{place}")
            head = f"{cause.number}. {cause.class_}, fault of the {cause.party}"
            failure = ET.SubElement(case, "failure", {"message": _text(f"{head}: {cause.mend}"), "type": cause.class_})
            failure.text = _text(f"{head}: {cause.text}")
        missing = outcome.report.count - len(outcome.findings)
        if missing:
            case = _case(suite, name, "listed")
            ET.SubElement(case, "failure", {"message": f"{missing} more violations are not listed", "type": "limit"})
        for place, text in enumerate(() if outcome.replay is None else outcome.replay.unaccounted[:SHOWN]):
            ET.SubElement(
                _case(suite, name, f"replayed-{place}"), "failure", {"message": _text(text), "type": "replay"}
            )
        if outcome.max_peak is not None:
            case = _case(suite, name, "max-peak")
            if outcome.beyond:
                ET.SubElement(case, "failure", {"message": outcome.beyond, "type": "max-peak"})
    suite.attrib.update(_totals([suite]))
    return suite


def _case(suite: ET.Element, file: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", {"classname": f"allocsim.{file}", "name": name, "time": "0"})


def _judged(case: ET.Element, meaning: str, findings: list[FiledViolation]) -> None:
    if not findings:
        return
    fresh = [finding for finding in findings if not finding.known]
    if not fresh:
        ET.SubElement(case, "skipped", {"message": f"{len(findings)} known: {meaning}"})
        return
    lines = [_line(finding) for finding in fresh[:SHOWN]]
    if len(fresh) > SHOWN:
        lines.append(f"and {len(fresh) - SHOWN} more")
    failure = ET.SubElement(case, "failure", {"message": f"{len(fresh)}: {meaning}", "type": fresh[0].violation.kind})
    failure.text = "\n".join(map(_text, lines))


def _line(finding: FiledViolation) -> str:
    charge = finding.cause
    number = "" if charge.cause is None else f"{charge.cause.number}. "
    party = f"{number}{charge.class_}, fault of the {charge.fault}: " if charge.class_ is not None else ""
    mend = f" [{charge.cause.mend}]" if charge.cause is not None else ""
    return f"{party}{finding.violation.message}{mend}"


def _totals(suites: list[ET.Element]) -> dict[str, str]:
    cases = [case for suite in suites for case in suite.iter("testcase")]
    counts = {
        name: sum(case.find(tag) is not None for case in cases)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    return {"tests": str(len(cases)), **{name: str(count) for name, count in counts.items()}, "time": "0"}


def _text(text: str) -> str:
    """Return text in which characters that XML 1.0 does not allow are written as codes."""
    return "".join(
        char
        if char in "\t\n" or " " <= char <= "\ud7ff" or "\ue000" <= char <= "\ufffd" or char >= "\U00010000"
        else repr(char)[1:-1]
        for char in text
    )
