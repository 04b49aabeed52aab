"""A recording: what the function of a model computes, kept for a program.

While it is `tracking` (`engine.front.record`), every value that follows from columns and parameters
keeps its sources, whether it needs a gradient or not, and `unread` refuses to have its numbers
read: what followed from them would be the same in every run of the program.

What this module does not see: graphs (`engine.front.recorded_models` makes them).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from itertools import count

from allocsim.errors import EngineError
from engine.front.record import ArrayLayout, CallRecipe, Node, StorageHistory, tracking
from engine.kernels.binding import Array


@dataclass(slots=True, eq=False)
class Recording:
    """What a model's function computes: the values that follow from its columns and parameters."""

    given: Mapping[Node, str]
    """Columns, parameters and states, by name."""
    key: Node | None = None
    """What random ops read: i32 [1], drawn anew for each step."""
    states: frozenset[Node] = frozenset()
    """Those of what is given that may be written."""
    drawn: Iterator[int] = field(default_factory=count)
    """Numbers the random ops that name no seed."""
    known: set[Node] = field(init=False)
    flowing: bool = True
    """Whether gradients flow through what is computed now."""
    scope: tuple[str, int | None] = ("", None)
    scopes: dict[Node, tuple[str, int | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = set(self.given)

    def silent(self) -> "Recording":
        """Return the same recording, through which no gradient flows."""
        twin = copy(self)
        twin.flowing = False
        return twin

    def kept(
        self,
        array: Array,
        laid: ArrayLayout,
        shared: StorageHistory | None,
        recipe: CallRecipe,
        sources: "tuple[Node, ...]",
    ) -> Node:
        """Return the node of an op that was just computed.

        Raises EngineError where it reads a tensor that wants a gradient and is no parameter.
        """
        for source in sources:
            if source.needs_grad and source not in self.known:
                raise EngineError(
                    f"{source} wants a gradient and is no parameter of the model that is recorded; give it as "
                    "one, or detach it"
                )
        if not any(source in self.known for source in sources):
            return Node(array, laid, shared)
        flows = zip(sources, recipe.flows, strict=False)
        needs = self.flowing and any(source.needs_grad and flowing for source, flowing in flows)
        node = Node(array, laid, shared, recipe, sources, needs)
        self.known.add(node)
        self.scopes[node] = self.scope
        return node


def followed(node: Node) -> bool:
    """Whether a model is recorded and `node` follows from its columns or parameters."""
    now = tracking.get()
    return isinstance(now, Recording) and node in now.known


def unchanged(node: Node, op: str) -> None:
    """Raise EngineError if a model is recorded and `node` is a column or a parameter of it, whose
    bytes `op` would change.
    """
    now = tracking.get()
    if isinstance(now, Recording) and node in now.given and node not in now.states:
        raise EngineError(
            f"{op} of {node}: a column or a parameter is not changed while the model is recorded; change a "
            "copy (x * 1.0)"
        )


def unread(node: Node, what: str) -> None:
    """Raise EngineError if a model is recorded and `node` follows from its columns or parameters.

    `what` is done with its numbers.
    """
    if followed(node):
        raise EngineError(
            f"{what} of {node} reads its numbers while the model is recorded; they would be the same in every run"
        )


@contextmanager
def scope(prefix: str, *, layer: int | None = None) -> Iterator[None]:
    """Put `prefix.` before the names of what a recorded model computes inside, and mark it with
    `layer`.

    Elsewhere it does nothing. Scopes nest.
    """
    now = tracking.get()
    if not isinstance(now, Recording):
        yield
        return
    outer = now.scope
    now.scope = ".".join(part for part in (outer[0], prefix) if part), outer[1] if layer is None else layer
    try:
        yield
    finally:
        now.scope = outer
