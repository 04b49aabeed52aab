"""Reverse-mode derivatives that extend the graph: backward nodes are ordinary nodes, appended after the forward ones.

The construction is ggml's (`ggml_build_backward_expand`), so that order, sharing and hence memory plans are the same:

* *Needs a gradient* propagates forward: a parameter asked for does; a node does if a source does, except through an argument
  that is `constant` in its rule. Only what needs gradients is built.
* Forward nodes are walked in reverse order; for each argument, left to right, the rule builds one contribution.
* The first contribution to a gradient *is* the gradient, without a copy: two tensors may share one gradient tensor (both operands
  of `add`), and a parameter may share its gradient with the upstream tensor. Further ones are `add(gradient, contribution)`.
* With `accumulate`, a parameter's gradient starts as a state tensor `acc.<name>` that `add_inplace` changes; the host resets it. A
  contribution that is a product of matrices is not made first: `add_out_prod` adds it where it belongs.
* The seed is an input of shape [1] that the host writes each run: 1.0 for plain gradients.

What this module does not see: kernels, buffers, data. Time is linear in the number of nodes; nothing recurses.
"""

from collections.abc import Iterable

from allocsim.errors import EngineError
from engine.graph import Graph, Tensor

SEED = "loss_grad"
"""Name of the input that seeds the backward pass."""


def backward(
    graph: Graph,
    loss: Tensor,
    *,
    parameters: Iterable[Tensor] | None = None,
    seed: Tensor | None = None,
    accumulate: bool = False,
) -> dict[Tensor, Tensor]:
    """Append the derivative of `loss` (shape [1]) and return parameter -> gradient tensor, in the order of `parameters`.

    Args:
        graph: the graph of `loss`; `loss` is expanded if it is not yet part of the order.
        loss: what to differentiate.
        parameters: tensors to differentiate by, any leafs; all trainable parameters by default.
        seed: gradient of the loss; a new input `loss_grad` by default.
        accumulate: add into state tensors that outlive the run instead of fresh memory.

    Raises:
        EngineError: the loss is no scalar or reaches none of the parameters; an argument on the way has no rule; a forward
            mutation would need a gradient.
    """
    wanted = tuple(graph.trainable if parameters is None else parameters)
    _check(graph, loss, wanted)
    graph.expand(loss)
    forward = tuple(graph.nodes)
    needed = _needing(forward, wanted)
    if loss not in needed:
        raise EngineError(f"{loss} depends on none of the {len(wanted)} parameters asked for")
    with graph.scope(stage="backward"):
        start = graph.input(SEED, (1,), loss.dtype) if seed is None else seed
        gradients: dict[Tensor, Tensor] = {loss: start}
        accumulators = {p: graph.state(f"acc.{p.name}", p.shape, p.dtype, reset=True) for p in wanted if accumulate}
        gradients.update(accumulators)
        parts: dict[Tensor, int] = {}
        for node in reversed(forward):
            if node not in needed or node not in gradients:
                continue
            for argument, source in zip(node.rule.arguments, node.sources, strict=False):
                if source in needed and argument not in node.rule.constant:
                    parts[source] = parts.get(source, 0) + 1
                    with graph.scope(f"grad.{source.name}", layer=node.layer):
                        gradient = _derivative(node, argument, source, gradients[node])
                        if source in gradients:
                            kind, added = "add", (gradient,)
                            if source in accumulators:
                                fused = gradient.kind == "out_prod" and len(gradient.shape) == 2
                                kind, added = ("add_out_prod", gradient.sources) if fused else ("add_inplace", (gradient,))
                            gradient = graph.op(kind, gradients[source], *added, name=f"sum_{parts[source]}")
                    gradients[source] = gradient
                    graph.expand(gradient)
    unreached = next((p for p in wanted if p not in parts), None)
    if unreached is not None:
        raise EngineError(f"{loss} does not depend on {unreached}; it has no gradient")
    found = {parameter: gradients[parameter] for parameter in wanted}
    graph.gradients.update(found)
    return found


def _derivative(node: Tensor, argument: str, source: Tensor, grad: Tensor) -> Tensor:
    rule = node.rule.derivatives.get(argument)
    if rule is None:
        raise EngineError(f"{node.kind} has no derivative for its argument {argument!r} (of {node} by {source})")
    contribution = rule(node, grad)
    if contribution.shape != source.shape:
        raise EngineError(f"the derivative of {node.kind} for {argument!r} is {contribution}; {source} was to be matched")
    return contribution


def _check(graph: Graph, loss: Tensor, wanted: tuple[Tensor, ...]) -> None:
    if loss.graph is not graph:
        raise EngineError(f"{loss} belongs to graph {loss.graph.name!r}, not {graph.name!r}")
    if loss.shape != (1,):
        raise EngineError(f"{loss} must have shape (1,) to be differentiated; take sum of it")
    if not wanted:
        raise EngineError(f"graph {graph.name!r} has no trainable parameter to differentiate {loss} by")
    if graph.gradients:
        raise EngineError(f"graph {graph.name!r} has a backward pass already; build another graph")
    for parameter in wanted:
        if not parameter.is_leaf or parameter.dtype != loss.dtype:
            raise EngineError(f"{parameter} is no leaf of dtype {loss.dtype}; only those have gradients to return")


def _needing(forward: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> set[Tensor]:
    needed = set(wanted)
    for node in forward:
        sources = zip(node.rule.arguments, node.sources, strict=False)
        if not any(source in needed and argument not in node.rule.constant for argument, source in sources):
            continue
        if node.rule.mutates is not None:
            raise EngineError(f"{node.kind} changes {node.storage} in place and needs a gradient; use an op that does not")
        needed.add(node)
    return needed
