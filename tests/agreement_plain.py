"""The plain judge against the columns on one document: the same records in the same order, the same counts and sizes.

The plain judge reads the native JSON by itself. Compared is every field of a record but its words. `laws/test_plain.py` and
`benchmarks/verdicts.py judges` ask it, also with every screen forced on.
"""

import dataclasses
import json

from agreement_2 import asked
from oracle2.generate import generate

from allocsim import document as native
from allocsim.judge import plain
from allocsim.judge.fast import check, selector
from allocsim.judge.fast.screens import reads
from allocsim.judge.violations import Violation

WORDS = {"message", "names", "more"}
"""What is said of a record, not what it says: a judge may leave it out."""
FIELDS = tuple(each.name for each in dataclasses.fields(Violation) if each.name not in WORDS)
SIZES = ("ops", "buffers", "peak_bytes", "lower_bound_bytes")

ASKED_AT_ONCE = ((reads, "COMPILE_FROM"), (selector, "RECTANGLES_FROM"), (selector, "LATE_FROM"))
"""From how many rows a screen is asked: 0 forces it on."""


def facts(report):
    """Return all that two judges must agree on."""
    return {
        "violations": [tuple(getattr(record, name) for name in FIELDS) for record in report.violations],
        "warnings": [tuple(getattr(record, name) for name in FIELDS) for record in report.warnings],
        "counts": (report.count, report.truncated, {kind: n for kind, n in report.counts.items() if n}),
        "sizes": [getattr(report.stats, name) for name in SIZES],
    }


def whole(report):
    """Return a report with every field of every record, what equality leaves out too."""
    rows = [
        tuple(getattr(record, each.name) for each in dataclasses.fields(Violation))
        for record in (*report.violations, *report.warnings)
    ]
    return report, rows


def differences(one, other):
    """Return in what two facts differ, as `(what, records of the one alone, of the other alone)`."""
    found = []
    for what, mine in one.items():
        if mine != other[what]:
            pair = (mine, other[what])
            alone = [[row for row in side if row not in against] for side, against in (pair, pair[::-1])]
            found.append((what, *(alone if what in {"violations", "warnings"} else pair)))
    return found


def forced(document, **options):
    """Return the report with every screen asked, however small the document."""
    kept = [getattr(*place) for place in ASKED_AT_ONCE]
    for place in ASKED_AT_ONCE:
        setattr(*place, 0)
    try:
        return check(document, **options)
    finally:
        for place, value in zip(ASKED_AT_ONCE, kept, strict=True):
            setattr(*place, value)


def compare(written, *, report=None, screens=False, **options):
    """Judge a document, as parsed JSON, twice; return the differences, none if the judges agree."""
    if report is None:
        document = native.loads(json.dumps(written))
        report = forced(document, **options) if screens else check(document, plain=True, **options)
    return differences(facts(report), facts(plain.judge(plain.read(written), **options)))


def agree(seed, *, screens=False):
    """Compare one random document."""
    return compare(generate(seed), screens=screens, **asked(seed))
