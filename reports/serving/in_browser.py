"""What the page that judges asks of Python: a document's text in, findings out, in JSON.

    judged('{"format": "allocsim", ...}')     # the plain judge's: '{"count": 3, "rows": [...], ...}'
    explained(text)                           # the verdict and the explorer: '{"clauses": [...], "head": ..., "block": ...}'
    cured(text)                               # the verdict with its cure, and the cure of each cause

It runs in a browser (Pyodide) without any compiled package: the plain judge is the standard
library's, and the verdict and the explorer run on the stand-ins for numpy and msgspec beside it, so
that they are those of `allocsim report`. The three are asked one after the other, the quickest
first, and what they need is imported when they are first asked.

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
WORK: Final = 20_000
"""Steps (`allocsim.cure.effort`) for cures, of which a browser takes fewer in a second."""
_read: Final = lru_cache(maxsize=1)(lambda text: read(json.loads(text)))
"""Text -> document; the page asks for its sizes, and then for what is wrong with it."""


def sizes(text: str) -> str:
    """Return how large a document is, or why it is none, in JSON. O(bytes)."""
    return _answered(lambda: _sizes(text))


def judged(text: str) -> str:
    """Return the plain judge's report in JSON; of no document `{"refused": LINE}`."""
    return _answered(lambda: _judged(text))


def explained(text: str) -> str:
    """Return the verdict without cures, and what the explorer shows, in JSON.

    `clauses` are the verdict's lines; `head` and `block` are those of `reports.interactive.boxes`,
    `plans` in it is empty where nothing is run. Refused as by `judged`.
    """
    return _answered(lambda: _explained(text))


def cured(text: str) -> str:
    """Return the verdict's lines and cure, and each cause's cure by number; refused as `judged`."""
    return _answered(lambda: _cured(text))


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
    many = "1 violation" if report.count == 1 else f"{report.count} violations"
    clean = "no violation found; kernels not examined" if document.runs else "no plan here"
    return {
        "title": clean if report.clean else many,
        "count": report.count,
        "counts": [[kind, number, KINDS[kind][1]] for kind, number in report.counts.items()],
        "rows": [_row(v) for v in (*said.violations, *said.warnings)],
    }


def _row(v: Violation) -> dict[str, Any]:
    return {"kind": v.kind, "severity": KINDS[v.kind][0], "run": v.run, "step": v.step, "text": v.message}


@lru_cache(maxsize=1)
def _found(text: str) -> Any:
    """Return the dossier of a document in columns, and the causes found in it; for the verdict, and
    then for its cure.
    """
    from allocsim.document import loads  # noqa: PLC0415 - as below: the plain judge answers before
    from allocsim.verdict.causes import found_in  # noqa: PLC0415 - as above
    from allocsim.verdict.dossier import Dossier  # noqa: PLC0415 - as above
    from allocsim.verdict.evidence import Evidence  # noqa: PLC0415 - as above

    dossier = Dossier(Evidence(document=loads(text)))
    return dossier, found_in(dossier) if dossier.evidence.document.runs else ()


def _explained(text: str) -> dict[str, Any]:
    from allocsim.verdict.judging import verdict_of  # noqa: PLC0415 - as above
    from reports.interactive.boxes import exhibit  # noqa: PLC0415 - as above

    dossier, causes = _found(text)
    document = dossier.evidence.document
    if not document.runs:
        return {"clauses": [], "head": {"plans": []}, "block": ""}
    verdict = verdict_of(dossier, causes)
    head, block = exhibit(document, report=verdict.report, causes=verdict.causes, verdict=verdict.as_json())
    return {"clauses": verdict.clauses, "head": head, "block": block.encoded()}


def _cured(text: str) -> dict[str, Any]:
    from allocsim.verdict.causes import with_cures  # noqa: PLC0415 - as above
    from allocsim.verdict.judging import verdict_of  # noqa: PLC0415 - as above
    from reports.interactive.boxes import cure_words  # noqa: PLC0415 - as above

    dossier, causes = _found(text)
    if not dossier.evidence.document.runs:
        return {"clauses": [], "cures": {}}
    verdict = verdict_of(dossier, *with_cures(dossier, causes, WORK))
    return {"clauses": verdict.clauses, "cures": {cause.number: cure_words(cause) for cause in verdict.causes}}
