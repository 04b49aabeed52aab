"""Outcomes as a table with a row for each cause, for spreadsheets, pandas and workflows of GitHub.

    cause_table.as_csv(outcomes)         # text of a CSV file, as bytes
    cause_table.as_columns(outcomes)     # JSON: {"file": [...], "number": [...], ...}; pandas.DataFrame takes it
    github.annotations, github.summary   # the same as GitHub shows it

A file that cannot be judged has a row with its error and no number. `state` is `new`, `known`
(every violation of the cause is in the baseline), `error`, or `failed`: the file was judged, but
its causes could not be found.

What this module does not see: single violations (`allocsim.outcomes.sarif` lists them).
"""

import csv
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import Final, NamedTuple

import msgspec

from allocsim.files.cells import cell
from allocsim.outcomes import Outcome
from allocsim.outcomes.telling import first_place, mended
from allocsim.verdict.records import Cause


class CauseRow(NamedTuple):
    """One cause of one file; None where a column does not apply."""

    file: str
    state: str
    number: int | None = None
    class_: str | None = None
    party: str | None = None
    places: int | None = None
    first: str = ""
    """The first place at which the cause shows."""
    evidence: str = ""
    """What happened, or why the file cannot be judged."""
    cure: str = ""
    """The cure with its price; if none was found, the mend that is needed."""
    price_bytes: int | None = None
    run: int | None = None
    op: int | None = None
    buffer: int | None = None


COLUMNS: Final = tuple(name.rstrip("_") for name in CauseRow._fields)


def rows(outcomes: Iterable[Outcome]) -> Iterator[CauseRow]:
    """Yield a row for each cause, file by file."""
    for outcome in outcomes:
        for state, said in (("error", outcome.error), ("failed", outcome.failed)):
            if said:
                yield CauseRow(outcome.file, state, evidence=said)
        if outcome.error is None and not outcome.judged:
            yield CauseRow(outcome.file, "error", evidence="there is no plan here")
        if outcome.unexamined:
            said = f"detectors that are required did not run: {', '.join(outcome.unexamined)}"
            yield CauseRow(outcome.file, "error", evidence=said)
        if outcome.beyond:
            yield CauseRow(outcome.file, "new", evidence=outcome.beyond)
        yield from (_row(outcome, cause) for cause in outcome.causes)


def _row(outcome: Outcome, cause: Cause) -> CauseRow:
    found = [finding.known for finding in outcome.findings if finding.cause.cause is cause]
    return CauseRow(
        file=outcome.file,
        state="known" if found and all(found) else "new",
        number=cause.number,
        class_=cause.class_,
        party=cause.party,
        places=cause.places,
        first=first_place(outcome, cause),
        evidence=cause.text,
        cure=mended(cause),
        price_bytes=None if cause.cure is None else cause.cure.nbytes,
        run=cause.first.run,
        op=cause.first.op,
        buffer=cause.first.buffer,
    )


def as_csv(outcomes: Iterable[Outcome]) -> bytes:
    """Return the table as UTF-8 CSV with headers; its texts are safe to open in a spreadsheet."""
    made = StringIO(newline="")
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([cell("" if part is None else part) for part in row] for row in rows(outcomes))
    return made.getvalue().encode()


def as_columns(outcomes: Iterable[Outcome]) -> bytes:
    """Return the table as a JSON object of columns."""
    table = list(rows(outcomes))
    return msgspec.json.encode({name: [row[place] for row in table] for place, name in enumerate(COLUMNS)}) + b"\n"


__all__ = ["COLUMNS", "CauseRow", "as_columns", "as_csv", "rows"]
