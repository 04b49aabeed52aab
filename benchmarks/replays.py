"""What a run with opaque kernels says of a plan that a campaign judged (`allocsim.opaque`).

A campaign counts these words beside its own: of a right judge and a right replay every accusation comes with
numbers that differ or is of a rule alone, every clean plan has run, and none `DISAGREES`.

What this module does not see: the numbers of the system itself.
"""

from typing import Final

import harness  # noqa: F401 - puts this checkout on the path, installed or not

from allocsim.judge.violations import Report
from allocsim.model import Document
from allocsim.opaque import told_by_replay

DISAGREES: Final = "replay and judge disagree"


def replay_word(document: Document, report: Report) -> str:
    """Return what replaying a document says beside a report of everything that is found in it."""
    told = told_by_replay(document, [[violation] for violation in report.violations], found=report.violations)
    if told.why_not is not None:
        return f"not replayed: {told.why_not}"
    if told.unaccounted or (report.clean and told.host):
        return DISAGREES
    if report.clean:
        return "clean, and no number differs"
    return "accused, and numbers differ" if any(told.differs) else "accused of a rule alone"
