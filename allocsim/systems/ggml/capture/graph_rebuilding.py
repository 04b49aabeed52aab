"""Live tensors rebuilt from the rows of a graph, with the same types, layouts, parameters and
sources, at any addresses.

Contract
--------
* `rebuild(ws, rows, offsets)` makes a tensor for each row, leafs first, in one buffer. Root *i*
  lies `offsets[i]` bytes behind the buffer's base; a root without an offset lies apart, behind all
  roots with one. A view lies in its root.
* Rows must come from a graph of the same version of the library, with `op_params`
  (`allocsim.systems.ggml.capture.graph_rows`): op and type are looked up by name, parameters are
  numbers whose meaning belongs to the version.
* Rows may come from a file, so they are checked: a tensor that does not fit in its root, and a type
  or op that the library does not know, are refused. An op whose parameters are a pointer to code
  (`CALLS_BACK`) becomes an op without the pointer that does nothing. A kernel may still fail an
  assertion about shapes, which aborts: call this in a child process
  (`allocsim.systems.ggml.access.child`).

What this module does not see: the content of the memory
(`allocsim.systems.ggml.capture.drawn_elements`), and results.
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
"""Ops whose parameters hold the address of a function, which rows from a file may not bring."""

UNEXECUTED: Final = (NONE, *ROOTS_KEPT)
"""Ops that the executor skips."""

GAP: Final = 256
"""Alignment in bytes of roots that lie apart: a multiple of every alignment of ggml."""

MOST_BYTES: Final = 1 << 32
"""The most bytes that a rebuilt graph may need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltGraph:
    """The live tensors of rows: leafs, then nodes."""

    ws: LibraryWorkspace
    rows: list[dict[str, Any]]
    tensors: list[int]
    arrays: list[NDArray[Any]]
    """Their elements, as arrays over ggml's memory in numpy's order of dimensions.

    A type that numpy lacks is an array of bytes.
    """
    sources: list[list[int | None]]
    """For each tensor, the places of its sources by slot."""
    roots: list[int]
    """For each tensor, the place of the one that owns its memory."""
    leafs: int
    single: int
    """A graph with room for one node; see `execute`."""

    def execute(self, place: int) -> None:
        """Run the kernel of one tensor."""
        self.ws.compute_node(self.single, self.tensors[place])


def number_of(reference: int | str, leafs: int) -> int:
    """Return the place of a tensor that rows name, leafs first."""
    return int(reference[1:]) if isinstance(reference, str) else leafs + reference


def skipped(rows: Rows) -> set[int]:
    """Return the nodes that the executor leaves out: those without the flag COMPUTE, in a version
    of ggml that sets it on the others. A version that sets none runs them all.
    """
    flagged = [bool(row["flags"] & FLAGS["compute"]) for row in rows["nodes"]]
    if not any(flagged):
        return set()
    return {node for node, runs in enumerate(flagged) if not runs and rows["nodes"][node]["op"] != SPLIT_COPY}


def unsplit(rows: Rows) -> Rows:
    """Return the rows of the graph as it would run on one backend: each reader of a scheduler's
    copy reads the original instead, and the copies have no readers.
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
    """Return for each tensor, leafs first, the places of its sources by slot."""
    leafs = len(rows["leafs"])
    return [
        [None if reference is None else number_of(reference, leafs) for reference in row["src"]]
        for row in (*rows["leafs"], *rows["nodes"])
    ]


def roots_of(rows: Rows) -> list[int]:
    """Return for each tensor, leafs first, the place of the tensor that owns its memory."""
    leafs = len(rows["leafs"])
    everything = (*rows["leafs"], *rows["nodes"])
    return [
        place if row["view_src"] is None else number_of(row["view_src"], leafs) for place, row in enumerate(everything)
    ]


def rebuild(ws: LibraryWorkspace, rows: Rows, offsets: Mapping[int, int]) -> RebuiltGraph:
    """Return the live tensors of rows, roots placed as the module says.

    Raises EngineError where a row cannot be made.
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
            f"tensor {row['name']!r} has {row['nbytes']} bytes by its row, {nbytes} by its type and layout"
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
        raise EngineError(f"the graph needs {end} bytes; up to {MOST_BYTES} are taken here")
    return places, end


def elements_at(row: Mapping[str, Any], address: int) -> NDArray[Any]:
    """Return the elements of a row's tensor as an array over the memory at an address, in numpy's
    order of dimensions; bytes where numpy lacks the type.
    """
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * max(row["nbytes"], 1)).from_address(address))[: row["nbytes"]]
    if row["type"] not in ELEMENTS:
        return memory
    shape, strides = tuple(row["ne"][::-1]), tuple(row["nb"][::-1])
    if 0 in shape:
        return memory[:0]
    return np.ndarray(shape, dtype=np.dtype(ELEMENTS[row["type"]]), buffer=memory, strides=strides)
