"""Hints: sentences about a captured graph that a user should know beside the verdict.

Contract: `hints_of(document)` returns plain sentences. Hints name reads of a stale copy on another
backend, reads of a tensor after an op in place overwrote the tensor, and graphs of which the judge
could not examine a part. A hint is not a violation, and this module does not judge the plan.
"""

from collections.abc import Iterator

from allocsim.model import HOST_READ, Document
from allocsim.systems.ggml.capture.graph_document import graphs_of
from allocsim.systems.ggml.capture.graph_rebuilding import roots_of, sources_of
from allocsim.systems.ggml.capture.graph_rows import Rows
from allocsim.systems.ggml.capture.stale_copies import stale_copies
from allocsim.systems.ggml.ggml_dump import NONE, ROOTS_KEPT, host_told

MOST_COPIES = 3
"""The most hints about stale copies, and the most hints about reads after an op in place."""

MEANT_TO_WRITE = ("CPY", "SET", "SET_ROWS", "ACC", "OPT_STEP_ADAMW", "OPT_STEP_SGD")
"""Ops that write into another tensor by definition: a later reader needs the written bytes."""


def hints_of(document: Document) -> list[str]:
    """Return the hints for a captured or recorded ggml graph; other documents have none."""
    return list(_hints(document)) if isinstance(document.meta.get("ggml"), dict) else []


def _hints(document: Document) -> Iterator[str]:
    old = [one for graph in graphs_of(document) for one in stale_copies(graph)]
    for one in old[:MOST_COPIES]:
        yield (
            f"{one.reader!r} reads a copy of {one.original!r} on another backend, but {one.writer!r} wrote over the"
            " original after the copy: ggml's scheduler copies once"
        )
    if len(old) > MOST_COPIES:
        yield f"so do {len(old) - MOST_COPIES} more reads"
    for reader, read, writer in [one for graph in graphs_of(document) for one in read_behind(graph)][:MOST_COPIES]:
        yield f"{reader!r} reads {read!r} after {writer!r} wrote over it in place: it reads the result of {writer!r}"
    host = host_told(document.meta)
    if host is not None and host.reads:
        return
    for program in document.programs:
        if not len(program.ops):
            yield "the graph has no nodes, so nothing was judged"
        elif not bool(program.ops.is_kind(HOST_READ).any()):
            yield (
                "no tensor is flagged OUTPUT, so nothing is judged to be read after the run: flag what the host reads"
                " (ggml_set_output) before the graph is planned"
            )


def read_behind(rows: Rows) -> list[tuple[str, str, str]]:
    """Return the names (reader, tensor, writer) for each read of a tensor after an explicit op in
    place (`scale_inplace(a)`) wrote over the tensor.

    A read after an op in place is legal, but rarely intended. A read of the op's result is not
    included.
    """
    leafs, everything = len(rows["leafs"]), [*rows["leafs"], *rows["nodes"]]
    roots, sources = roots_of(rows), sources_of(rows)
    over: dict[int, int] = {}
    found = []
    for place in range(leafs, len(everything)):
        row, operands = everything[place], sources[place]
        found += [
            (row["name"], everything[source]["name"], everything[over[source]]["name"])
            for source in dict.fromkeys(operands)
            if source is not None and source in over
        ]
        first = operands[0] if operands else None
        in_place = roots[place] != place and row["op"] not in (NONE, *ROOTS_KEPT, *MEANT_TO_WRITE)
        if in_place and first is not None and roots[first] == roots[place]:
            over[first] = place
    return found
