"""`assert_clean`: makes a test fail with a message that shows the ops round each violation.

    allocsim.assert_clean(program, plan)                 # as verify_program
    allocsim.assert_clean(document)                      # or anything else that `verify` takes
    allocsim.assert_clean("plan.json")                   # or any file or folder that `allocsim check` takes
    allocsim.assert_clean(program, plan, max_peak=1 << 20)

What this module does not see: test runners. `allocsim.outcomes.pytest_plugin` is the fixture for
pytest.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

from allocsim.errors import AllocsimError
from allocsim.judge.violations import Report
from allocsim.model import Document, Plan, Run
from allocsim.outcomes import Outcome, judge_file, outcome_of
from allocsim.outcomes.description import describe
from allocsim.outcomes.telling import cause_lines, known_by_cause
from allocsim.outcomes.verification import document_of
from allocsim.verdict.attribution import Charge

SHOWN: Final = 3
"""Number of violations that a message describes with the ops round them.

Further violations, up to `LISTED`, have one line each.
"""

LISTED: Final = 20


class UncleanError(AssertionError):
    """A plan is not clean, as a test asserted; the message shows the ops round each fault."""

    def __init__(self, message: str, *, document: Document, outcome: Outcome) -> None:
        super().__init__(message)
        self.document = document
        """The document judged."""
        self.outcome = outcome
        """The outcome, with all violations and causes."""


def assert_clean(
    what: Document | Plan | Sequence[Run | Plan] | str | Path | Any,
    plan: Any = None,
    *,
    max_peak: int | None = None,
    known: Collection[str] = (),
    shown: int = SHOWN,
) -> Report:
    """Judge a plan and raise unless it is clean.

    Args:
        what: a document, a plan or runs, as `verify` takes them, or the path of a file or folder.
        plan: the plan to judge `what` with, or an offset for each buffer.
        max_peak: the most bytes that the plan may need.
        known: fingerprints of violations that do not count (`allocsim.outcomes.baseline.read`).
        shown: how many violations the message describes with the ops round them.

    Returns:
        The report, which may have warnings.

    Raises:
        UncleanError: an AssertionError with the faults in its message, and document and outcome as
            attributes.
        ModelError: `what` and `plan` do not fit together.
        AllocsimError: the file cannot be read.
    """
    __tracebackhide__ = True
    if isinstance(what, str | Path) and plan is None:
        outcome = judge_file(what, known=known, max_peak=max_peak, cures=True)
    else:
        outcome = outcome_of("", document_of(what, plan), known=known, max_peak=max_peak, cures=True)
    document = outcome.document
    if document is None:
        raise AllocsimError(str(outcome.error))
    if not outcome.passes:
        raise UncleanError(message_of(document, outcome, shown=shown), document=document, outcome=outcome)
    assert outcome.report is not None
    return outcome.report


def message_of(document: Document, outcome: Outcome, *, shown: int = SHOWN) -> str:
    """Return the faults of an outcome as text: causes, the first violations with the ops round
    them, further ones in a line each, and the number of those left out.
    """
    fresh = [finding for finding in outcome.findings if not finding.known]
    lines: list[str] = []
    if outcome.new:
        lines.append(f"the plan is not clean: {outcome.new} violation{'s'[: outcome.new != 1]}")
        unknown = {id(finding.cause.cause) for finding in fresh}
        wrong = [cause for cause in outcome.causes if id(cause) in unknown]
        known = known_by_cause(outcome)
        for cause in wrong[:LISTED]:
            lines += cause_lines(outcome, cause, known[id(cause)])
        for charge in _leading(fresh)[:shown]:
            lines += ["", describe(document, charge.violation, cause=charge)]
        rest = _leading(fresh)[shown:LISTED]
        if rest:
            lines += ["", *(f"{charge.violation.kind}: {charge.violation.message}" for charge in rest)]
        left = outcome.new - min(len(fresh), max(LISTED, shown))
        if left > 0:
            lines.append(f"and {left} more")
    if outcome.beyond:
        lines.append(outcome.beyond)
    return "\n".join(lines)


def _leading(findings: Sequence[Any]) -> list[Charge]:
    """Return the charges of violations, late reads first: these show more than overlaps and wrong
    beliefs.
    """
    return sorted((finding.cause for finding in findings), key=lambda cause: cause.violation.kind != "StaleRead")
