"""One self-contained page of a run or a document: its words, and the explorer.

The explorer shows every plan that is run, with every buffer; it stands for the pictures of memory,
which a page has only where there is no plan. Losses and gradients are beside it.

The page asks for nothing from anywhere: pictures, style and script are in it, and its own policy
allows this style and this script, by hash, and nothing else. Names come from files; they are
escaped in the Markdown the page is made of, which may hold no HTML, and stand in JSON or in the
block of columns otherwise, in which no `<` is left.

What this module does not see: where record and document come from.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from allocsim.diagnostics import check
from allocsim.judge.violations import Report
from allocsim.model import Document
from allocsim.verdict.records import Cause
from reports.figures.conflicts import numbering
from reports.folder import pictures
from reports.interactive.assets import read, script, whole
from reports.interactive.boxes import exhibit
from reports.page import CAPTIONS, measured, said

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def html(
    record: Mapping[str, Any], document: Document | None, *, report: Report | None = None, causes: Sequence[Cause] = ()
) -> bytes:
    """Return the page; `document` gives the explorer or, without a plan, pictures of memory.

    Args:
        record: the record of a run (an entry of the command line's `--json` "runs") or what there
            is of one.
        document: what was planned and run.
        report: what the judge says of it; None asks the judge.
        causes: those of `report`; none are sought if there is a report.
    """
    head: dict[str, Any] = {"plans": []}
    block = ""
    if document is not None and document.runs:
        if report is None:
            report = check(document, of_each_kind=True)
            causes = numbering(document, report)
        head, columns = exhibit(document, report=report, causes=causes, verdict=record.get("verdict"))
        block = columns.encoded() if head["plans"] else ""
    explored = bool(head["plans"])
    drawn = pictures(record, None if explored else document)
    return whole(
        title=escape(str(record.get("scenario") or "Run")),
        said=_rendered(said(record)),
        explorer=read("explorer.html") if explored else "",
        pictures=_figures({name: draw for name, draw in drawn.items() if name != "map"}),
        measured=_rendered(measured(record)),
        head=json.dumps(head if explored else {}, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
        block=block,
        script=script() if explored else "",
    )


def _rendered(markdown: str) -> str:
    """Return Markdown as HTML; the policy refuses a `style`, so columns have a class."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - the page that judges has no Markdown

    text: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    return text.replace(' style="text-align:right"', ' class="right"')


def _figures(drawn: Mapping[str, "Callable[[], Figure]"]) -> str:
    parts = ["<h2>Pictures</h2>"] if drawn else []
    for name, draw in drawn.items():
        data = b64encode(import_module("reports.figures.style").render(draw(), ".svg")).decode()
        caption = escape(CAPTIONS[name])
        parts.append(f'<figure><h3>{caption}</h3><img alt="{caption}" src="data:image/svg+xml;base64,{data}"></figure>')
    return "\n".join(parts)
