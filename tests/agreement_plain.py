"""The plain judge against the columns on one document: the same records in the same order, the same counts and sizes.

The plain judge reads the native JSON by itself. Compared is every field of a record but its words. `laws/test_plain.py` and
`benchmarks/plain_judge.py` ask it; the second one also with every screen forced on.
"""

import dataclasses
import json

from oracle2.generate import generate, table

from allocsim import document as native
from allocsim.judge import plain
from allocsim.judge.fast import check, selector
from allocsim.judge.fast.screens import reads
from allocsim.judge.violations import Violation

WORDS = {"message", "names"}
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


def differences(one, other):
    """Return in what two facts differ, as `(what, records of the one alone, of the other alone)`."""
    found = []
    for what, mine in one.items():
        if mine != other[what]:
            pair = (mine, other[what])
            alone = [[row for row in side if row not in against] for side, against in (pair, pair[::-1])]
            found.append((what, *(alone if what in {"violations", "warnings"} else pair)))
    return found


def compare(written, *, screens=False, **options):
    """Judge a document, as parsed JSON, twice; return the differences, none if the judges agree."""
    kept = [getattr(*place) for place in ASKED_AT_ONCE] if screens else []
    for place, _ in zip(ASKED_AT_ONCE, kept, strict=False):
        setattr(*place, 0)
    try:
        fast = check(native.loads(json.dumps(written)), plain=not screens, **options)
    finally:
        for place, value in zip(ASKED_AT_ONCE, kept, strict=False):
            setattr(*place, value)
    return differences(facts(fast), facts(plain.judge(plain.read(written), **options)))


def agree(seed, *, screens=False):
    """Compare one random document: every third with a table of kinds, every fifth strictly."""
    options = {"kinds": table(seed) if seed % 3 == 0 else None, "strict": seed % 5 == 0}
    return compare(generate(seed), screens=screens, **options)
