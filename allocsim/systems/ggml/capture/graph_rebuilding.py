"""Rebuild live tensors from the rows of a graph, with the same types, layouts, parameters and
sources, at chosen offsets.

Contract
--------
* `rebuild(ws, rows, offsets)` makes a tensor for each row, leafs first, in one buffer. The root
  tensor *i* is placed `offsets[i]` bytes behind the aligned base of the buffer. A root without an
  offset is placed behind all roots with an offset and overlaps no other root. A view is placed in
  its root.
* The rows must come from a graph of the same version of the library and must have `op_params`
  (`allocsim.systems.ggml.capture.graph_rows`). Ops and types are looked up by name. Parameters are
  numbers, and the meaning of these numbers depends on the version.
* Rows may come from a file, so they are checked. A tensor that does not fit in its root is refused,
  and so is a type or op that the library does not know. An op that has a pointer to code among its
  parameters (`CALLS_BACK`) is replaced by a NONE op, which does nothing.
* A kernel may still fail an assertion about shapes, which aborts the process. Because of such
  assertions, run rebuilt graphs in a child process (`allocsim.systems.ggml.access.child`).

This module does not write elements into the tensors; `allocsim.systems.ggml.capture.drawn_elements`
does. This module does not examine results.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.structs import FLAGS, MAX_SOURCES, live_record
from allocsim.systems.ggml.access.workspace import ELEMENTS, LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rows import Rows
from allocsim.systems.ggml.ggml_dump import NONE, ROOTS_KEPT, SPLIT_COPY

CALLS_BACK: Final = frozenset({"MAP_CUSTOM1", "MAP_CUSTOM2", "MAP_CUSTOM3", "CUSTOM"})
"""Ops with the address of a function as a parameter. An address from a file is never called."""

UNEXECUTED: Final = (NONE, *ROOTS_KEPT)
"""Ops that the executor skips."""

GAP: Final = 256
"""Alignment, in bytes, of roots without an offset: a multiple of every alignment of ggml."""

MOST_BYTES: Final = 1 << 32
"""The most bytes that a rebuilt graph may need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltGraph:
    """The live tensors of a graph rebuilt from rows. All lists have leafs first, then nodes."""

    ws: LibraryWorkspace
    rows: list[dict[str, Any]]
    tensors: list[int]
    arrays: list[NDArray[Any]]
    """The elements of each tensor, as an array over ggml's memory in numpy's order of dimensions.

    If `ELEMENTS` lacks the type of a tensor, the array has bytes.
    """
    sources: list[list[int | None]]
    """For each tensor, the places of its sources by slot; None for an empty slot."""
    roots: list[int]
    """For each tensor, the place of the root tensor that owns its memory."""
    leafs: int
    """The number of leafs."""
    single: int
    """A graph with room for one node, in which `execute` runs each kernel."""

    def execute(self, place: int) -> None:
        """Run the kernel of the tensor at this place of the lists."""
        self.ws.compute_node(self.single, self.tensors[place])


def number_of(reference: int | str, leafs: int) -> int:
    """Return the place, leafs first, of the tensor that a reference (5, or "L5") names."""
    return int(reference[1:]) if isinstance(reference, str) else leafs + reference


def skipped(rows: Rows) -> set[int]:
    """Return the nodes that ggml leaves out: nodes without the flag COMPUTE, except copies of the
    scheduler. Older versions of ggml do not have this flag and run all nodes, so if no node has it,
    no node is left out.
    """
    flagged = [bool(row["flags"] & FLAGS["compute"]) for row in rows["nodes"]]
    if not any(flagged):
        return set()
    return {node for node, runs in enumerate(flagged) if not runs and rows["nodes"][node]["op"] != SPLIT_COPY}


def unsplit(rows: Rows) -> Rows:
    """Return the rows of the graph as the graph would run on one backend. Each reader of a
    scheduler's copy reads the original instead. The copies stay, without readers.
    """
    leafs = len(rows["leafs"])
    original = {leafs + n: row["src"][0] for n, row in enumerate(rows["nodes"]) if row["op"] == SPLIT_COPY}

    def read(reference: int | str | None) -> int | str | None:
        while reference is not None and number_of(reference, leafs) in original:
            reference = original[number_of(reference, leafs)]
        return reference

    nodes = [row if row["op"] == SPLIT_COPY else {**row, "src": [*map(read, row["src"])]} for row in rows["nodes"]]
    return {**rows, "nodes": nodes}


def sources_of(rows: Rows) -> list[list[int | None]]:
    """Return, for each tensor, leafs first, the places of its sources by slot."""
    leafs = len(rows["leafs"])
    return [
        [None if reference is None else number_of(reference, leafs) for reference in row["src"]]
        for row in (*rows["leafs"], *rows["nodes"])
    ]


def roots_of(rows: Rows) -> list[int]:
    """Return, for each tensor, leafs first, the place of the root tensor that owns its memory."""
    leafs = len(rows["leafs"])
    everything = (*rows["leafs"], *rows["nodes"])
    return [
        place if row["view_src"] is None else number_of(row["view_src"], leafs) for place, row in enumerate(everything)
    ]


def rebuild(ws: LibraryWorkspace, rows: Rows, offsets: Mapping[int, int]) -> RebuiltGraph:
    """Make a tensor of the library for each row, with the roots placed as the module docstring
    describes. Raises EngineError if a row cannot become a tensor, an offset is negative, or the
    graph needs more than `MOST_BYTES`.
    """
    library = ws.library
    everything = [*rows["leafs"], *rows["nodes"]]
    sources, roots = sources_of(rows), roots_of(rows)
    types = library.all_types
    for row in everything:
        _refuse(row, library.ops, types, library.version)
    ctx = ws.context(tensors=len(everything) + 8, graph_size=1)
    tensors = []
    for row in everything:
        dims = (ctypes.c_int64 * 4)(*row["ne"])
        tensors.append(ctx.checked(library.ggml_new_tensor(ctx.pointer, types[row["type"]], 4, ctypes.addressof(dims))))
    records = [live_record(tensor) for tensor in tensors]
    for row, record in zip(everything, records, strict=True):
        record["nb"] = row["nb"]
    places, size = _places(everything, roots, offsets)
    for place, (row, root) in enumerate(zip(everything, roots, strict=True)):
        _fits(library.ggml_nbytes(tensors[place]), row, everything[root], root == place)
    buffer = ws.memory(size + GAP)
    base = -(-library.ggml_backend_buffer_get_base(buffer) // GAP) * GAP
    for place, (row, record, root) in enumerate(zip(everything, records, roots, strict=True)):
        live = [0 if source is None else tensors[source] for source in sources[place]]
        idle = row["op"] == SPLIT_COPY or row["op"] in CALLS_BACK
        words = () if idle else row.get("op_params", ())
        record["op"], record["flags"] = library.ops[NONE if idle else row["op"]], row["flags"]
        record["op_params"] = [*words, *[0] * (16 - len(words))]
        record["src"] = [*live, *[0] * (MAX_SOURCES - len(live))]
        record["view_src"] = 0 if root == place else tensors[root]
        record["view_offs"] = row["view_offs"]
        record["buffer"] = buffer
        record["data"] = base + places[root] + (0 if root == place else row["view_offs"])
    single = ctx.graph(size=1)
    if tensors:
        library.ggml_graph_add_node(single, tensors[-1])
    return RebuiltGraph(
        ws=ws, rows=everything, tensors=tensors, arrays=[elements_at(row, int(r["data"])) for row, r in zip(everything, records, strict=True)],
        sources=sources, roots=roots, leafs=len(rows["leafs"]), single=single,
    )  # fmt: skip


def _refuse(row: Mapping[str, Any], ops: Mapping[str, int], types: Mapping[str, int], version: str) -> None:
    for what, known in (("op", {*ops, SPLIT_COPY}), ("type", {*types})):
        if row[what] not in known:
            raise EngineError(f"tensor {row['name']!r}: ggml {version} has no {what} {row[what]!r}")
    if len(row["src"]) > MAX_SOURCES or len(row.get("op_params", ())) > 16:
        raise EngineError(f"tensor {row['name']!r} has more sources or parameters than a ggml_tensor holds")


def _fits(nbytes: int, row: Mapping[str, Any], root: Mapping[str, Any], own: bool) -> None:  # noqa: FBT001 - a fact of the row
    if nbytes != row["nbytes"]:
        raise EngineError(
            f"tensor {row['name']!r} has {row['nbytes']} bytes in its row, but {nbytes} by its type and layout"
        )
    if not own and row["view_offs"] + nbytes > root["nbytes"]:
        raise EngineError(f"tensor {row['name']!r} reaches beyond the {root['nbytes']} bytes of {root['name']!r}")


def _places(
    everything: list[dict[str, Any]], roots: list[int], offsets: Mapping[int, int]
) -> tuple[dict[int, int], int]:
    """Return the offset of each root, and the size of the buffer, both in bytes."""
    own = [place for place, root in enumerate(roots) if place == root]
    places = {place: offsets[place] for place in own if place in offsets}
    end = max((at + everything[place]["nbytes"] for place, at in places.items()), default=0)
    for place in own:
        if place not in places:
            end = -(-end // GAP) * GAP + GAP
            places[place] = end
            end += everything[place]["nbytes"]
    if end > MOST_BYTES or min(places.values(), default=0) < 0:
        raise EngineError(f"the graph needs {end} bytes; at most {MOST_BYTES} are allowed")
    return places, end


def elements_at(row: Mapping[str, Any], address: int) -> NDArray[Any]:
    """Return the elements of a row's tensor as an array over the memory at an address. The
    dimensions are in numpy's order. If `ELEMENTS` lacks the type, the array has bytes.
    """
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * max(row["nbytes"], 1)).from_address(address))[: row["nbytes"]]
    if row["type"] not in ELEMENTS:
        return memory
    shape, strides = tuple(row["ne"][::-1]), tuple(row["nb"][::-1])
    if 0 in shape:
        return memory[:0]
    return np.ndarray(shape, dtype=np.dtype(ELEMENTS[row["type"]]), buffer=memory, strides=strides)
