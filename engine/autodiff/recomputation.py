"""Which forward values to keep for the backward pass, and what that saves.

    graph.expand(loss)
    grads = backward(graph, loss, checkpoints=checkpoint.crossing(graph))

A segment is what lies between checkpoints: here a layer. `engine.autodiff.backward` computes it
again when the walk back reaches it (Chen et al. 2016, arXiv:1604.06174). Only what a derivative
reads is computed again, so the last product of a layer is not. What is saved is a matter for the
planner: compare `arena_nbytes` of two plans.

What this module does not see: kernels, data, time.
"""

from allocsim.model import Plan
from engine.graph import Graph, Tensor


def crossing(graph: Graph, every: int = 1) -> tuple[Tensor, ...]:
    """Return the outputs of layers, in order.

    These are the nodes that a later layer reads, or what follows all layers.

    The output of the last layer is one of them, so that its inner values are not held while the
    loss is computed, which is where the memory of a model with many classes peaks.

    Args:
        graph: its order must hold the whole forward pass (`Graph.expand`), and layers must be
            marked (`Graph.scope(layer=...)`).
        every: keep only what leaves every so manyth layer; segments are as long.
    """
    found = [
        source
        for node in graph.nodes
        if node.stage == "forward"
        for source in node.sources
        if not source.is_leaf and source.layer is not None and (node.layer is None or source.layer < node.layer)
    ]
    return tuple(tensor for tensor in dict.fromkeys(found) if ((tensor.layer or 0) + 1) % every == 0)


def arena_nbytes(plan: Plan) -> int:
    """Return the bytes of all arenas of a plan, up to the end of the highest slot of each."""
    ends = plan.offset + plan.nbytes
    return sum(int(ends[plan.arena == index].max(initial=0)) for index in range(len(plan.program.arenas)))
