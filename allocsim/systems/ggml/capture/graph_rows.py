"""Read a planned ggml graph into plain rows: the graph that the planner got, and all addresses.

Contract
--------
* `walk(library, graph)` reads the nodes by public functions and the leafs from a private field,
  which the probe has checked. The result is the same object that a ggml dump contains
  (`allocsim.systems.ggml.dump_document`): `{"meta", "leafs": [row], "nodes": [row]}`.
* A row has the fields op, op_params, name, type, ne, nb, nbytes, off, external, flags, view_src,
  view_offs and src, and the field unary if its op is UNARY. A reference to a tensor is the index of
  a node, or "L9" for leaf 9. An empty source slot before a used slot is None.
* `off` is the offset in bytes from the base of the compute buffer, or None for a tensor outside it
  or without memory. `external` is true if the planner did not place the tensor: it is in another
  buffer, or its address was set without a buffer.
* The compute buffer is the buffer with the usage COMPUTE, which gallocr sets for its own buffers.
  The parameter `buffers` names the compute buffers explicitly. If there are several, `meta.buffers`
  lists their names, sizes and alignments. A row's `buffer` is then the index of the buffer to which
  its `off` belongs.
* `scheduler` is the `ggml_backend_sched` that planned the graph. The scheduler runs a copy of the
  graph, in which each tensor that goes from one backend to another is copied. The scheduler's graph
  is found in the scheduler's memory (`allocsim.systems.ggml.capture.scheduled_graph`), together
  with all its compute buffers. A copy of a tensor is a row of op `SPLIT_COPY` at the start of its
  split.
* Steps are positions in the node list. Nothing is written, so the graph stays usable.
* A pointer is checked before it is followed. The bytes at the pointer must be readable. Counts,
  ops, types and dimensions must be possible in ggml, and the functions of a buffer must be
  executable. Memory that is no graph, or no longer a graph, is refused with a one-line error. Freed
  memory that still looks like a graph is accepted.
* If the graph of a scheduler is not accessible, `observe` yields the nodes of its run, and
  `walk_nodes` makes rows of these nodes.

The cost is O(nodes x sources). This module does not interpret the plan
(`allocsim.systems.ggml.capture.graph_document` does), and does not see the calls that made it.
"""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.readable_memory import ReadableMemory
from allocsim.systems.ggml.access.structs import GRAPH, TENSOR, graph_record, pointers, records
from allocsim.systems.ggml.capture.scheduled_graph import scheduled_graph
from allocsim.systems.ggml.ggml_dump import COMPUTE_USAGE, SPLIT_COPY

MAX_TYPE: Final = 63
MAX_FLAGS: Final = 1 << 8
"""An exclusive bound on a tensor's flags. No version of ggml reaches this bound or `MAX_TYPE`."""

MAX_NODES: Final = 1 << 24
"""The most nodes of a graph. A pointer to a graph with room for more nodes is refused."""

EVAL_CALLBACK: Final = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
"""The type `ggml_backend_sched_eval_callback`. The arguments of the callback are a tensor, a flag
`ask`, and a pointer to user data. `ask` is true if the scheduler only asks whether the tensor's
elements are needed.
"""

Rows = dict[str, Any]


def walk(
    library: Library,
    graph: int,
    *,
    buffers: Sequence[int] | None = None,
    scheduler: int = 0,
    meta: dict[str, Any] | None = None,
    known: bool = False,
) -> Rows:
    """Return the rows of a graph. `buffers` are the compute buffers. By default `buffers` are the
    buffers of usage COMPUTE that hold the tensors: one buffer, or several if a scheduler is given.
    If `known` is true, the pointer is not checked, because the caller built the graph with this
    bridge. Raises EngineError if the pointer is no graph, a source is not part of the graph, or the
    scheduler has no plan of the graph. Without scheduler and `buffers`, several buffers of usage
    COMPUTE are an error too.
    """
    nodes, leafs = nodes_and_leafs(library, graph) if known else _members(library, graph)
    if not scheduler:
        return walk_nodes(library, nodes, leafs, buffers=buffers, meta=meta)
    ran = scheduled_graph(library, scheduler, nodes)
    chosen = compute_buffers(library, records([*ran.leafs, *ran.nodes])) if buffers is None else buffers
    return walk_nodes(library, ran.nodes, ran.leafs, copies=ran.copies, buffers=chosen, meta=meta)


def walk_nodes(
    library: Library, nodes: list[int], leafs: list[int] | None = None, *,
    copies: Mapping[int, int] | None = None, buffers: Sequence[int] | None = None, meta: dict[str, Any] | None = None,
) -> Rows:  # fmt: skip
    """Return the rows of a list of nodes in execution order, such as the list that `observe`
    yields. `copies` maps each copy that a scheduler made to its original. If `leafs` is None, the
    leafs are the sources that are not nodes, in the order of their first use. A planner may place
    leafs in another order. Rows made without `leafs` therefore show which nodes ran at which
    addresses, but not the order in which the planner placed the leafs.
    """
    if leafs is None:
        leafs = _sources_outside(records(nodes), nodes)
    addresses = leafs + nodes
    table = records(addresses)
    extra = _roots_outside(table, addresses)
    if extra:
        leafs = leafs + extra
        addresses = leafs + nodes
        table = records(addresses)
    chosen = list(compute_buffer(library, table) if buffers is None else buffers)
    rows = _rows(library, table, addresses, chosen)
    names: dict[int, Any] = {address: f"L{index}" for index, address in enumerate(leafs)}
    names.update((address, index) for index, address in enumerate(nodes))
    sources, roots = table["src"].tolist(), table["view_src"].tolist()
    for index in range(len(leafs) - len(extra), len(leafs)):
        rows[index]["op"], sources[index] = "NONE", []
    for index, address in enumerate(addresses):
        if copies and address in copies:
            rows[index]["op"], sources[index] = SPLIT_COPY, [copies[address]]
    for index, row in enumerate(rows):
        row["view_src"] = names[roots[index]] if roots[index] else None
        last = max((slot for slot, source in enumerate(sources[index]) if source), default=-1)
        row["src"] = [_named(names, source, row["name"]) if source else None for source in sources[index][: last + 1]]
        if row["op"] == "UNARY":
            row["unary"] = bytes(library.ggml_unary_op_name(library.ggml_get_unary_op(addresses[index]))).decode()
    about = {
        "version": library.version,
        "buffer_size": sum(library.ggml_backend_buffer_get_size(buffer) for buffer in chosen),
        "alignment": library.ggml_backend_buft_get_alignment(library.ggml_backend_cpu_buffer_type()),
        "inplace_ops": sorted(library.in_place_ops),
    }
    about |= {"buffers": [_about(library, buffer) for buffer in chosen]} if len(chosen) > 1 else {}
    return {"meta": {**about, **(meta or {})}, "leafs": rows[: len(leafs)], "nodes": rows[len(leafs) :]}


def _members(library: Library, graph: int) -> tuple[list[int], list[int]]:
    if not graph:
        raise EngineError("the graph pointer is NULL")
    memory = ReadableMemory.now()
    if memory.outside([graph], GRAPH.itemsize):
        raise EngineError(f"{graph:#x} is no ggml_cgraph: this process cannot read {GRAPH.itemsize} bytes there")
    head = graph_record(graph)
    room, count, leaf_count = (int(head[column]) for column in ("size", "n_nodes", "n_leafs"))
    if not (0 <= count <= room <= MAX_NODES and 0 <= leaf_count <= room and room):
        said = f"it would have {count} nodes and {leaf_count} leafs in room for {room}"
        raise EngineError(f"{graph:#x} is no ggml_cgraph: {said}{_if_tensor(library, memory, graph)}")
    if memory.outside([int(head["nodes"]), int(head["leafs"])], 8 * room):
        raise EngineError(
            f"{graph:#x} is no ggml_cgraph: its lists are not in memory{_if_tensor(library, memory, graph)}"
        )
    nodes, leafs = nodes_and_leafs(library, graph)
    _check_tensors(library, memory, [*leafs, *nodes], f"the graph at {graph:#x}")
    return nodes, leafs


def nodes_and_leafs(library: Library, graph: int) -> tuple[list[int], list[int]]:
    """Return the addresses of the nodes and of the leafs of a graph; the pointer is not checked."""
    head = graph_record(graph)
    nodes = pointers(library.ggml_graph_nodes(graph), library.ggml_graph_n_nodes(graph))
    return nodes, pointers(int(head["leafs"]), int(head["n_leafs"]))


def _if_tensor(library: Library, memory: ReadableMemory, address: int) -> str:
    """Return a clause for the error message if the pointer leads to a tensor, else ""."""
    if memory.outside([address], TENSOR.itemsize) or _wrong_fields(library, records([address]))[0]:
        return ""
    return "; it looks like a ggml_tensor: give the graph that contains this tensor"


def _check_tensors(library: Library, memory: ReadableMemory, addresses: Sequence[int], whose: str) -> None:
    """Raise EngineError unless each address holds a tensor whose pointers can be followed."""
    lost = memory.outside(addresses, TENSOR.itemsize)
    if lost:
        raise EngineError(f"{whose} names a tensor at {lost[0]:#x}, where no tensor is; was its context freed?")
    if not addresses:
        return
    table = records(addresses)
    wrong = _wrong_fields(library, table)
    if wrong.any():
        raise EngineError(
            f"{whose} names a tensor at {addresses[int(wrong.argmax())]:#x}, where no tensor is; was its context freed?"
        )
    roots = [root for root in dict.fromkeys(table["view_src"].tolist()) if root]
    if memory.outside(roots, TENSOR.itemsize):
        raise EngineError(f"{whose} has a view of a tensor that is not in memory; was its context freed?")
    for buffer in {*table["buffer"].tolist(), *(records(roots)["buffer"].tolist() if roots else ())} - {0}:
        if memory.outside([buffer], 16) or not _is_buffer(memory, buffer):
            raise EngineError(
                f"{whose} has a tensor in a buffer that is not there; was its allocator or context freed?"
            )


def _is_buffer(memory: ReadableMemory, address: int) -> bool:
    """Return whether a buffer's first two functions are executable. The first function, which frees
    the buffer, may be absent if the buffer does not own its memory, as with weights mapped from a
    file.
    """
    free, base = pointers(address, 2)
    return (not free or memory.runs(free)) and memory.runs(base)


def _wrong_fields(library: Library, table: NDArray[Any]) -> NDArray[np.bool_]:
    """Return, for each record, whether it cannot be a tensor: its op, type, dimensions, strides or
    flags are impossible in ggml.
    """
    wrong = (table["op"] < 0) | (table["op"] >= len(library.ops)) | (table["type"] < 0) | (table["type"] > MAX_TYPE)
    wrong |= (table["ne"] < 0).any(axis=1) | (table["flags"] < 0) | (table["flags"] >= MAX_FLAGS)
    return np.asarray(wrong | (table["nb"] == 0).any(axis=1))


@contextmanager
def observe(library: Library, scheduler: int) -> Iterator[list[int]]:
    """Yield a list to which each node that a scheduler computes inside the block is appended.

    The function sets a callback by `ggml_backend_sched_set_eval_callback`. Whoever has the
    scheduler can call it, and no graph pointer is needed. The callback never asks for a tensor's
    elements, so the scheduler does not compute any node alone.
    """
    seen: list[int] = []

    def asked(tensor: int, ask: bool, _: int | None) -> bool:  # noqa: FBT001 - ggml's signature
        seen.append(tensor)
        return not ask

    callback = EVAL_CALLBACK(asked)
    library.ggml_backend_sched_set_eval_callback(scheduler, ctypes.cast(callback, ctypes.c_void_p).value, None)
    try:
        yield seen
    finally:
        library.ggml_backend_sched_set_eval_callback(scheduler, None, None)


def _sources_outside(table: NDArray[Any], nodes: Sequence[int]) -> list[int]:
    known = set(nodes)
    return [source for source in dict.fromkeys(table["src"].ravel().tolist()) if source and source not in known]


def _roots_outside(table: NDArray[Any], addresses: Sequence[int]) -> list[int]:
    """Return the roots of views that are not in the graph themselves, in order of appearance.

    A view of op NONE (`ggml_view_tensor`) does not have its root as a source, so ggml does not
    visit the root. `walk_nodes` makes these roots leafs, whatever op computed them.
    """
    known = set(addresses)
    return [root for root in dict.fromkeys(table["view_src"].tolist()) if root and root not in known]


def compute_buffer(library: Library, table: NDArray[Any]) -> list[int]:
    """Return a list with the one buffer of COMPUTE usage among these tensors, or an empty list.

    Raises EngineError if several buffers have this usage.
    """
    found = compute_buffers(library, table)
    if len(found) > 1:
        raise EngineError(
            f"the graph is in {len(found)} compute buffers; give its scheduler, or name the buffers of the plan to capture"
        )
    return found


def compute_buffers(library: Library, table: NDArray[Any]) -> list[int]:
    """Return all buffers of COMPUTE usage among these tensors, in order of appearance."""
    return [
        b
        for b in dict.fromkeys(table["buffer"].tolist())
        if b and library.ggml_backend_buffer_get_usage(b) == COMPUTE_USAGE
    ]


def _about(library: Library, buffer: int) -> Rows:
    kind = library.ggml_backend_buffer_get_type(buffer)
    return {
        "name": bytes(library.ggml_backend_buffer_name(buffer)).decode(errors="replace"),
        "size": library.ggml_backend_buffer_get_size(buffer),
        "alignment": library.ggml_backend_buft_get_alignment(kind),
    }


def _named(names: dict[int, Any], source: int, reader: str) -> Any:
    try:
        return names[source]
    except KeyError:
        raise EngineError(
            f"a source of {reader!r} is not part of the graph; if a scheduler copies the source between backends, give the scheduler"
        ) from None


def _rows(library: Library, table: NDArray[Any], addresses: Sequence[int], buffers: Sequence[int]) -> list[Rows]:
    """Return a row for each tensor, with `view_src` and `src` still empty."""
    ops = {number: bytes(library.ggml_op_name(number)).decode() for number in {*table["op"].tolist()}}
    types = {number: bytes(library.ggml_type_name(number)).decode() for number in {*table["type"].tolist()}}
    base = {buffer: library.ggml_backend_buffer_get_base(buffer) for buffer in buffers}
    shifts = [base.get(buffer) for buffer in table["buffer"].tolist()]
    number = {buffer: place for place, buffer in enumerate(buffers)}
    data = table["data"].tolist()
    columns = (
        table["op"].tolist(), table["name"].tolist(), table["type"].tolist(), table["ne"].tolist(), table["nb"].tolist(),
        table["flags"].tolist(), table["view_offs"].tolist(), table["op_params"].tolist(), shifts, data, addresses,
    )  # fmt: skip
    nbytes = library.ggml_nbytes
    rows = [
        {
            "op": ops[op],
            "name": name.partition(b"\0")[0].decode(errors="replace"),
            "type": types[kind],
            "ne": ne,
            "nb": nb,
            "nbytes": nbytes(address),
            "off": where - shift if shift is not None and where else None,
            "external": bool(where) and shift is None,
            "flags": flags,
            "view_src": None,
            "view_offs": offset,
            "op_params": _trimmed(words),
            "src": [],
        }
        for op, name, kind, ne, nb, flags, offset, words, shift, where, address in zip(*columns, strict=True)
    ]
    if len(buffers) > 1:
        for row, buffer in zip(rows, table["buffer"].tolist(), strict=True):
            row["buffer"] = number.get(buffer, 0)
    return rows


def _trimmed(words: list[int]) -> list[int]:
    """Return the words without the zeros at the end."""
    return words[: max((place + 1 for place, word in enumerate(words) if word), default=0)]
