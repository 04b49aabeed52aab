"""Find out whether known causes explain the fault of a random graph: plan and run the graph again
with these causes avoided.

Contract: `explained(ws, built, apart, known, arrange)` returns the `known` causes that the new run
avoided, if that run has no fault. A run without a fault has a surely sound plan, if the plan is
judged (`allocsim.systems.ggml.random_graphs.placed_graph`), and its outputs have the same bytes as
in a run without memory reuse. The function returns nothing if a fault remains, or if the graph has
no known cause. Two kinds of cause can be avoided:

* a kernel that is unsafe over a source (`kernel_cause`): each result that the plan placed over that
  source of such an op gets memory of its own; all other tensors keep their addresses;
* `NOT_TOLD`, if avoiding kernels is not enough: the root of each OUTPUT view is flagged OUTPUT too
  before the graph is planned.

A further, unknown cause shows as a difference that remains. If a graph has several known causes and
avoiding one of them is enough, that one is returned. The check takes a few runs and O(roots^2)
operations on arrays; it may miss a race. What this module does not see: unknown causes
(`allocsim.systems.ggml.random_graphs.graph_fuzzing`).
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
from allocsim.verdict.naming import NAMES

NOT_TOLD: Final = next(f"{row.class_} {row.party}: {row.evidence}" for row in NAMES if row.mends == ("pin",))
"""The cause of a fault in which the planner reuses memory of a view that is flagged OUTPUT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrangedGraph:
    """A graph with a plan."""

    scheduler: int
    """The scheduler that runs the graph; 0 for none."""
    addresses: Sequence[int]
    """Addresses of the tensors' structs, leafs first."""
    placed: PlacedGraph
    judged: bool = True
    """Whether the plan must be sound; if False, only the numbers are checked."""


class Arrange(Protocol):
    """A function that drops a graph's plan, flags the tensors `pins` OUTPUT, and plans it again."""

    def __call__(self, *, pins: Sequence[int] = ()) -> ArrangedGraph:
        """Return the graph with the new plan."""


def kernel_cause(op: str, slot: int | str) -> str:
    """Return the name of the cause "the kernel of `op` is unsafe over source `slot`"."""
    return f"C04 kernel: {op} over source {slot}"


def pair_of(cause: str) -> tuple[str, int] | None:
    """Return the op and source slot that a kernel's cause names; None for any other cause."""
    match = re.fullmatch(kernel_cause(r"(\w+)", r"(\d+)"), cause)
    return None if match is None else (match[1], int(match[2]))


def can_explain(cause: str) -> bool:
    """Return whether a graph can be planned and run so that this cause is avoided."""
    return cause == NOT_TOLD or pair_of(cause) is not None


def explained(
    ws: LibraryWorkspace, built: Built, apart: Mapping[int, bytes], known: Collection[str], arrange: Arrange
) -> tuple[str, ...]:
    """Return the known causes that must be avoided so that a built graph has no fault. Empty: a
    fault remains although all known causes are avoided, or the graph has no known cause.

    `apart` maps each output's step to the bytes of a run without memory reuse.
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
    """Return the known kernel causes that must be avoided so that the graph has no fault: no cause,
    one cause, or else all that the graph has. None: a fault remains even if all are avoided.
    """
    met = _without(ws, built, apart, known, arrange())
    fewer = [(), *((cause,) for cause in met)] if met is not None and len(met) > 1 else []
    return next((few for few in fewer if _without(ws, built, apart, few, arrange()) == few), met)


def _without(
    ws: LibraryWorkspace, built: Built, apart: Mapping[int, bytes], known: Collection[str], arranged: ArrangedGraph
) -> tuple[str, ...] | None:
    """Run a planned graph with its known kernel causes avoided. Return these causes if the run has
    no fault, else None.
    """
    if arranged.judged and not surely_sound(arranged.placed):
        return None
    causes = tuple(dict.fromkeys(_lay_apart(ws, arranged, known)))
    found = ran(ws, built, arranged.scheduler)
    return causes if all(found[index] == right for index, right in apart.items()) else None


def _roots_of_output_views(built: Built) -> list[int]:
    """Return the roots of the views that the recipe flags OUTPUT."""
    roots = records(built.tensors)["view_src"].tolist()
    return [roots[index] for index in built.recipe.outputs if roots[index]]


def _lay_apart(ws: LibraryWorkspace, arranged: ArrangedGraph, known: Collection[str]) -> list[str]:
    """Move each result that the plan placed over an unsafe source to memory of its own. Return the
    known kernel causes that name these sources.
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
