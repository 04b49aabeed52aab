"""A backward pass op by op, as the front computes everything: nothing is planned.

It takes the same templates in the same order as the planned pass (`engine.front.reverse`), to the
same bits, and is what runs where somebody looks in between: gradients that are differentiated
again, hooks on results, and `detect_anomaly`. Each op is applied at once and keeps its history,
which costs the front's time for each op and as much memory as there are gradients.

What this module does not see: plans, tensors people hold.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import numpy as np

from allocsim.errors import EngineError
from engine.front.extension import GRAD, NODE, SOURCE, template
from engine.front.record import Node, apply, history, tracking
from engine.ops.shapes import FLOATS

anomalies: Final[ContextVar[bool]] = ContextVar("anomalies", default=False)
"""Whether backward passes look for the op that makes the first NaN or infinity."""


@contextmanager
def detect_anomaly() -> Iterator[None]:
    """Let backward passes inside name the op that made the first number that is not finite.

    In the forward values first, then in the gradients; the pass ends with an EngineError there.
    """
    token = anomalies.set(True)
    try:
        yield
    finally:
        anomalies.reset(token)


def recorded_gradients(end: Node, seed: Node) -> list[tuple[Node, Node]]:
    """Return (leaf, its gradient as a node) for each leaf `end` depends on that needs one, and for
    each result that keeps its own; errors as of `all_gradients`.
    """
    found = all_gradients(end, seed)
    wanted = (node for node in found if node.needs_grad and (node.recipe is None or node.leaf_of is not None))
    return [(node, found[node]) for node in sorted(wanted, key=lambda node: node.serial)]


def all_gradients(end: Node, seed: Node) -> dict[Node, Node]:
    """Return the gradient, as a node, of every value that `end` depends on and that needs one.

    Raises EngineError if a derivative is missing, a value it needs was changed in place, a hook
    answers what does not fit, or something is not finite where that is looked for.
    """
    if end.recipe is None:
        return {end: seed}
    order, looking = history(end), anomalies.get()
    if looking:
        _check_values(order)
    found: dict[Node, Node] = {end: seed}
    for node in reversed(order):
        if node.recipe is None or node not in found:
            continue
        if node.hooks:
            found[node] = hooked(node, found[node])
        for source, more in _contributions(node, found[node]):
            if looking:
                _check_gradient(node, source, found[node], more)
            found[source] = more if source not in found else _summed(found[source], more)
    return found


def _contributions(node: Node, grad: Node) -> Iterator[tuple[Node, Node]]:
    """Yield (source, what is added to its gradient) for each source that needs a gradient.

    The order is that of the arguments of `node`.

    Raises EngineError if a rule is missing, or needs a value that was changed in place since.
    """
    recipe = node.recipe
    assert recipe is not None
    needed = tuple(k for k, source in enumerate(node.sources) if source.needs_grad and recipe.flows[k])
    made: list[Node] = []

    def resolved(reference: int) -> Node:
        if reference >= 0 or reference == GRAD:
            return grad if reference == GRAD else made[reference]
        value = node if reference == NODE else node.sources[SOURCE - reference]
        if value.stale:
            raise EngineError(changed(recipe.kind, value))
        return value

    for part in template(recipe, needed, (grad.dtype, grad.shape, grad.strides)):
        for step in part.steps:
            operands = tuple(resolved(reference) for reference in step.operands)
            made.append(apply(step.action.kind, operands, dict(step.action.params), track=tracking.get()))
        yield node.sources[part.argument], resolved(part.contribution)


def _summed(total: Node, more: Node) -> Node:
    """Return the sum of two gradients, in f32 where theirs is a dtype of storage."""
    track = tracking.get()
    if total.dtype in FLOATS:
        return apply("add", (total, more), track=track)
    wide = [apply("cast", (x,), {"dtype": "f32"}, track=track) for x in (total, more)]
    return apply("cast", (apply("add", tuple(wide), track=track),), {"dtype": total.dtype}, track=track)


def changed(op: str, node: Node) -> str:
    """Return the message for a value that a derivative needs and that is gone."""
    return (
        f"the derivative of {op} needs {node} as it was at version {node.version}; "
        f"{node.storage.changes.by} changed it in place (version {node.storage.changes.version} now)"
    )


def hooked(node: Node, gradient: Node) -> Node:
    """Return what the hooks of a value make of its gradient, one after the other.

    Raises EngineError for an answer of another shape or dtype.
    """
    for hook in tuple(node.hooks or ()):
        answer = hook(gradient)
        if answer is None:
            continue
        if answer.shape != gradient.shape or answer.dtype != gradient.dtype:
            raise EngineError(f"a hook on {node} answers {answer}; its gradient is {gradient}")
        gradient = answer
    return gradient


def _finite(node: Node) -> bool:
    return node.array.dtype.kind == "i" or bool(np.isfinite(node.array.astype(np.float64, copy=False)).all())


def _first(node: Node) -> str:
    """Return the first number that is not finite, with its place."""
    values = node.array.astype(np.float64, copy=False)
    place = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
    return f"{values[place]} at {list(place)}"


def _check_values(order: list[Node]) -> None:
    for node in order:
        if not node.stale and not _finite(node):
            made = f"{node.kind} makes it of {', '.join(map(str, node.sources))}" if node.recipe else "it was given"
            raise EngineError(f"{node} holds {_first(node)}; {made}")


def _check_gradient(node: Node, source: Node, came: Node, more: Node) -> None:
    if not _finite(more) and _finite(came):
        raise EngineError(
            f"the derivative of {node.kind} by {source} is {_first(more)}; the gradient that came in is finite"
        )
