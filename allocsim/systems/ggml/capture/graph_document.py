"""Turn a planned ggml graph into a document: its program, its planner's constraints, and its plan.

Contract
--------
* `capture(graph, library)` walks the graph (`allocsim.systems.ggml.capture.graph_rows`) and
  converts the rows with the importer of ggml dumps (`allocsim.systems.ggml.dump_document`). The
  importer's conventions for time and bytes apply.
* The graph must be planned (`ggml_gallocr_alloc_graph` or a scheduler), and the sources of its
  nodes must not have changed since. `capture` computes nothing and writes nothing.
* In your own program, call `library = adopt()`, then `capture(pointer, library)`. `adopt` finds the
  libggml that this process already has mapped, probes the same file in a child process, and returns
  the library. A binding that hides its `ggml_cgraph` pointer cannot be captured this way.

The cost is O(nodes x sources). This module does not judge the plan; `allocsim.judge` does.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from allocsim.errors import EngineError
from allocsim.model import Document
from allocsim.systems.ggml import dump_document as dumps
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.probe import checked
from allocsim.systems.ggml.access.readable_memory import mappings
from allocsim.systems.ggml.capture.graph_rows import Rows, walk
from allocsim.systems.ggml.ggml_dump import GRAPH, NONE

NAMES = re.compile(r"/(?:libggml[^/]*|libllama[^/]*|libwhisper[^/]*|xllamacpp[^/]*)\.so[^/]*$")
"""Matches the paths of files that may contain a ggml."""

GRAPHS = "graphs"
"""Key of `meta.ggml` for several programs: a list with the `meta.ggml` of each program."""

USERS = ("libllama", "libwhisper")
"""Libraries that do not contain a ggml themselves but use one in their folder."""


def capture(
    graph: int,
    library: Library,
    *,
    buffers: Sequence[int] | None = None,
    scheduler: int = 0,
    meta: dict[str, Any] | None = None,
) -> Document:
    """Return the document of a planned graph. `buffers` and `scheduler` have the same meaning as in
    `graph_rows.walk`. `meta` is added to `meta.ggml` of the document. Raises EngineError if the
    pointer is not a planned graph of this library.
    """
    return document(walk(library, graph, buffers=buffers, scheduler=scheduler, meta=meta))


def document(rows: Rows, source: str = "capture") -> Document:
    """Return the document of rows that `walk` returned or that a dump contains."""
    return dumps.loads(msgspec.json.encode(rows), source)


def graphs_of(document: Document) -> list[Rows]:
    """Return the rows of each program of a capture, or an empty list if a program has no rows."""
    about = document.meta.get("ggml")
    if not isinstance(about, dict):
        return []
    found = about.get(GRAPHS, [about])
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and isinstance(one.get(GRAPH), dict) for one in found
    ):
        return []
    return [{"meta": {key: value for key, value in one.items() if key != GRAPH}, **one[GRAPH]} for one in found]


def ops_of_nodes(rows: Rows) -> list[int | None]:
    """Return, for each node, the position of its op in the document that is made of these rows.

    The entry is None for a NONE node without sources, which becomes no op.
    """
    tensors = [*rows["leafs"], *rows["nodes"]]
    step = sum(row["op"] == NONE and row["view_src"] is None and not row["external"] for row in tensors)
    found: list[int | None] = []
    for row in rows["nodes"]:
        counted = row["op"] != NONE or bool(row["src"])
        found.append(step if counted else None)
        step += counted
    return found


def mapped() -> list[Path]:
    """Return the mapped files of this process that may contain a ggml, in order of address."""
    return [Path(name) for name in dict.fromkeys(name for *_, name in mappings() if NAMES.search(name))]


def adopt(path: str | Path | None = None) -> Library:
    """Return the libggml that this process already uses, after a probe in a child process.

    `path` names the library if several are mapped.

    Raises EngineError if no libggml is mapped, if several are mapped and `path` is None, or if the
    probe refuses the library.
    """
    if path is not None:
        return checked(str(path))
    found = mapped()
    beside = tuple(
        f"libggml{part}" for part in ("-base", ".", "-")
    )  # parts of one ggml, reached through its libggml-cpu
    preferred = [
        file for file in found if file.name.startswith("libggml-cpu") or not file.name.startswith((*beside, *USERS))
    ]
    if len(preferred) == 1:
        return checked(str(preferred[0]))
    if not preferred:
        raise EngineError(
            "no libggml is mapped in this process; import the binding first, or give the path of its library"
        )
    raise EngineError(
        f"several libggml are mapped in this process ({', '.join(file.name for file in preferred)}); give the "
        "path of one"
    )
