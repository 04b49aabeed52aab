"""The comparison of modes in a run's record, read for tables, figure and file alike.

A course is `{"mode", "nature", "rows", ...}` (`repro.mode_words.record`), a row of it
`{"step", "layer", "stage", "differing", "ulp", "relative", "nature", ...}`. `relative` is the
largest error against the reference of all tensors of that layer and stage, 0 where none differs,
and None where a number is not finite. The course in float64 shows the reference's own rounding
instead.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final

from allocsim.files.cells import cell

Courses = Sequence[Mapping[str, Any]]
Errors = tuple[float | None, ...]
"""One for each mode; None where a number is not finite."""

COLUMNS: Final = (
    *("step", "layer", "stage", "tensors", "differing", "ulp", "relative"),
    *("tensor", "error", "reference_error", "bound", "nature"),
)
"""Of the file, behind the mode."""


def telling_step(courses: Courses) -> int | None:
    """Return the first step at which a mode but the float64 one differs, else the first."""
    firsts = [course["first_step"] for course in courses if course.get("first_step") and course.get("dtype") != "f64"]
    steps = [row["step"] for course in courses for row in course.get("rows") or ()]
    return min(firsts, default=min(steps, default=None))


def layers_at(courses: Courses, step: int | None) -> dict[int | None, Errors]:
    """Return each layer's largest error at a step, one a mode; what is in no layer is last."""
    layers = {row["layer"] for course in courses for row in course["rows"] if row["step"] == step}
    ordered = sorted(layers, key=lambda layer: inf if layer is None else layer)
    return {layer: tuple(_worst(course, step=step, layer=layer) for course in courses) for layer in ordered}


def over_steps(courses: Courses) -> dict[int, Errors]:
    """Return the largest error of each step over all layers, one for each mode."""
    steps = sorted({row["step"] for course in courses for row in course["rows"]})
    return {step: tuple(_worst(course, step=step) for course in courses) for step in steps}


def as_csv(courses: Courses) -> str:
    """Return every row of every mode as CSV with a header.

    What is not known is empty, what is not finite is `nan`. Text is made safe for spreadsheets.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("mode", *COLUMNS))
    for course in courses:
        for row in course["rows"]:
            cells = (_cell(row, column) for column in COLUMNS)
            writer.writerow(map(cell, (course["mode"], *cells)))
    return out.getvalue()


def _cell(row: Mapping[str, Any], column: str) -> Any:
    value = row.get(column)
    if value is None and column == "relative":
        return 0 if not row["differing"] else "nan"
    return "" if value is None else value


def _worst(course: Mapping[str, Any], **where: Any) -> float | None:
    rows: Iterable[Mapping[str, Any]] = [
        row for row in course["rows"] if all(row[key] == value for key, value in where.items())
    ]
    found = [0.0 if not row["differing"] else row["relative"] for row in rows]
    return None if None in found else max(found, default=0.0)
