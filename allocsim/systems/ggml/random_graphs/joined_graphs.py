"""Join many small planned graphs into one graph, so that the judge runs only once.

Contract: `joined(graphs)` returns the rows of one graph that has the tensors of all graphs: first
the leafs of all graphs, then the nodes of one graph after another. Each graph has its own range of
each compute buffer, so no two graphs share a byte. A tensor's name begins with its graph's number.
The planner's rules use only the readers and addresses of a tensor; the judge uses only bytes. So
the joined graph is clean if and only if each graph is clean, and it has the violations of all
graphs (`test_joined_graphs.py` compares them on sound and planted plans).

The graphs must be of one library; compute buffers of the same number are joined. O(tensors).
What this module does not see: which graph a violation is in; each graph is then judged again alone.
"""

from collections.abc import Sequence
from typing import Any, Final

from allocsim.systems.ggml.capture.graph_rows import Rows

STRETCH: Final = 4096
"""The range of each graph is a multiple of this many bytes, which every alignment divides."""


def joined(graphs: Sequence[Rows]) -> Rows:
    """Return the rows of one graph that has all tensors of `graphs`, a non-empty sequence."""
    leafs: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    buffers = max((rows["meta"].get("buffers", []) for rows in graphs), key=len)
    starts = [0] * max(len(buffers), 1)
    for number, rows in enumerate(graphs):
        first = len(leafs), len(nodes)
        leafs += [_moved(row, number, first, starts) for row in rows["leafs"]]
        nodes += [_moved(row, number, first, starts) for row in rows["nodes"]]
        starts = [start + -(-_end(rows, buffer) // STRETCH) * STRETCH for buffer, start in enumerate(starts)]
    meta = {**graphs[0]["meta"], "buffer_size": sum(starts)}
    if buffers:
        meta["buffers"] = [{**one, "size": start} for one, start in zip(buffers, starts, strict=True)]
    return {"meta": meta, "leafs": leafs, "nodes": nodes}


def _moved(row: dict[str, Any], number: int, first: tuple[int, int], starts: Sequence[int]) -> dict[str, Any]:
    off = row["off"]
    return {
        **row,
        "name": f"{number}: {row['name']}",
        "off": None if off is None else off + starts[row.get("buffer", 0)],
        "view_src": _shifted(row["view_src"], first),
        "src": [_shifted(source, first) for source in row["src"]],
    }


def _end(rows: Rows, buffer: int) -> int:
    """Return the end of the last byte that a graph uses in a buffer; 0 if it uses none."""
    everything = (*rows["leafs"], *rows["nodes"])
    placed = (row for row in everything if row["off"] is not None and row.get("buffer", 0) == buffer)
    return max((row["off"] + row["nbytes"] for row in placed), default=0)


def _shifted(reference: int | str | None, first: tuple[int, int]) -> int | str | None:
    if reference is None:
        return None
    return f"L{int(reference[1:]) + first[0]}" if isinstance(reference, str) else reference + first[1]
