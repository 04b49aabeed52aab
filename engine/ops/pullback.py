"""The reverse walk over a list of nodes, by the derivative rules of the op table.

It goes from gradients of some tensors to gradients of the tensors that those were made from.

Conventions
-----------
* `order` holds nodes, sources before what is made of them. Nodes are walked in reverse; the
  arguments of each, left to right; the rule builds one contribution for each argument that needs a
  gradient.
* The first contribution to a gradient *is* the gradient, without a copy; further ones are
  `add(gradient, contribution)`, through a cast to f32 and back where the dtype is one of storage
  only.
* `image` says what stands for a node in the rules: itself, or the same value computed again
  (gradient checkpointing).

It is the one walk there is: the backward pass (`engine.autodiff`), forward mode, and derivatives
that are defined by the parts of an op (`by_parts`) all use it. What this module does not see: what
runs, kernels, memory.
"""

from collections.abc import Callable, Collection, Iterable

from allocsim.errors import EngineError
from engine.ops.rule import Derivative, Tensor
from engine.ops.shapes import FLOATS

Image = Callable[[Tensor], Tensor]
Parts = Callable[..., Tensor]
"""(node, *sources) -> the value of the node, built of simpler ops."""


def needing(order: Iterable[Tensor], wanted: Iterable[Tensor]) -> set[Tensor]:
    """Return `wanted` and all nodes of `order` that a gradient must pass on its way there.

    Raises EngineError if one of them is a mutation of something it reads: what it destroyed cannot
    be differentiated.
    """
    needed = set(wanted)
    for node in order:
        rule = node.rule
        sources = zip(rule.arguments, node.sources, strict=False)
        if not any(source in needed and argument not in rule.constant for argument, source in sources):
            continue
        if rule.mutates is not None and rule.arguments[rule.mutates] not in rule.unread:
            raise EngineError(
                f"{node.kind} changes {node.storage} in place and needs a gradient; use an op that does not"
            )
        needed.add(node)
    return needed


def pull(
    order: "Collection[Tensor]",
    needed: "Collection[Tensor]",
    gradients: "dict[Tensor, Tensor]",
    *,
    accumulators: "Collection[Tensor]" = (),
    image: "Image | None" = None,
    expand: "Callable[[Tensor], None] | None" = None,
) -> "dict[Tensor, int]":
    """Walk `order` backwards, adding to `gradients`; return how many contributions each tensor got.

    Args:
        order: nodes, sources first.
        needed: tensors that get a gradient (see `needing`).
        gradients: tensor -> its gradient so far; changed.
        accumulators: tensors whose entry in `gradients` is a state that contributions are added
            into.
        image: what stands for a node in the rules.
        expand: called with each gradient as it grows.

    Raises:
        EngineError: an argument on the way has no rule, or its rule does not fit.
    """
    parts: dict[Tensor, int] = {}
    for node in reversed(tuple(order)):
        if node not in needed or node not in gradients:
            continue
        rule = node.rule
        stand_in = node if image is None else image(node)
        upstream = gradients[node]
        if rule.prepare is not None:
            with node.graph.scope(f"grad.{node.name}", layer=node.layer):
                upstream = rule.prepare(stand_in, upstream)
        for argument, source in zip(rule.arguments, node.sources, strict=False):
            if source in needed and argument not in rule.constant:
                parts[source] = parts.get(source, 0) + 1
                with node.graph.scope(f"grad.{source.name}", layer=node.layer):
                    gradient = contribution(stand_in, argument, source, upstream)
                    if source in accumulators:
                        gradient = _accumulated(gradients[source], gradient, node.graph.unused(f"sum_{parts[source]}"))
                    elif source in gradients:
                        gradient = _sum(gradients[source], gradient, node.graph.unused(f"sum_{parts[source]}"))
                gradients[source] = gradient
                if expand is not None:
                    expand(gradient)
    return parts


def by_parts(argument: str, parts: Parts) -> Derivative:
    """Return the derivative for one argument that follows from the parts of the op.

    `parts(node, *sources)` builds the value of the node out of simpler ops; their rules do the
    rest, to any order.
    """

    def rule(node: Tensor, grad: Tensor) -> Tensor:
        graph = node.graph
        position = node.rule.arguments.index(argument)
        source = node.sources[position]
        start = len(graph.tensors)
        probe = graph.op("permute", source, axes=tuple(range(len(source.shape))))
        whole = parts(node, *node.sources[:position], probe, *node.sources[position + 1 :])
        order = graph.tensors[start + 1 :]
        gradients = {whole: grad}
        pull(order, needing(order, [probe]), gradients)
        return gradients[probe]

    return rule


def contribution(node: Tensor, argument: str, source: Tensor, grad: Tensor) -> Tensor:
    """Return what the rule adds to the gradient of one argument.

    Raises EngineError if there is none, or it does not fit.
    """
    rule = node.rule.derivatives.get(argument)
    if rule is None:
        raise EngineError(f"{node.kind} has no derivative for its argument {argument!r} (of {node} by {source})")
    found = rule(node, grad)
    if found.shape != source.shape or found.dtype != source.dtype:
        raise EngineError(f"the derivative of {node.kind} for {argument!r} is {found}; {source} was to be matched")
    return found


def _accumulated(total: Tensor, more: Tensor, name: str) -> Tensor:
    """Return a state plus a contribution; a product of matrices is added by BLAS, never made."""
    if more.kind == "out_prod" and len(more.shape) == 2:
        return total.graph.op("add_out_prod", total, *more.sources, name=name)
    return total.graph.op("add_inplace", total, more, name=name)


def _sum(total: Tensor, more: Tensor, name: str) -> Tensor:
    if total.dtype in FLOATS:
        return total.graph.op("add", total, more, name=name)
    wide = (total.graph.op("cast", x, dtype="f32") for x in (total, more))
    return total.graph.op("cast", total.graph.op("add", *wide, name=name), dtype=total.dtype)
