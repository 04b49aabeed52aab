"""Which nodes a stage of a pipeline has, and in which order it runs its microbatches.

Cuts. Nodes are of a layer in the order of the list: a node without one is of the layer before it
(before the first, of the first), and none is of a layer before that of a node before it. Stages are
runs of whole layers; of all ways to cut, the largest load of a stage is least; among these the
first cut is earliest, and what is behind it is cut by the same rule. `BALANCES` says what a load
is.

Order. A pass is the forward or the backward pass of one microbatch. `SCHEDULES` has one row a
schedule: (stage, stages, microbatches) -> the passes of that stage.

| schedule | passes | microbatches in flight |
|---|---|---|
| gpipe | all forward, then all backward | microbatches |
| 1f1b | stages - stage - 1 forward, then one forward, one backward in turns | stages - stage |

In both the backward passes go in the order of the microbatches: so gradients are summed.

Source: Huang et al. 2019 (GPipe, arXiv:1811.06965); Narayanan et al. 2021 (1F1B, without
interleaving, arXiv:2104.04473).

What this module does not see: graphs that are recorded, messages, and waits.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Final, Literal, NamedTuple

from allocsim.errors import EngineError
from allocsim.model import Role
from engine.graph import Tensor


class Pass(NamedTuple):
    """One pass of one microbatch through a stage."""

    does: Literal["forward", "backward"]
    microbatch: int


def _gpipe(stage: int, stages: int, microbatches: int) -> tuple[Pass, ...]:
    del stage, stages
    numbers = range(microbatches)
    return (*(Pass("forward", number) for number in numbers), *(Pass("backward", number) for number in numbers))


def _one_forward_one_backward(stage: int, stages: int, microbatches: int) -> tuple[Pass, ...]:
    ahead = min(stages - stage - 1, microbatches)
    passes = [Pass("forward", number) for number in range(ahead)]
    for number in range(microbatches):
        passes += [Pass("forward", number + ahead)] if number + ahead < microbatches else []
        passes.append(Pass("backward", number))
    return tuple(passes)


SCHEDULES: Final[dict[str, Callable[[int, int, int], tuple[Pass, ...]]]] = {
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
}
"""Name -> (stage, stages, microbatches) -> passes."""


def _parameters(nodes: Sequence[Tensor], seen: set[Tensor]) -> int:
    found = {source for node in nodes for source in node.sources if source.role == Role.PARAMETER} - seen
    seen |= found
    return sum(prod(leaf.shape) for leaf in found)


def _work(nodes: Sequence[Tensor], seen: set[Tensor]) -> int:
    del seen
    made = ((node, _SUMMED.get(str(node.kind))) for node in nodes if not node.rule.view)
    return sum(prod(node.shape) * (1 if summed is None else summed(node)) for node, summed in made)


_SUMMED: Final[dict[str, Callable[[Tensor], int]]] = {
    "mul_mat": lambda node: node.sources[0].shape[-1],
    "conv_2d": lambda node: prod(node.sources[1].shape[1:]),
    "attention": lambda node: 2 * node.sources[1].shape[-2],
}
"""Kind -> products that are summed for an element of the result; of other kinds one."""

BALANCES: Final[dict[str, Callable[[Sequence[Tensor], set[Tensor]], int]]] = {"parameters": _parameters, "work": _work}
"""Name -> load of a layer: elements of the parameters that no layer before it has, or multiply-adds
of products and elements that all other ops make."""


def layers_of(nodes: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the nodes by layer."""
    latest = next((node.layer for node in nodes if node.layer is not None), 0)
    rows: dict[int, list[Tensor]] = {}
    for node in nodes:
        latest = latest if node.layer is None else max(latest, node.layer)
        rows.setdefault(latest, []).append(node)
    return list(rows.values())


def cuts(nodes: Sequence[Tensor], stages: int, balance: str) -> list[list[Tensor]]:
    """Return the nodes of each stage; EngineError for too few layers. O(layers^2 x stages)."""
    layers, seen = layers_of(nodes), set[Tensor]()
    if len(layers) < stages:
        raise EngineError(f"{stages} stages of a graph of {len(layers)} layers: a stage is at least one layer")
    loads = [BALANCES[balance](layer, seen) for layer in layers]
    return [
        [node for layer in layers[start:stop] for node in layer] for start, stop in pairwise(_bounds(loads, stages))
    ]


def _bounds(loads: Sequence[int], parts: int) -> tuple[int, ...]:
    """Return where runs of loads begin, and where the last ends: with the least largest sum, and
    among equal ones the earliest.
    """
    best: Mapping[int, tuple[int, tuple[int, ...]]] = {
        start: (sum(loads[start:]), (start, len(loads))) for start in range(len(loads))
    }
    for left in range(1, parts):
        best = {
            start: min(
                (max(sum(loads[start:stop]), best[stop][0]), (start, *best[stop][1]))
                for stop in range(start + 1, len(loads) - left + 1)
            )
            for start in range(len(loads) - left)
        }
    return best[0][1]
