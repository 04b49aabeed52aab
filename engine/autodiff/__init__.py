"""Reverse-mode derivatives that extend the graph.

The ops that a backward pass adds are ordinary nodes, appended after the existing ones.

Reverse mode (`backward`) is ggml's construction (`ggml_build_backward_expand`), so that order,
sharing and hence memory plans are the same:

* *Needs a gradient* propagates forward: a parameter asked for does; a node does if a source does,
  except through an argument that is `constant` in its rule. Only what needs gradients is built.
* Nodes are walked in reverse order by `engine.ops.pullback`, which says how contributions are built
  and summed. Two tensors may share one gradient tensor (both operands of `add`), and a parameter
  may share its gradient with the upstream tensor.
* With `accumulate`, a parameter's gradient starts as a state tensor `acc.<name>` that `add_inplace`
  changes; `reset` says what the host writes to start a window, `keeping` what it skips within one.
  A contribution that is a product of matrices is not made first: `add_out_prod` adds it where it
  belongs.
* The seed of a loss is an input of shape [1] that the host writes each run: 1.0 for plain
  gradients. Several losses share it, and so sum. Outputs of any shape take seeds of their own
  (`seeds`).
* A graph may be differentiated again and again: a later pass sees the nodes of the earlier ones, so
  gradients of gradients need no rule of their own, only rules for the ops that the first pass is
  made of.
* With `checkpoints`, backward reads only these of the forward values, and computes the others again
  from them, segment by segment.

Forward mode (`jvp`) uses the same rules: a vector-Jacobian product is linear in its vector, and its
own transpose is the Jacobian-vector product (Townsend 2017, "A new trick for calculating Jacobian
vector products"; Bradbury et al., JAX, `linear_transpose`).

What this module does not see: kernels, buffers, data. Time is linear in the number of nodes;
nothing recurses.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from allocsim.model import Role
from engine.graph import Graph, Tensor, history
from engine.ops.pullback import Image, needing, pull
from engine.ops.shapes import FLOATS

SEED = "loss_grad"
"""Name of the input that seeds the first backward pass; later ones are numbered: `loss_grad_2`."""

STAND_INS = "again"
"""First part of the names of what gradient checkpointing computes again."""


def backward(
    graph: Graph,
    loss: Tensor | Iterable[Tensor],
    *,
    parameters: Iterable[Tensor] | None = None,
    seed: Tensor | None = None,
    seeds: Mapping[Tensor, Tensor] | None = None,
    accumulate: bool | Mapping[Tensor, Tensor] = False,
    checkpoints: Iterable[Tensor] | None = None,
) -> dict[Tensor, Tensor]:
    """Append the derivative of the losses' sum; return parameter -> gradient tensor.

    The order is that of `parameters`. A trainable parameter that the losses do not depend on has no
    gradient and is left out, as `get_grad` then returns None; one that is asked for by name must
    have one.

    Args:
        graph: the graph of the losses, which are expanded if they are not yet part of the order.
        loss: what to differentiate, or several; each of shape [1] unless it has a seed in `seeds`.
        parameters: tensors to differentiate by, leafs or not; all trainable parameters by default.
        seed: gradient of every loss without one in `seeds`, shape [1]; a new input `loss_grad` by
            default.
        seeds: output -> its gradient, of its shape and dtype.
        accumulate: add into state tensors that outlive the run instead of fresh memory; parameters
            must be leafs. A mapping of parameters gives states of the caller's own, of the shape
            and dtype of the parameter; parameters that it leaves out get new ones.
        checkpoints: forward values that backward may read beside the leafs; all of them by default.
            What comes after the last of them in order is not computed again.

    Raises:
        EngineError: a loss is no scalar and has no seed, or they reach none of the parameters, or
            not one asked for by name; an accumulator does not fit; an argument on the way has no rule; a forward mutation would need a gradient.
    """
    losses = (loss,) if isinstance(loss, Tensor) else tuple(loss)
    wanted = tuple(graph.trainable if parameters is None else parameters)
    given = dict(seeds or {})
    _check(graph, losses, given, wanted, accumulate=accumulate)
    graph.expand(*losses)
    forward = tuple(graph.nodes)
    if parameters is None and (reached := _reached(forward, losses)) & set(wanted):
        wanted = tuple(parameter for parameter in wanted if parameter in reached)
    needed = needing(forward, wanted)
    for end in losses:
        if end not in needed:
            raise EngineError(
                f"{end} depends on none of the {len(wanted)} parameters asked for{_blocked(forward, wanted, end)}"
            )
    image = None if checkpoints is None else _stand_ins(graph, forward, tuple(checkpoints))
    with graph.scope(stage="backward"):
        gradients: dict[Tensor, Tensor] = {}
        for end in dict.fromkeys(losses):
            if end not in given and seed is None:
                seed = graph.input(SEED if not graph.passes else f"{SEED}_{graph.passes + 1}", (1,), end.dtype)
            gradients[end] = given[end] if end in given else _as(seed, end)
        own = accumulate if isinstance(accumulate, Mapping) else {}
        for parameter, state in own.items():
            _accumulator(parameter, state)
        adds = isinstance(accumulate, Mapping) or accumulate
        accumulators = {
            p: own[p] if p in own else graph.state(f"acc.{p.name}", p.shape, p.dtype, reset=True)
            for p in wanted
            if adds
        }
        gradients.update(accumulators)
        parts = pull(forward, needed, gradients, accumulators=accumulators, image=image, expand=graph.expand)
    unreached = next((p for p in wanted if p not in parts and p not in losses), None)
    if unreached is not None:
        names = ", ".join(map(str, losses))
        raise EngineError(
            f"{names} does not depend on {unreached}; it has no gradient{_blocked(forward, (unreached,), losses[0])}"
        )
    found = {parameter: gradients[parameter] for parameter in wanted}
    graph.expand(*found.values())
    graph.passes += 1
    graph.adjoints.update(gradients)
    graph.accumulators.update(accumulators)
    graph.gradients.update(found)
    return found


def jvp(graph: Graph, outputs: Iterable[Tensor], tangents: Mapping[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Append, for each output, its derivative along `tangents` and return them: forward mode.

    The transposed product is built but not expanded, so none of it runs unless a tangent needs it.
    A tangent is zero where an output depends on nothing in `tangents`.

    Args:
        graph: the graph of the outputs.
        outputs: what to differentiate, of any shape.
        tangents: tensor, leaf or not -> direction of its shape and dtype.

    Raises:
        EngineError: a direction does not fit; an argument on the way, or one of the op that is its
            gradient, has no rule.
    """
    asked = tuple(outputs)
    ends = tuple(dict.fromkeys(asked))
    for tensor, direction in tangents.items():
        _matching("tangent", tensor, direction)
    for end in ends:
        _computed(end)
    order = [tensor for tensor in history(ends) if not tensor.is_leaf]
    needed = needing(order, tangents)
    start = len(graph.tensors)
    with graph.scope("jvp", stage="backward"):
        vectors = {end: graph.op("full", shape=end.shape, dtype=end.dtype) for end in ends}
        first: dict[Tensor, Tensor] = dict(vectors)
        pull(order, needed, first)
        linear = [tensor for tensor in graph.tensors[start:] if not tensor.is_leaf]
        second: dict[Tensor, Tensor] = {}
        for tensor, direction in tangents.items():
            if tensor in first:
                known = second.get(first[tensor])
                second[first[tensor]] = direction if known is None else graph.op("add", known, direction)
        pull(linear, needing(linear, vectors.values()), second)
        found = tuple(second.get(vectors[end], vectors[end]) for end in asked)
    graph.expand(*found)
    return found


def get_grad(graph: Graph, tensor: Tensor) -> Tensor | None:
    """Return a tensor's gradient in the latest backward pass, None where that did not reach it."""
    return graph.adjoints.get(tensor)


def get_grad_acc(graph: Graph, tensor: Tensor) -> Tensor | None:
    """Return the state that sums the gradient of `tensor` over runs; None without `accumulate`."""
    return graph.accumulators.get(tensor)


def reset(graph: Graph, *, seed: float = 1.0) -> dict[str, Any]:
    """Return what the host writes to start a window of accumulation.

    Zeros into every accumulator, `seed` into every seed.

    To be given to `Runtime.run` with the other inputs; runs within the window give the seeds alone
    and skip `keeping(graph)`.
    """
    dtypes = {"f32": np.float32, "f64": np.float64}
    found = {acc.name: np.zeros(acc.shape, dtypes[acc.dtype]) for acc in graph.accumulators.values() if acc.reset}
    for leaf in graph.leafs:
        if leaf.name == SEED or leaf.name.startswith(f"{SEED}_"):
            found[leaf.name] = np.full(leaf.shape, seed, dtypes[leaf.dtype])
    return found


def keeping(graph: Graph) -> tuple[str, ...]:
    """Return the names of the accumulators: what a run within a window of accumulation skips."""
    return tuple(acc.name for acc in graph.accumulators.values() if acc.reset)


def _as(seed: Tensor | None, end: Tensor) -> Tensor:
    """Return the seed in the dtype of `end`."""
    assert seed is not None
    return seed if seed.dtype == end.dtype else seed.graph.op("cast", seed, dtype=end.dtype)


def _stand_ins(graph: Graph, forward: tuple[Tensor, ...], checkpoints: tuple[Tensor, ...]) -> Image:
    """Return what gradient checkpointing puts in place of each forward node.

    Every node up to the last checkpoint is made once more, out of what its sources are read as: a
    checkpoint, a leaf, or a mutation (which cannot happen twice) as itself, any other node as its
    twin. Rules get the twin, also of a checkpoint, for they look at sources. Only what backward
    reads will run.
    """
    place = {node: position for position, node in enumerate(forward)}
    for tensor in checkpoints:
        if tensor not in place:
            raise EngineError(f"checkpoint {tensor} is no node that {graph!r} runs")
    last = max((place[tensor] for tensor in checkpoints), default=len(forward))
    kept = set(checkpoints)
    read: dict[Tensor, Tensor] = {}
    twins: dict[Tensor, Tensor] = {}
    for node in forward[: last + 1]:
        if node.rule.mutates is not None:
            continue
        with graph.scope(STAND_INS, layer=node.layer, stage="backward"):
            sources = (read.get(source, source) for source in node.sources)
            twins[node] = graph.op(str(node.kind), *sources, name=node.name, **node.params)
        if node not in kept:
            read[node] = twins[node]
    return lambda node: twins.get(node, node)


def _reached(forward: tuple[Tensor, ...], losses: Iterable[Tensor]) -> set[Tensor]:
    """Return all that gradients of the losses flow to."""
    reached = set(losses)
    for node in reversed(forward):
        if node in reached:
            arguments = zip(node.rule.arguments, node.sources, strict=False)
            reached.update(source for argument, source in arguments if argument not in node.rule.constant)
    return reached


def _accumulator(parameter: Tensor, state: Tensor) -> None:
    if state.role != Role.STATE:
        raise EngineError(f"accumulator {state} of {parameter} is no state; graph.state(..., reset=True) makes one")
    _matching("accumulator", parameter, state)


def _blocked(forward: tuple[Tensor, ...], wanted: tuple[Tensor, ...], end: Tensor) -> str:
    """Return what cuts the way from `wanted` to `end`, for a message; empty if there is no way."""
    reach: set[Tensor] = set(wanted)
    cuts: list[str] = []
    for node in forward:
        for argument, source in zip(node.rule.arguments, node.sources, strict=False):
            if source in reach:
                reach.add(node)
                if argument in node.rule.constant:
                    cuts.append(f"{node.kind} ({argument!r})")
    return f": no gradient flows through {', '.join(dict.fromkeys(cuts))}" if cuts and end in reach else ""


def _check(
    graph: Graph,
    losses: tuple[Tensor, ...],
    seeds: Mapping[Tensor, Tensor],
    wanted: tuple[Tensor, ...],
    *,
    accumulate: bool | Mapping[Tensor, Tensor],
) -> None:
    if not losses:
        raise EngineError(f"graph {graph.name!r} is given no loss to differentiate")
    for end in losses:
        if end.graph is not graph:
            raise EngineError(f"{end} belongs to graph {end.graph.name!r}, not {graph.name!r}")
        if end not in seeds and end.shape != (1,):
            raise EngineError(
                f"{end} must have shape (1,) to be differentiated; take sum of it, or give its gradient in seeds"
            )
        _computed(end)
    for end, seed in seeds.items():
        if end not in losses:
            raise EngineError(f"seeds names {end}, which is none of the losses")
        _matching("seed", end, seed)
    if not wanted:
        raise EngineError(f"graph {graph.name!r} has no trainable parameter to differentiate {losses[0]} by")
    for parameter in wanted:
        _computed(parameter)
        if accumulate is not False and not parameter.is_leaf:
            raise EngineError(f"{parameter} is no leaf; only the gradients of leafs add up over runs")


def _computed(tensor: Tensor) -> None:
    if tensor.dtype not in FLOATS:
        raise EngineError(f"{tensor} is none of {', '.join(FLOATS)}; only those are differentiated")


def _matching(what: str, tensor: Tensor, given: Tensor) -> None:
    if given.shape != tensor.shape or given.dtype != tensor.dtype:
        raise EngineError(f"{what} {given} does not fit {tensor}: shape and dtype must agree")
