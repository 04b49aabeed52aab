"""One self-contained page of a run or a document.

It has the text of `reports.page`, the pictures, and an interactive memory map.

The page asks for nothing from anywhere: pictures, style and script are in it, and its own policy
forbids the rest. Names come from files; they are escaped in the Markdown the page is made of, which
may hold no HTML, and stand in JSON otherwise, in which no `<` is left.

What this module does not see: where record and document come from.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt

from allocsim.diagnostics import check
from allocsim.model import Document
from reports.figures.style import render
from reports.folder import pictures
from reports.interactive.assets import asset, read
from reports.interactive.boxes import maps
from reports.page import CAPTIONS, measured, said

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAP = """<h2>Memory map</h2>
<div class="controls"><select id="choose" aria-label="Plan and arena"></select>
<input id="find" type="search" placeholder="find a buffer by name, Enter goes there" aria-label="Find a buffer">
<span id="hits" class="note"></span>
<button id="in" type="button">+</button><button id="out" type="button">&minus;</button><button id="reset" type="button">all</button></div>
<div class="map"><canvas id="canvas" aria-label="Memory map: steps across, addresses up"></canvas><div id="tip" class="tip" hidden></div></div>
<p id="note" class="note"></p>
<ol id="conflicts" class="conflicts"></ol>
<div id="said" class="said"></div>
<noscript><p>The map needs JavaScript; nothing else on this page does.</p></noscript>"""


def html(record: Mapping[str, Any], document: Document | None) -> bytes:
    """Return the page; `document` gives the map and the pictures of memory, None leaves them out.

    Args:
        record: the record of a run (an entry of the command line's `--json` "runs") or what there
            is of one.
        document: what was planned and run.
    """
    drawn, more = ([], 0) if document is None else maps(document, report=check(document), verdict=record.get("verdict"))
    over = f'<p class="note">{more:,} more plans and arenas are not shown</p>' if more else ""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    text = asset("page.html").substitute(
        title=escape(str(record.get("scenario") or "Run")),
        style=read("page.css"),
        said=markdown.render(said(record)),
        maps=MAP + over if drawn else "",
        pictures=_figures({name: draw for name, draw in pictures(record, document).items() if name != "map"}),
        measured=markdown.render(measured(record)),
        data=json.dumps(drawn, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
        script=read("map.js"),
    )
    return text.encode()


def _figures(drawn: Mapping[str, "Callable[[], Figure]"]) -> str:
    parts = ["<h2>Pictures</h2>"] if drawn else []
    for name, draw in drawn.items():
        data = b64encode(render(draw(), ".svg")).decode()
        caption = escape(CAPTIONS[name])
        parts.append(f'<figure><h3>{caption}</h3><img alt="{caption}" src="data:image/svg+xml;base64,{data}"></figure>')
    return "\n".join(parts)
