"""The files that pages are made of: templates, style and script, read from this package."""

from importlib.resources import files
from string import Template


def asset(name: str) -> Template:
    """Return a template of a page."""
    return Template(read(name))


def read(name: str) -> str:
    """Return the text of a file of this package."""
    return files("reports.interactive").joinpath(name).read_text(encoding="utf-8")
