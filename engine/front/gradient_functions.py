"""The history of a tensor, to walk: which op made it, and of what.

    y.grad_fn                        # <GradientFunction mul f32[3]>
    y.grad_fn.next_functions         # one for each operand, None for what needs no gradient

What this module does not see: gradients, and how anything is computed.
"""

from typing import Any

from engine.front.record import Node


class GradientFunction:
    """One op of a history that a backward pass goes through, or a leaf that collects a gradient."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def kind(self) -> str:
        """The op that made the value (docs/ops.md); `leaf` for what no op made."""
        return self._node.kind or "leaf"

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the op."""
        return dict(self._node.recipe.params) if self._node.recipe is not None else {}

    @property
    def variable(self) -> Any:
        """The tensor that collects the gradient: a leaf, or a result that keeps its own."""
        return self._node.leaf_of

    @property
    def next_functions(self) -> "tuple[GradientFunction | None, ...]":
        """One for each operand, in order; None for what needs no gradient."""
        return tuple(GradientFunction(source) if source.needs_grad else None for source in self._node.sources)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradientFunction) and other._node is self._node

    def __hash__(self) -> int:
        return hash(self._node)

    def __repr__(self) -> str:
        kept = f" {self._node.name}" if self._node.name else ""
        return f"<GradientFunction {self.kind}{kept} {self._node.dtype}[{', '.join(map(str, self._node.shape))}]>"
