"""What the front remembers: one `Node` for each value, computed at once by the engine's own kernel.

A node is SSA: one *version* of one *storage*. Whatever changes bytes in place raises the version of the storage; nodes that were made
before keep theirs, and `stale` tells that the value they stand for is gone. A node is a *leaf* (no kind), or the result of an op of
`engine.ops.OPS` over other nodes; a view shares array memory and storage with its source. Arrays have at least one dimension, as
everywhere in the engine.

Only nodes that need a gradient keep their sources: what does not is a constant to whatever uses it, and its history is freed.

What this module does not see: tensors people hold, gradients, plans.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from allocsim.errors import EngineError
from engine.kernels import KERNELS
from engine.kernels.binding import Array, Bind
from engine.ops import OPS, Layout, Rule

if TYPE_CHECKING:
    from engine.graph import Tensor as GraphTensor

DTYPES: Final[Mapping[Any, str]] = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
"""numpy dtype -> the engine's name of it; the front has no others."""


class Storage:
    """The history of some bytes."""

    __slots__ = ("changed_by", "rebased", "version")

    def __init__(self) -> None:
        self.version = 0
        """Changes in place so far."""
        self.changed_by = ""
        """The last of them."""
        self.rebased = 0
        """The changes that gradients flow through: views made before one of these have lost their history."""


class Node:
    """One value, immutable as far as gradients are concerned; compared by identity."""

    __slots__ = ("array", "dtype", "kind", "leaf_of", "name", "needs_grad", "params", "rebased", "sources", "storage", "version")

    def __init__(
        self,
        array: Array,
        storage: Storage,
        *,
        kind: str | None = None,
        sources: "tuple[Node, ...]" = (),
        params: Mapping[str, Any] | None = None,
        needs_grad: bool = False,
        name: str = "",
    ) -> None:
        self.array = array
        self.storage = storage
        self.version = storage.version
        self.rebased: int | None = storage.rebased
        """Changes that gradients flow through when it was made; None of what is detached and wants to know of none."""
        self.dtype = DTYPES[array.dtype]
        self.kind = kind
        self.sources = sources
        self.params: Mapping[str, Any] = params or {}
        self.needs_grad = needs_grad
        self.leaf_of: Any = None
        """Who collects the gradient of a leaf."""
        self.name = name

    @property
    def stale(self) -> bool:
        """Whether the bytes hold another version by now."""
        return self.version != self.storage.version

    # what a shape rule asks of a source
    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths, at least one."""
        return self.array.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes."""
        return self.array.strides

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie densely in row-major order."""
        return self.array.flags.c_contiguous

    def __repr__(self) -> str:
        return f"{self.name or self.kind or 'constant'} {self.dtype}[{', '.join(map(str, self.shape))}]"


_VIEWS: Final[Mapping[str, Callable[[Array, Layout, Mapping[str, Any]], Array]]] = {
    "reshape": lambda x, layout, _: x.reshape(layout.shape, copy=False),
    "permute": lambda x, _, params: x.transpose(params["axes"]),
    "transpose": lambda x, *_: x.swapaxes(-1, -2),
}
"""View op -> the same view by numpy."""

_ROWS: Final[Mapping[str, tuple[Rule, Bind | None, tuple[bool, ...]]]] = {
    kind: (
        rule,
        None if rule.view else next(iter(KERNELS[kind].values())).bind,
        tuple(argument not in rule.constant for argument in rule.arguments),
    )
    for kind, rule in OPS.items()
    if rule.mutates is None and (kind in _VIEWS or not rule.view)
}
"""Kind -> (rule, binding of its default kernel, whether a gradient can flow through each argument)."""

KNOWN_LAYOUTS: Final = 4096
_layouts: Final[dict[Any, Layout]] = {}
"""What shape rules said of ops without parameters: asking again takes as long as a kernel on a scalar."""


def apply(kind: str, sources: tuple[Node, ...], params: dict[str, Any] | None = None, *, track: bool = True) -> Node:
    """Compute an op now and return its node; it keeps history only if `track` and a source needs a gradient.

    Raises EngineError if the rule of `kind` refuses the operands.
    """
    rule, bind, flows = _ROWS[kind]
    filled = {} if params is None else params
    known = None if filled or bind is None else (kind, *[(source.array.shape, source.dtype) for source in sources])
    layout = _layouts.get(known) if known else None
    if layout is None:
        try:
            layout = rule.shape(cast("tuple[GraphTensor, ...]", sources), filled)
        except EngineError as error:
            raise EngineError(f"{kind}({', '.join(map(str, sources))}): {error}") from None
        if known and len(_layouts) < KNOWN_LAYOUTS:
            _layouts[known] = layout
    if bind is None:
        array, storage = _VIEWS[kind](sources[0].array, layout, filled), sources[0].storage
    else:
        array, storage = np.empty(layout.shape, sources[0].array.dtype), Storage()
        function, arguments = bind(filled, tuple([source.array for source in sources]), (array,))
        with np.errstate(all="ignore"):
            function(*arguments)
    if track:
        for source, flowing in zip(sources, flows, strict=False):
            if source.needs_grad and flowing:
                return Node(array, storage, kind=kind, sources=sources, params=filled, needs_grad=True)
    node = Node(array, storage)
    if bind is None and sources[0].rebased is None:
        node.rebased = None
    return node


def constant(array: Array, storage: Storage | None = None) -> Node:
    """Return a leaf without a gradient over an array of at least one dimension."""
    return Node(array, storage or Storage())


def alias(node: Node) -> Node:
    """Return the present version of a node whose storage changed outside the history: the same bytes, the gradient passed on."""
    axes = tuple(range(node.array.ndim))
    params = {"axes": axes}
    return Node(node.array, node.storage, kind="permute", sources=(node,), params=params, needs_grad=True, name=node.name)


def history(end: Node) -> list[Node]:
    """Return `end` and all it depends on, sources first; what needs no gradient is a leaf. O(nodes); no recursion."""
    order: list[Node] = []
    seen = {end}
    stack = [(end, iter(end.sources))]
    while stack:
        node, pending = stack[-1]
        for source in pending:
            if source not in seen:
                seen.add(source)
                stack.append((source, iter(source.sources)))
                break
        else:
            order.append(node)
            stack.pop()
    return order
