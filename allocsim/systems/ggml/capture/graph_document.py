"""A planned ggml graph as a document: the program, the constraints of its planner, the plan.

Contract
--------
* `capture(graph, library)` walks the graph (`allocsim.systems.ggml.capture.graph_rows`) and
  converts it with the importer of ggml dumps (`allocsim.systems.ggml.dump_document`), whose
  conventions of time and bytes hold here too.
* The graph must be planned (`ggml_gallocr_alloc_graph` or a scheduler) and its sources unchanged
  since. Nothing is computed or written.
* In a program of your own: `library = adopt()` finds the libggml that this process already has
  mapped, probes the same file in a child process, and returns it; then `capture(pointer, library)`.
  A binding that hides its `ggml_cgraph` pointer is refused with the reason.

O(nodes x sources). What this module does not see: whether the plan is sound
(`allocsim.judge`).
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
"""Names of files that may contain a ggml."""

GRAPHS = "graphs"
"""Key of `meta.ggml` for several programs: a list with the rows of each, as under GRAPH."""

USERS = ("libllama", "libwhisper")
"""Libraries that use a ggml in their folder rather than contain one."""


def capture(
    graph: int,
    library: Library,
    *,
    buffers: Sequence[int] | None = None,
    scheduler: int = 0,
    meta: dict[str, Any] | None = None,
) -> Document:
    """Return the document of a planned graph. `buffers` and `scheduler` as in `graph_rows.walk`.

    `meta` is added to the document's.

    Raises EngineError where the pointer is no planned graph of this library.
    """
    return document(walk(library, graph, buffers=buffers, scheduler=scheduler, meta=meta))


def document(rows: Rows, source: str = "capture") -> Document:
    """Return the document of rows as `walk` gives them, or as a dump holds them."""
    return dumps.loads(msgspec.json.encode(rows), source)


def graphs_of(document: Document) -> list[Rows]:
    """Return the rows of each program of a capture; none if it does not have the rows that are
    needed to run it again.
    """
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
    """Return for each node the op of the document made of these rows.

    Returns None for an op-NONE node that became none.
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
    """Return the libggml that this process already uses, probed in a child.

    `path` names it where several are mapped.

    Raises EngineError where none is mapped, several are, or the library does not match what the
    bridge knows.
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
