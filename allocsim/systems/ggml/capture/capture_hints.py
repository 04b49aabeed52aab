"""What a capture was judged without, so that nobody takes silence for an answer.

Contract: `hints_of(document)` returns plain sentences, each about something that the graph does not
say and the judge therefore did not look at. A hint is no finding. What this module does not see:
whether anything is wrong.
"""

from collections.abc import Iterator

from allocsim.model import HOST_READ, Document
from allocsim.systems.ggml.capture.graph_document import graphs_of
from allocsim.systems.ggml.capture.stale_copies import stale_copies

MOST_COPIES = 3
"""Reads of old copies that are named."""


def hints_of(document: Document) -> list[str]:
    """Return the hints for a captured graph."""
    return list(_hints(document))


def _hints(document: Document) -> Iterator[str]:
    old = [one for graph in graphs_of(document) for one in stale_copies(graph)]
    for one in old[:MOST_COPIES]:
        yield (
            f"{one.reader!r} reads a copy of {one.original!r} on another backend that was made before {one.writer!r}"
            " wrote over the original: ggml's scheduler copies once"
        )
    if len(old) > MOST_COPIES:
        yield f"so do {len(old) - MOST_COPIES} more reads"
    for program in document.programs:
        if not len(program.ops):
            yield "the graph has no nodes, so nothing was judged"
        elif not bool(program.ops.is_kind(HOST_READ).any()):
            yield (
                "no tensor is flagged OUTPUT, so nothing is judged to be read after the run: flag what the host reads"
                " (ggml_set_output) before the graph is planned"
            )
