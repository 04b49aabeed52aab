"""A planned graph as arrays: the places and lifetimes of its tensors, and whether its plan is
surely sound.

Contract: `placed_graph(library, nodes, leafs)` reads the structs of a planned graph once.
`surely_sound(graph)` returns True only for a plan in which detector S finds nothing; it takes 0.1
ms, a tenth of the judge's time (`test_placed_graph.py` compares both on sound and planted plans).
If it returns False, the judge must judge the plan. `shares_bytes` returns whether two roots have a
byte in common. `addresses` shows whether two plans of one graph differ.

A plan is surely sound if two roots that the planner placed never overlap while both are live. A
root is live from the node that makes it (or from the start) to the last node that reads or writes
the root or a view of it. A root is live to the end if it is an OUTPUT, or if no node reads the root
or a view of it, because the planner frees only tensors that were read. Two overlapping roots may
both be live at one node if the node runs in place over a source of equal type, dimensions and
address, with an op of the library's in-place list. The answer is always False for a graph with an
OUTPUT view of a root that is no OUTPUT and that the planner frees. The answer is also always False
for a view that no op makes, for a source outside of the graph, for a leaf that the planner places
late (a parameter without INPUT), for an op of `SIDE_EFFECTS`, and for an op that writes into a view
and reads other bytes of the same root.

O(roots^2) operations on arrays. What this module does not see: numbers, and the belief of a plan.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.structs import FLAGS, records
from allocsim.systems.ggml.dump_document import SIDE_EFFECTS
from allocsim.systems.ggml.ggml_dump import COMPUTE_USAGE, NONE, ROOTS_KEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedGraph:
    """The tensors of a planned graph as columns with one element for each tensor, leafs first."""

    library: Library
    leafs: int
    table: NDArray[Any]
    """Records of `allocsim.systems.ggml.access.structs.TENSOR`."""
    copied: Mapping[int, int]
    """Index of a scheduler's copy -> index of its original."""
    root: NDArray[np.int64]
    """Index of the tensor's root; -1 if the root is not in the graph."""
    sources: NDArray[np.int64]
    """Indices of the tensor's ten sources; -1 for no source, -2 for one outside of the graph."""
    nbytes: NDArray[np.int64]
    """Size of a root in bytes, from its first to its last byte; 0 for a view."""
    placed: NDArray[np.bool_]
    """Whether the tensor is a root in memory that the planner placed."""
    aligned: bool
    """Whether each placed root has its buffer's alignment and is not below the buffer's base."""

    @property
    def addresses(self) -> list[int]:
        """The address of each tensor, counted from the lowest address in its buffer."""
        data, buffer = self.table["data"].astype(np.int64), self.table["buffer"]
        found = data.copy()
        for one in {*buffer.tolist()}:
            inside = buffer == one
            found[inside] -= data[inside].min()
        return [int(where) for where in found]


def placed_graph(
    library: Library, nodes: Sequence[int], leafs: Sequence[int], copies: Mapping[int, int] | None = None
) -> PlacedGraph:
    """Return the arrays of a planned graph; `copies` maps a scheduler's copies to the originals."""
    addresses = [*leafs, *nodes]
    table = records(addresses)
    place = {address: number for number, address in enumerate(addresses)}
    root = np.array(
        [place.get(view, -1) if view else number for number, view in enumerate(table["view_src"].tolist())],
        dtype=np.int64,
    )
    copied = {place[copy]: place.get(original, -2) for copy, original in (copies or {}).items() if copy in place}
    sources = np.array(
        [[place.get(source, -2) if source else -1 for source in row] for row in table["src"].tolist()], dtype=np.int64
    )
    for copy, original in copied.items():
        sources[copy] = -1
        sources[copy, 0] = original
    mine = root == np.arange(len(root))
    sizes = [library.ggml_nbytes(address) if own else 0 for address, own in zip(addresses, mine.tolist(), strict=True)]
    placed, aligned = _placed(library, table, mine)
    return PlacedGraph(
        library=library,
        leafs=len(leafs),
        table=table,
        copied=copied,
        root=root,
        sources=sources,
        nbytes=np.array(sizes, dtype=np.int64),
        placed=placed,
        aligned=aligned,
    )


def placed_again(graph: PlacedGraph, addresses: Sequence[int]) -> PlacedGraph:
    """Return the arrays of the same graph after another planning; `addresses` are the addresses of
    its tensors' structs, leafs first.
    """
    table = records(addresses)
    placed, aligned = _placed(graph.library, table, graph.root == np.arange(len(graph.root)))
    return replace(graph, table=table, placed=placed, aligned=aligned)


def _placed(library: Library, table: NDArray[Any], roots: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], bool]:
    """Return which roots the planner placed, and whether all of these are aligned and not below
    their buffer's base.
    """
    buffers = table["buffer"].tolist()
    compute = {one for one in {*buffers} if one and library.ggml_backend_buffer_get_usage(one) == COMPUTE_USAGE}
    placed = roots & np.array([one in compute for one in buffers], dtype=np.bool_)
    steps = {one: (library.ggml_backend_buffer_get_base(one), _alignment(library, one)) for one in compute}
    aligned = all(
        where >= steps[buffers[number]][0] and where % steps[buffers[number]][1] == 0
        for number, where in zip(np.flatnonzero(placed).tolist(), table["data"][placed].tolist(), strict=True)
    )
    return placed, aligned


def _alignment(library: Library, buffer: int) -> int:
    return int(library.ggml_backend_buft_get_alignment(library.ggml_backend_buffer_get_type(buffer)))


def shares_bytes(graph: PlacedGraph) -> bool:
    """Return whether two roots that the planner placed have a byte in common."""
    where, ends, _ = _spans(graph)
    order = np.argsort(where, kind="stable")
    return bool((np.maximum.accumulate(ends[order])[:-1] > where[order][1:]).any())


def surely_sound(graph: PlacedGraph) -> bool:
    """Return True only if the plan is surely sound by the rules in the docstring of the module."""
    if (graph.root < 0).any() or (graph.sources == -2).any():
        return False
    ops = graph.library.ops
    op, flags, root = graph.table["op"], graph.table["flags"], graph.root
    view = root != np.arange(len(root))
    output = (flags & FLAGS["output"]) != 0
    made = op != ops[NONE]
    made[list(graph.copied)] = True
    acts = made & ~_is_one_of(graph, ROOTS_KEPT)
    beside = _is_one_of(graph, SIDE_EFFECTS)
    late = graph.placed & ~made & (flags & FLAGS["input"] == 0) & (np.arange(len(root)) >= graph.leafs)
    unread = np.ones(len(root), dtype=np.bool_)
    unread[graph.sources[graph.sources >= 0]] = False
    kept = output.copy()
    kept[root[unread]] = True
    if ((output & ~kept[root] & graph.placed[root]) | (view & ~made) | beside | late).any():
        return False
    if not _writes_in_place(graph, np.flatnonzero(view & acts)) or not _lies_as_told(graph, view):
        return False
    first = np.where(made, np.arange(len(root)), -1)
    last = first.copy()
    node, slot = np.nonzero(graph.sources >= 0)
    if (first[root[graph.sources[node, slot]]] > node).any():
        return False  # a node reads a root before the root is made
    np.maximum.at(last, root[graph.sources[node, slot]], node)
    np.maximum.at(last, root[acts], np.flatnonzero(acts))
    last[kept] = len(root)
    return _apart_in_time(graph, first, last)


def _lies_as_told(graph: PlacedGraph, view: NDArray[np.bool_]) -> bool:
    """Return whether every tensor has an address, each placed root is aligned in its buffer, and
    each view is at its offset in its root.
    """
    data = graph.table["data"].astype(np.int64)
    told = data[graph.root] + graph.table["view_offs"].astype(np.int64)
    return graph.aligned and bool((data != 0).all()) and bool((data[view] == told[view]).all())


def _is_one_of(graph: PlacedGraph, names: Iterable[str]) -> NDArray[np.bool_]:
    """Return for each tensor whether its op has one of these names.

    A Python set is used because the first `np.isin` of a process takes longer than a whole batch.
    """
    numbers = {graph.library.ops[name] for name in names}
    return np.array([one in numbers for one in graph.table["op"].tolist()], dtype=np.bool_)


def _writes_in_place(graph: PlacedGraph, writers: NDArray[np.int64]) -> bool:
    """Return whether every op that writes into a view reads no other bytes of that root than the
    bytes that it writes. The destination operand of CPY does not count as read.
    """
    cpy = graph.library.ops["CPY"]
    for writer in writers.tolist():
        for slot, source in enumerate(graph.sources[writer].tolist()):
            if source < 0 or graph.root[source] != graph.root[writer]:
                continue
            if not (slot == 1 and graph.table["op"][writer] == cpy) and not lies_over(graph, source, writer):
                return False
    return True


def lies_over(graph: PlacedGraph, one: int, other: int) -> bool:
    """Return whether two tensors have the same type, layout and address."""
    a, b = graph.table[one], graph.table[other]
    return bool(
        a["type"] == b["type"] and a["data"] == b["data"] and (a["ne"] == b["ne"]).all() and (a["nb"] == b["nb"]).all()
    )


def _apart_in_time(graph: PlacedGraph, first: NDArray[np.int64], last: NDArray[np.int64]) -> bool:
    """Return whether no two roots overlap while both are live, except results that are in place."""
    where, ends, placed = _spans(graph)
    begin, end = first[placed], last[placed]
    meet = (where[:, None] < ends) & (where < ends[:, None]) & (begin[:, None] <= end) & (begin <= end[:, None])
    np.fill_diagonal(meet, val=False)
    older, newer = np.nonzero(meet & (begin[:, None] < begin))
    if 2 * len(older) != int(meet.sum()):
        return False
    if (end[older] != begin[newer]).any():
        return False
    return all(_in_place(graph, a, b) for a, b in zip(placed[older].tolist(), placed[newer].tolist(), strict=True))


def _in_place(graph: PlacedGraph, below: int, result: int) -> bool:
    """Return whether an op of the in-place list makes `result` over the root `below`.

    `below` must be the op's only source in that root, with the result's layout and address.
    """
    name = graph.library.op_names[int(graph.table["op"][result])]
    if name not in graph.library.in_place_ops or result in graph.copied:
        return False
    over = [one for one in graph.sources[result].tolist() if one >= 0 and graph.root[one] == below]
    return over == [below] and lies_over(graph, below, result)


def _spans(graph: PlacedGraph) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return address, end and index of each non-empty root that the planner placed."""
    placed = np.flatnonzero(graph.placed & (graph.nbytes > 0))
    where = graph.table["data"][placed].astype(np.int64)
    return where, where + graph.nbytes[placed], placed
