"""Whether known causes explain the fault of a random graph: it is planned and run again without
these causes.

Contract: `explained(ws, built, apart, known, arrange)` returns the `known` causes that the new run
avoided, if that run has no fault: the plan, where it is judged, is surely sound
(`allocsim.systems.ggml.random_graphs.placed_graph`), and each output has the bytes of a run in
memory of its own for each tensor. It returns nothing if a fault remains, or if the graph met no
known cause. Two kinds of cause can be avoided:

* that of a kernel (`kernel_cause`): each result that the plan laid over that source, by such an op,
  gets memory of its own; all other tensors keep their places;
* `NOT_TOLD`, if that is not enough: the owner of the memory of each OUTPUT view is flagged OUTPUT
  too before the graph is planned.

A second cause shows as a difference that remains. Of several causes that the graph met, one is
returned if avoiding it is enough. A few runs, O(roots^2) in arrays: a race may stay hidden. What
this module does not see: unknown causes (`allocsim.systems.ggml.random_graphs.graph_fuzzing`).
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import numpy as np

from allocsim.systems.ggml.access.structs import live_record, records
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rebuilding import GAP
from allocsim.systems.ggml.random_graphs.graph_recipes import Built, ran
from allocsim.systems.ggml.random_graphs.placed_graph import PlacedGraph, lies_over, surely_sound

NOT_TOLD: Final = "C05 caller: the host reads the buffer, and the planner was not told"
"""The cause of a plan in which an OUTPUT view does not keep the memory it lies in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrangedGraph:
    """A graph that is planned."""

    scheduler: int
    """That which runs it, 0 where there is none."""
    addresses: Sequence[int]
    """Its tensors, leafs first."""
    placed: PlacedGraph
    judged: bool = True
    """Whether its plan must be sound; else its numbers alone count."""


class Arrange(Protocol):
    """Unplans a built graph, flags the tensors `pins` OUTPUT, and plans it anew."""

    def __call__(self, *, pins: Sequence[int] = ()) -> ArrangedGraph:
        """Return the graph as it is planned then."""


def kernel_cause(op: str, slot: int | str) -> str:
    """Return how a kernel that is unsafe over a source is named as a cause."""
    return f"C04 kernel: {op} over source {slot}"


def pair_of(cause: str) -> tuple[str, int] | None:
    """Return op and source slot of a kernel's cause; None of any other."""
    match = re.fullmatch(kernel_cause(r"(\w+)", r"(\d+)"), cause)
    return None if match is None else (match[1], int(match[2]))


def can_explain(cause: str) -> bool:
    """Return whether a graph can be run without this cause."""
    return cause == NOT_TOLD or pair_of(cause) is not None


def explained(
    ws: LibraryWorkspace, built: Built, apart: Mapping[int, bytes], known: Collection[str], arrange: Arrange
) -> tuple[str, ...]:
    """Return the known causes without which nothing is wrong with a built graph; none where that
    is not so.

    `apart` are the bytes of its outputs, by step, in memory of its own for each tensor.
    """
    at_once = _fewest(ws, built, apart, known, arrange)
    roots = _roots_of_output_views(built) if NOT_TOLD in known and not at_once else []
    told = _fewest(ws, built, apart, known, partial(arrange, pins=roots)) if roots else None
    return at_once or (() if told is None else (NOT_TOLD, *told))


def _fewest(
    ws: LibraryWorkspace,
    built: Built,
    apart: Mapping[int, bytes],
    known: Collection[str],
    arrange: Callable[[], ArrangedGraph],
) -> tuple[str, ...] | None:
    """Return none or one of the causes of kernels, if that is enough, else all that were met; None
    where nothing is enough.
    """
    met = _without(ws, built, apart, known, arrange())
    fewer = [(), *((cause,) for cause in met)] if met is not None and len(met) > 1 else []
    return next((few for few in fewer if _without(ws, built, apart, few, arrange()) == few), met)


def _without(
    ws: LibraryWorkspace, built: Built, apart: Mapping[int, bytes], known: Collection[str], arranged: ArrangedGraph
) -> tuple[str, ...] | None:
    """Return the known causes of kernels that a planned graph meets, if nothing is wrong without
    them; else None.
    """
    if arranged.judged and not surely_sound(arranged.placed):
        return None
    causes = tuple(dict.fromkeys(_lay_apart(ws, arranged, known)))
    found = ran(ws, built, arranged.scheduler)
    return causes if all(found[index] == right for index, right in apart.items()) else None


def _roots_of_output_views(built: Built) -> list[int]:
    """Return whose memory the OUTPUT views of a graph lie in."""
    roots = records(built.tensors)["view_src"].tolist()
    return [roots[index] for index in built.recipe.outputs if roots[index]]


def _lay_apart(ws: LibraryWorkspace, arranged: ArrangedGraph, known: Collection[str]) -> list[str]:
    """Give the results that lie as a known cause of a kernel says memory of their own; return these
    causes.
    """
    placed, pairs = arranged.placed, {pair: cause for cause in known if (pair := pair_of(cause)) is not None}
    found: dict[int, str] = {}
    for result in range(placed.leafs, len(placed.table)):
        op = placed.library.op_names[int(placed.table["op"][result])]
        for slot, source in enumerate(placed.sources[result].tolist()):
            if (
                (op, slot) in pairs
                and placed.root[result] == result
                and source >= 0
                and lies_over(placed, result, source)
            ):
                found[result] = pairs[op, slot]
    if found:
        sizes = [-(-int(placed.nbytes[result]) // GAP) * GAP for result in found]
        buffer = ws.memory(sum(sizes) + GAP)
        at = -(-ws.library.ggml_backend_buffer_get_base(buffer) // GAP) * GAP
        for result, size in zip(found, sizes, strict=True):
            for member in np.flatnonzero(placed.root == result).tolist():
                record = live_record(arranged.addresses[member])
                record["data"] = at + int(record["view_offs"])
                record["buffer"] = buffer
            at += size
    return [*found.values()]
