"""The matrix of verdicts: a row for each scenario, a column for each detector.

A filled circle is a detector that reports, a ring one that looked and found nothing, a blank cell
one that had nothing to look at; a red cross is an answer that is not the one expected. What the
verdict names stands to the right. Marks differ in form, so no colour is needed to read them.

What this module does not see: how the answers came about; rows are those of `repro run --all
--json`.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.figures import style
from reports.number_format import count, short

MARKS: Final[Mapping[str, dict[str, Any]]] = {
    "reports": {"marker": "o", "markerfacecolor": style.INK, "markeredgecolor": style.INK},
    "nothing": {"marker": "o", "markerfacecolor": "white", "markeredgecolor": style.GREY},
    "not run": {"marker": "", "markeredgecolor": style.GREY},
}
"""Answer of a detector -> how it looks."""

COLUMN_ROWS: Final = 64
"""Rows beyond which the matrix goes on beside itself, in parts of one height."""

INCH: Final = 0.19
"""Height of a row."""


@style.styled
def verdict_matrix(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the rows of `matrix` of `repro run --all --json`; no row gives a figure that says so."""
    if not rows:
        return style.nothing("No verdicts", ["No scenario was run."], "nothing to draw")
    height = ceil(len(rows) / ceil(len(rows) / COLUMN_ROWS))
    parts = [rows[k : k + height] for k in range(0, len(rows), height)]
    figure = style.canvas(6.4 * len(parts), 1.9 + INCH * height)
    panels = figure.subplots(1, len(parts), squeeze=False)[0]
    for axes, part in zip(panels, parts, strict=True):
        _panel(axes, part, height=height)
    words = {"reports": "reports", "nothing": "looked, found nothing"}
    handles = [
        Line2D([], [], linestyle="none", markersize=7, label=label, **MARKS[word]) for word, label in words.items()
    ]
    handles.append(Line2D([], [], linestyle="none", markersize=8, marker="X", color=style.RED, label="not as expected"))
    figure.legend(handles=handles, loc="outside lower left", ncols=3)
    differs = sum(bool(row["differs"]) for row in rows)
    cells = sum(len(row["answers"]) for row in rows)
    finding = f"{count(differs, 'row')} of {len(rows):,} differ from what is expected" if differs else (
        f"{count(len(rows), 'row')}, {count(cells, 'answer')}: none differs from what is expected"
    )  # fmt: skip
    style.heading(panels[0], finding, ["blank: the detector had nothing to look at"], room=14)
    return figure


def _panel(axes: Any, rows: Sequence[Mapping[str, Any]], *, height: int) -> None:
    letters = list(dict.fromkeys(letter for row in rows for letter in row["answers"]))
    for line, row in enumerate(rows):
        if line % 2:
            axes.axhspan(line - 0.5, line + 0.5, color="#F3F4F5", zorder=0)
        for column, letter in enumerate(letters):
            word = row["answers"].get(letter, "not run")
            wrong = any(_is_about(text, letter) for text in row["differs"])
            look = {"marker": "X", "markerfacecolor": style.RED, "markeredgecolor": "white"} if wrong else MARKS[word]
            size, said = (8, "wrong") if wrong else (6, word)
            axes.plot(column, line, linestyle="none", markersize=size, zorder=3, gid=f"{letter} {said}", **look)
        causes = ", ".join(f"{cause['class']} {cause['fault']}" for cause in row["causes"]) or "nothing wrong"
        ink = style.RED if row["differs"] else style.INK
        axes.text(len(letters) - 0.3, line, short(causes, 28), va="center", fontsize=8, color=ink)
    axes.set_yticks(range(len(rows)), [short(row["scenario"], 38) for row in rows], fontsize=8)
    axes.set_xticks(range(len(letters)), letters)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_xlim(-0.6, len(letters) + 4.2)
    axes.set_ylim(height - 0.5, -0.6)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _is_about(text: str, letter: str) -> bool:
    """Return whether a line of differences is about a detector: `faulty: S says ...`."""
    side, _, said = text.partition(": ")
    return f"{letter} " in (side[:2], said[:2])
