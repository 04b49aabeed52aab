"""A planned graph as arrays: the places and lifetimes of its tensors, and whether its plan is
surely sound.

Contract: `placed_graph(library, nodes, leafs)` reads the structs of a planned graph once;
`surely_sound(graph)` returns True only for a plan in which S finds nothing (`test_placed_graph.py`
compares it with the judge on sound and planted plans), in 0.1 ms where the judge takes ten times as
long. False is no answer: such a plan goes to the judge. `shares_bytes` tells whether two roots have
a byte in common, and `addresses` tells two plans of one graph apart.

A plan is surely sound if no other root lies on a root that the planner placed while it is live. A
root is live from the node that makes it (or from the start) to the last node that reads or writes
it or a view of it. It is live to the end if it is an OUTPUT, or if no node reads it or a view of
it, as the planner frees only tensors that were read. Two roots may meet in one node, which then
runs in place over a source of its own type, dimensions and address, with an op of the library's
list. The answer is always False with an OUTPUT view of a root that is no OUTPUT and that the
planner frees, a view that no op makes, an op that writes into a view and reads other bytes of the
same root, a leaf that the planner places late (a parameter without INPUT), or a source outside of
the graph.

O(roots^2) in arrays. What this module does not see: numbers, and the belief behind a plan.
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
    """Tensors of a planned graph, leafs first; a column has one element for each."""

    library: Library
    leafs: int
    table: NDArray[Any]
    """Records of `allocsim.systems.ggml.access.structs.TENSOR`."""
    copied: Mapping[int, int]
    """A scheduler's copy -> its original, by place."""
    root: NDArray[np.int64]
    """Place of the owner of its memory; -1 where the graph does not hold it."""
    sources: NDArray[np.int64]
    """Places of its ten sources; -1 where there is none, -2 where the graph does not hold it."""
    nbytes: NDArray[np.int64]
    """Of roots, from first to last byte; 0 for views."""
    placed: NDArray[np.bool_]
    """Roots in memory that the planner placed."""
    aligned: bool
    """Whether each of these begins at a multiple of its buffer's alignment, not below its base."""

    @property
    def addresses(self) -> list[int]:
        """Where each tensor lies, counted from the lowest in its buffer."""
        data, buffer = self.table["data"].astype(np.int64), self.table["buffer"]
        found = data.copy()
        for one in {*buffer.tolist()}:
            inside = buffer == one
            found[inside] -= data[inside].min()
        return [int(where) for where in found]


def placed_graph(
    library: Library, nodes: Sequence[int], leafs: Sequence[int], copies: Mapping[int, int] | None = None
) -> PlacedGraph:
    """Return the arrays of a planned graph; `copies` has what a scheduler copies, by address."""
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
    """Return the arrays of the same graph, planned anew; `addresses` are its tensors, leafs
    first.
    """
    table = records(addresses)
    placed, aligned = _placed(graph.library, table, graph.root == np.arange(len(graph.root)))
    return replace(graph, table=table, placed=placed, aligned=aligned)


def _placed(library: Library, table: NDArray[Any], roots: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], bool]:
    """Return which roots the planner placed, and whether each lies where its buffer's rules
    allow.
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
    """Return whether two roots of the planner's have a byte in common."""
    where, ends, _ = _spans(graph)
    order = np.argsort(where, kind="stable")
    return bool((np.maximum.accumulate(ends[order])[:-1] > where[order][1:]).any())


def surely_sound(graph: PlacedGraph) -> bool:
    """Return True where S surely finds nothing in the plan; see the module."""
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
        return False  # somebody reads it before it is made
    np.maximum.at(last, root[graph.sources[node, slot]], node)
    np.maximum.at(last, root[acts], np.flatnonzero(acts))
    last[kept] = len(root)
    return _apart_in_time(graph, first, last)


def _lies_as_told(graph: PlacedGraph, view: NDArray[np.bool_]) -> bool:
    """Return whether every tensor is somewhere, each root where its buffer's rules allow, and each
    view where its offset says.
    """
    data = graph.table["data"].astype(np.int64)
    told = data[graph.root] + graph.table["view_offs"].astype(np.int64)
    return graph.aligned and bool((data != 0).all()) and bool((data[view] == told[view]).all())


def _is_one_of(graph: PlacedGraph, names: Iterable[str]) -> NDArray[np.bool_]:
    """Return whether the op of each tensor is of these names.

    Sets of Python: the first `np.isin` or `np.unique` of a process takes longer than a batch.
    """
    numbers = {graph.library.ops[name] for name in names}
    return np.array([one in numbers for one in graph.table["op"].tolist()], dtype=np.bool_)


def _writes_in_place(graph: PlacedGraph, writers: NDArray[np.int64]) -> bool:
    """Return whether every op that writes into a view reads of that root nothing but the very bytes
    it writes; the destination of CPY is not read.
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
    """Return whether two tensors are of one type and layout at one address."""
    a, b = graph.table[one], graph.table[other]
    return bool(
        a["type"] == b["type"] and a["data"] == b["data"] and (a["ne"] == b["ne"]).all() and (a["nb"] == b["nb"]).all()
    )


def _apart_in_time(graph: PlacedGraph, first: NDArray[np.int64], last: NDArray[np.int64]) -> bool:
    """Return whether no two roots lie over one another while both are needed, but for results in
    place.
    """
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
    """Return whether `result` is made over `below`, its one source there, of its own layout and
    address, by an op that may.
    """
    name = graph.library.op_names[int(graph.table["op"][result])]
    if name not in graph.library.in_place_ops or result in graph.copied:
        return False
    over = [one for one in graph.sources[result].tolist() if one >= 0 and graph.root[one] == below]
    return over == [below] and lies_over(graph, below, result)


def _spans(graph: PlacedGraph) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return address, end and place of each root of the planner's that has bytes."""
    placed = np.flatnonzero(graph.placed & (graph.nbytes > 0))
    where = graph.table["data"][placed].astype(np.int64)
    return where, where + graph.nbytes[placed], placed
