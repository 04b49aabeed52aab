"""The files that pages are made of: template, style and scripts, read from this package.

A page's policy allows its own style and script by their hash, and nothing else: `whole`.
"""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Final

SCRIPTS: Final = ("columns.js", "raster.js", "view.js", "panels.js", "explorer.js")
"""One script in files that fit in a head, in the order in which names are needed."""


def whole(*, script: str = "", **parts: str) -> bytes:
    """Return a page: `parts` are the fields of `page.html` but for style, script and hashes."""
    style = read("page.css")
    hashes = {"style_hash": _hash(style), "script_hash": _hash(script)}
    return Template(read("page.html")).substitute(style=style, script=script, **hashes, **parts).encode()


def script() -> str:
    """Return the script of a page that holds what its explorer shows."""
    return f'"use strict";\n(() => {{\n{_joined()}\n{read("opening.js")}\n}})();'


def module() -> str:
    """Return the explorer as a module that exports `explore(head, block, signal)`."""
    return f"{_joined()}\nexport {{ explore }};\n"


def _joined() -> str:
    return "\n".join(read(name) for name in SCRIPTS)


def read(name: str) -> str:
    """Return the text of a file of this package."""
    return files("reports.interactive").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return what a policy calls the text of an element."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
