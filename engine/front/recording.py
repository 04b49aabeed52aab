"""A recording: what the function of a model computes, kept for a program.

While it is `tracking` (`engine.front.record`), every value that follows from columns and parameters
keeps its sources, whether it needs a gradient or not, and `unread` refuses to have its numbers
read: what followed from them would be the same in every run of the program.

What this module does not see: graphs (`engine.front.recorded_models` makes them).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count

from allocsim.errors import EngineError
from engine.front.record import ArrayLayout, CallRecipe, Node, StorageHistory, tracking
from engine.kernels.binding import Array


class Recording:
    """What a model's function computes: the values that follow from its columns and parameters."""

    __slots__ = ("drawn", "flowing", "given", "key", "known", "scope", "scopes", "states")

    def __init__(
        self, given: Mapping[Node, str], key: Node | None = None, states: frozenset[Node] = frozenset()
    ) -> None:
        self.key = key
        """What random ops read: i32 [1], drawn anew for each step."""
        self.drawn = count()
        """Numbers the random ops that name no seed."""
        self.given = given
        """Columns, parameters and states, by name."""
        self.states = states
        """Those of them that may be written."""
        self.known = set(given)
        self.flowing = True
        """Whether gradients flow through what is computed now."""
        self.scope: tuple[str, int | None] = ("", None)
        self.scopes: dict[Node, tuple[str, int | None]] = {}

    def silent(self) -> "Recording":
        """Return the same recording, through which no gradient flows."""
        twin = Recording.__new__(Recording)
        twin.given, twin.known, twin.scope, twin.scopes = self.given, self.known, self.scope, self.scopes
        twin.key, twin.drawn, twin.states = self.key, self.drawn, self.states
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
    now = tracking.get()
    if isinstance(now, Recording) and node in now.known:
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
