"""What the page that judges asks of Python: a document's text in, findings out, in JSON.

    judged('{"format": "allocsim", ...}')     # '{"count": 3, "rows": [...], ...}'

It runs in a browser (Pyodide) on the standard library alone, so it is the plain judge's report with
sentences; whose fault it is and what cures it, which need columns, is said by `allocsim check`.

What this module does not see: files, the page.
"""

import json
from functools import lru_cache
from typing import Any, Final

from allocsim.diagnostics import worded
from allocsim.diagnostics.plain_facts import PlainFacts
from allocsim.errors import AllocsimError
from allocsim.judge.plain import judge, read
from allocsim.judge.violations import KINDS, Violation

SHOWN: Final = 10_000
"""Most records of the answer."""
_read: Final = lru_cache(maxsize=1)(lambda text: read(json.loads(text)))
"""Text -> document; the page asks for its sizes, and then for what is wrong with it."""


def sizes(text: str) -> str:
    """Return how large a document is, or why it is none, in JSON. O(bytes)."""
    return _answered(lambda: _sizes(text))


def judged(text: str) -> str:
    """Return what the plain judge finds in a document, in JSON.

    Of a text that is no document: `{"refused": LINE}`.
    """
    return _answered(lambda: _judged(text))


def _answered(work: Any) -> str:
    try:
        found = work()
    except (AllocsimError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        found = {"refused": " ".join(str(error).split()) or type(error).__name__}
    return json.dumps(found)


def _sizes(text: str) -> dict[str, Any]:
    document = _read(text)
    ops = sum(len(document.programs[run.program].ops) for run in document.runs)
    return {"ops": ops, "runs": len(document.runs), "programs": len(document.programs)}


def _judged(text: str) -> dict[str, Any]:
    document = _read(text)
    report = judge(document, limit=SHOWN)
    said = worded(report, PlainFacts(document))
    return {
        "count": report.count,
        "counts": [[kind, number, KINDS[kind][1]] for kind, number in report.counts.items()],
        "rows": [_row(v) for v in (*said.violations, *said.warnings)],
        "clean": report.clean,
    }


def _row(v: Violation) -> dict[str, Any]:
    return {"kind": v.kind, "severity": KINDS[v.kind][0], "run": v.run, "step": v.step, "text": v.message}
