"""Find, in the memory of a backend scheduler, the graph that the scheduler runs.

Contract: `scheduled_graph(library, scheduler, nodes)` returns the graph that `ggml_backend_sched`
planned from a graph with these nodes. The scheduler's graph has the given nodes in the given order.
The scheduler's graph also has two nodes for each tensor that goes from one backend to another: a
mark that keeps the original alive, and the copy. The mark and the copy are placed before the split
that reads the copy. The returned graph has no marks. `copies` of the returned graph maps each copy
to its original.

The scheduler's struct is private and differs between versions, so the graph in it is recognised by
its content. The scheduler's graph is a `ggml_cgraph` with readable lists, and its nodes without
marks and copies are the given nodes.

A pipelined scheduler keeps several copies of each tensor, one for each run that may be in flight.
All these copies are leafs of the scheduler's graph, so that no copy is overwritten. In the returned
graph, the copy that this run makes is a node and not a leaf. The copies of other runs stay leafs,
as if the host wrote them. The leafs of the scheduler's graph have a second entry for each tensor
that the host writes, even if the tensor is a node, like a parameter. The returned graph lists such
a tensor once.

The cost is O(nodes). This module makes no rows (`allocsim.systems.ggml.capture.graph_rows` does)
and does not determine the backend of a split.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.readable_memory import ReadableMemory
from allocsim.systems.ggml.access.structs import GRAPH, TENSOR, graph_record, pointers, records
from allocsim.systems.ggml.ggml_dump import NONE

STRUCT_WORDS: Final = 128
"""How many words of a `ggml_backend_sched` are searched for its graph (word 43 in 0.26.0)."""

MOST_COPIES: Final = 64
"""The most nodes, with marks and copies, per node of a graph; a split has at most 30 inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledGraph:
    """The addresses of the tensors of a scheduler's graph."""

    word: int
    """The index of the 8-byte word of the scheduler at which its `ggml_cgraph` begins."""
    nodes: list[int]
    """The nodes in order, with copies and without marks."""
    leafs: list[int]
    """The leafs in order, without tensors that are also nodes."""
    copies: dict[int, int]
    """The address of each copy -> the address of its original."""


def scheduled_graph(
    library: Library, scheduler: int, nodes: Sequence[int], *, word: int | None = None
) -> ScheduledGraph:
    """Return the graph of a scheduler; raise EngineError if it has no plan of these nodes. `word`
    is the word at which the graph of another scheduler of this library was found. If `word` is
    given, pointers are first followed unchecked. Pass `word` only for a scheduler that the caller
    made.
    """
    if word is not None:
        known = _graph_at(library, None, scheduler, word, nodes)
        if known is not None:
            return known
    memory = ReadableMemory.now()
    if memory.outside([scheduler], 8 * STRUCT_WORDS):
        raise EngineError(f"{scheduler:#x} is no scheduler: this process cannot read {8 * STRUCT_WORDS} bytes there")
    for place in range(STRUCT_WORDS - GRAPH.itemsize // 8):
        found = _graph_at(library, memory, scheduler, place, nodes)
        if found is not None:
            return found
    raise EngineError(f"the scheduler at {scheduler:#x} holds no plan of this graph; was it scheduled?")


def _graph_at(
    library: Library, memory: ReadableMemory | None, scheduler: int, word: int, nodes: Sequence[int]
) -> ScheduledGraph | None:
    head = graph_record(scheduler + 8 * word)
    room, count, leaf_count = (int(head[column]) for column in ("size", "n_nodes", "n_leafs"))
    if not (len(nodes) <= count <= min(room, MOST_COPIES * (len(nodes) + 1)) and 0 <= leaf_count <= room):
        return None
    if memory and memory.outside([int(head["nodes"]), int(head["leafs"])], 8 * room):
        return None
    inside, leafs = pointers(int(head["nodes"]), count), pointers(int(head["leafs"]), leaf_count)
    if memory and memory.outside([*inside, *leafs], TENSOR.itemsize):
        return None
    given = set(nodes)
    if [node for node in inside if node in given] != list(nodes):
        return None
    table = records(inside)
    copies: dict[int, int] = {}
    marks: set[int] = set()
    for place, node in enumerate(inside):
        if node in given:
            continue
        if _is_mark(library, table[place]) and place + 1 < count and inside[place + 1] not in given:
            marks.add(node)
            copies[inside[place + 1]] = int(table[place]["src"][0])
        elif node not in copies:
            return None
    return ScheduledGraph(
        word=word,
        nodes=[node for node in inside if node not in marks],
        leafs=[leaf for leaf in dict.fromkeys(leafs) if leaf not in copies and leaf not in given],
        copies=copies,
    )


def _is_mark(library: Library, row: NDArray[Any] | np.void) -> bool:
    """Return whether a tensor is an op-NONE view of its one source."""
    sources = row["src"].tolist()
    return int(row["op"]) == library.ops[NONE] and bool(row["view_src"]) and bool(sources[0]) and not any(sources[1:])
