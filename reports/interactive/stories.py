"""A page of stories: a table with a row for each, and below it each story with its picture.

Like all pages it asks for nothing from anywhere; names and words are escaped. Links lead out only
where they are addresses of the web.

What this module does not see: what the stories are about.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from reports.interactive.assets import whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One story."""

    name: str
    """Of its place on the page."""
    title: str
    link: str
    group: str
    story: str
    causes: str
    notes: tuple[str, ...] = ()
    cells: Mapping[str, str] = field(default_factory=dict)
    """Column -> a mark."""
    picture: bytes | None = None
    """A PNG."""


def stories(title: str, head: str, entries: Sequence[Entry]) -> bytes:
    """Return the page: groups by name, under each its entries in the order given."""
    columns = list(dict.fromkeys(column for entry in entries for column in entry.cells))
    rows = "\n".join(_row(entry, columns) for entry in entries)
    heads = "".join(f"<th>{escape(column)}</th>" for column in columns)
    table = (
        f'<table class="stories"><thead><tr><th>scenario</th><th>names</th>{heads}<th>what goes wrong</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )
    groups = sorted({entry.group for entry in entries}, key=str.lower)
    parts = [
        f"<h2>{escape(group)}</h2>" + "\n".join(_story(entry) for entry in entries if entry.group == group)
        for group in groups
    ]
    return whole(
        title=escape(title),
        said=f"<h1>{escape(title)}</h1><p>{escape(head)}</p>{table}",
        explorer="",
        pictures="\n".join(parts),
        measured="",
        head="{}",
        block="",
    )


def _row(entry: Entry, columns: Sequence[str]) -> str:
    cells = "".join(f"<td>{escape(entry.cells.get(column, ''))}</td>" for column in columns)
    name = f'<a href="#{escape(entry.name)}">{escape(entry.name)}</a>'
    return f"<tr><td>{name}</td><td>{escape(entry.causes)}</td>{cells}<td>{escape(entry.title)}</td></tr>"


def _story(entry: Entry) -> str:
    web = entry.link.startswith(("https://", "http://"))
    link = f'<a href="{escape(entry.link)}" rel="noreferrer">{escape(entry.link)}</a>' if web else escape(entry.link)
    notes = "".join(f"<li>{escape(note)}</li>" for note in entry.notes)
    picture = ""
    if entry.picture is not None:
        data = b64encode(entry.picture).decode()
        words = escape(f"{entry.name}, before and after")
        picture = f'<figure><img alt="{words}" src="data:image/png;base64,{data}"></figure>'
    return (
        f'<section id="{escape(entry.name)}"><h3>{escape(entry.name)}: {escape(entry.title)}</h3>'
        f"<p>{link}</p><p>{escape(entry.story)}</p><ul>{notes}</ul>{picture}</section>"
    )
