"""Outcomes for GitHub's workflows: annotations beside the files, and a summary of the job.

    ::error file=plan.json,title=1. C06 plan::... cure: keep x until op 3 (add) has run, +0 B

`allocsim check --github` prints the annotations, and adds the summary to the file that
`GITHUB_STEP_SUMMARY` names. A known cause is a notice. In annotations and in the summary, text from
files is escaped, so that no name begins a command or a table's cell; all other output stands
between two lines that switch commands off and on again (`switch`).

Source: "Workflow commands for GitHub Actions" (GitHub Docs); escapes as in actions/toolkit.

What this module does not see: lines and columns. A document is data; its places are ops.
"""

import re
import secrets
from collections.abc import Iterable, Iterator
from typing import Final

from allocsim.outcomes import Outcome
from allocsim.outcomes.cause_table import CauseRow, rows

STEP_SUMMARY: Final = "GITHUB_STEP_SUMMARY"
"""The variable that names the file of a job's summary."""

LEVELS: Final = {"new": "error", "known": "notice", "error": "error", "failed": "error"}
WITHOUT_CAUSE: Final = {"new": "too many bytes", "error": "cannot be judged", "failed": "judged, causes not found"}
"""State of a row without a cause -> its title."""

MOST_ROWS: Final = 200
"""Most causes in a summary, which GitHub limits to 1 MiB. The annotations have all causes."""

_DATA: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def switch() -> tuple[str, str]:
    """Return the line that switches commands off and the line that switches them on again.

    GitHub obeys no command between the two lines, whatever names spell there, for the author of a
    file cannot guess the token.
    """
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}", f"::{token}::"


def annotations(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Yield a command for each cause, and for each file that cannot be judged."""
    for row in rows(outcomes):
        said = " ".join(filter(None, (row.first and f"first {row.first}:", row.evidence, row.cure and f"- {row.cure}")))
        properties = f"file={row.file.translate(_PROPERTY)},title={_title(row).translate(_PROPERTY)}"
        yield f"::{LEVELS[row.state]} {properties}::{said.translate(_DATA)}"


def summary(outcomes: Iterable[Outcome]) -> str:
    """Return the summary of a job in Markdown: a table of files, and one of causes."""
    judged = list(outcomes)
    lines = ["### allocsim", "", "| file | found |", "|---|---|"]
    lines += [f"| {_cell(outcome.file)} | {_cell(_found(outcome))} |" for outcome in judged]
    table = list(rows(judged))
    if table:
        lines += ["", "| file | cause | first | what happened | cure |", "|---|---|---|---|---|"]
    for row in table[:MOST_ROWS]:
        cells = (row.file, _title(row), row.first, row.evidence, row.cure)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    if len(table) > MOST_ROWS:
        lines += ["", f"{len(table) - MOST_ROWS} more causes are not in this table."]
    return "\n".join([*lines, "", ""])


def _title(row: CauseRow) -> str:
    if row.number is None:
        return WITHOUT_CAUSE[row.state]
    return f"{row.number}. {row.class_} {row.party}{' (known)' if row.state == 'known' else ''}"


def _found(outcome: Outcome) -> str:
    """Return the result of a file in words."""
    if not outcome.judged:
        return outcome.error or "no plan here"
    causes = f"{len(outcome.causes)} cause{'s'[: len(outcome.causes) != 1]}" if outcome.causes else ""
    known = "all known" if outcome.causes and not outcome.new and not outcome.measured else ""
    peak = "more bytes than are allowed" if outcome.over_peak else ""
    missing = f"{', '.join(outcome.unexamined)} did not run and must" if outcome.unexamined else ""
    failed = "causes could not be found" if outcome.failed else ""
    found = "; ".join(filter(None, (causes, known, peak, missing, failed)))
    looked = ", ".join(letter for letter, one in outcome.examined.items() if one.state != "not run")
    return f"{found or 'nothing found'}; {looked or 'nothing'} ran"


def _cell(text: str) -> str:
    """Return text as one cell, without markup and without an end of a cell or line."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&@-])", r"\\\1", line)


__all__ = ["LEVELS", "MOST_ROWS", "STEP_SUMMARY", "annotations", "summary", "switch"]
