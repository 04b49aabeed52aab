"""How large the whole numbers of a column may be: the rows, elements or classes that they name.

A kernel that is given a number out of range writes NaN there, since it cannot refuse. Columns are
known before a run, so they are held against what the graph does with them.

What this module does not see: indices that ops of the graph compute.
"""

from collections.abc import Callable
from typing import Final

from engine.graph import Graph, Tensor

_LIMITS: Final[dict[str, tuple[int, Callable[[Tensor], int]]]] = {
    "get_rows": (1, lambda node: node.sources[0].shape[0]),
    "set_rows": (2, lambda node: node.sources[0].shape[0]),
    "gather": (1, lambda node: node.sources[0].shape[node.params["axis"]]),
    "scatter": (1, lambda node: int(node.params["length"])),
    "cross_entropy_classes": (1, lambda node: node.sources[0].shape[-1]),
}
"""Kind -> which operand holds indices, and how many things there are to name."""

_SAME: Final = frozenset({"reshape", "view", "slice", "permute", "transpose", "cont"})
"""Kinds whose elements are their first operand's."""


def index_limits(graph: Graph) -> dict[str, tuple[int, str]]:
    """Return, for each leaf whose numbers name rows, elements or classes, the smallest count of
    these and the node that reads them; O(nodes).
    """
    found: dict[str, tuple[int, str]] = {}
    for node in graph.nodes:
        if node.kind not in _LIMITS:
            continue
        position, counted = _LIMITS[node.kind]
        leaf, count = _origin(node.sources[position]), counted(node)
        if leaf.name not in found or count < found[leaf.name][0]:
            found[leaf.name] = count, node.name
    return found


def _origin(tensor: Tensor) -> Tensor:
    """Return the tensor whose elements these are."""
    while tensor.kind in _SAME:
        tensor = tensor.sources[0]
    return tensor
