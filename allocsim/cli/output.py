"""How commands print: one JSON document, plain lines in a pipe, tables on a terminal.

Plain lines are stable and greppable: columns separated by two spaces under their headers, nothing
wrapped, nothing coloured. rich is imported only for a terminal. Names come from files, so
everything is made one line before it is printed.

What this module does not see: what is being printed.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from allocsim.files.sizes import in_bytes
from allocsim.printable import one_line

Section = tuple[str, tuple[str, ...], list[tuple[Any, ...]]]
"""Title, columns and rows."""


def print_json(thing: Any) -> None:
    """Print one JSON document and nothing else."""
    sys.stdout.write(json.dumps(thing, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def print_line(text: str) -> None:
    """Print one line."""
    sys.stdout.write(one_line(text) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()) -> None:
    """Print rows under their headers: a table on a terminal, columns two blanks apart in a pipe.

    `right` are numbers.
    """
    cells = [[one_line("" if cell is None else str(cell)) for cell in row] for row in rows]
    if not cells:
        return
    if sys.stdout.isatty():
        _print_rich(columns, cells, right)
        return
    cells.insert(0, list(columns))
    widths = [max((len(row[i]) for row in cells), default=0) for i in range(len(columns))]
    for row in cells:
        padded = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(columns, row, widths, strict=True)
        ]
        sys.stdout.write(f"  {'  '.join(padded).rstrip()}\n")


def print_error(message: str) -> None:
    """Say on standard error what is wrong with one input of several."""
    sys.stderr.write(f"allocsim: {one_line(message)}\n")


def show_path(path: Path | str) -> str:
    """Return a path as the user spelled it, on one line."""
    return one_line(str(path))


def _print_rich(columns: Sequence[str], cells: list[list[str]], right: Sequence[str]) -> None:
    from rich.console import Console  # only on a terminal
    from rich.table import Table  # as above
    from rich.text import Text  # as above

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


__all__ = ["Section", "in_bytes", "print_error", "print_json", "print_line", "print_table", "show_path"]
