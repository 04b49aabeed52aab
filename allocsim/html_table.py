"""A table in HTML, as notebooks show one for a program, a plan, a document, a report, an outcome.

    table_of("Plan by ggml", ("buffer", "arena", "offset"), rows)

Everything is text: names come from files, so none of them is markup. No style and no script is in
it, so it looks as the page does that shows it.

What this module does not see: what is in the rows.
"""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Any, Final

from allocsim.printable import one_line

MOST_ROWS: Final = 50


def table_of(caption: str, headers: Sequence[str], rows: Iterable[Sequence[Any]], count: int) -> str:
    """Return a table of the first `MOST_ROWS` of `count` rows; a line counts the others."""
    lines = ["<table>", f"<caption>{_text(caption)}</caption>"]
    lines.append(f"<thead><tr>{''.join(f'<th>{_text(name)}</th>' for name in headers)}</tr></thead>")
    lines.append("<tbody>")
    lines += [f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in islice(rows, MOST_ROWS)]
    if count > MOST_ROWS:
        lines.append(f'<tr><td colspan="{len(headers)}">and {count - MOST_ROWS:,} more</td></tr>')
    return "\n".join([*lines, "</tbody>", "</table>"])


def _text(cell: Any) -> str:
    """Return a cell as text that is no markup; what does not print is spelled out."""
    return escape("" if cell is None else one_line(str(cell)))


__all__ = ["MOST_ROWS", "table_of"]
