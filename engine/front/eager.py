"""Derivatives computed op by op and recorded, so that they can be differentiated again.

They come from the same templates as the planned backward pass.

What a rule adds is the same in both; here each op is applied at once and keeps its history, so that
the result can be differentiated again. That costs the front's time for each op and as much memory
as there are gradients; `engine.front.reverse` plans where no more is asked for.
"""

from collections.abc import Iterator

from allocsim.errors import EngineError
from engine.front.extension import GRAD, NODE, SOURCE, template
from engine.front.record import Node, apply, tracking
from engine.ops.shapes import FLOATS


def contributions(node: Node, grad: Node) -> Iterator[tuple[Node, Node]]:
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


def summed(total: Node, more: Node) -> Node:
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
