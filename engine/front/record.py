"""What the front remembers: one `Node` for each value, computed at once by the engine's own kernel.

A node is SSA: one *version* of one *storage*. Whatever changes bytes in place raises the version of
the storage; nodes that were made before keep theirs, and `stale` tells that the value they stand
for is gone. A node is a *leaf* (no recipe), or the result of an op of `engine.ops.OPS` over other
nodes; a view shares array memory and storage with its source. Arrays have at least one dimension,
as everywhere in the engine.

A `CallRecipe` is what all calls that are alike share (kind, parameters, layouts of the operands):
what the shape rule said of it, and how its kernel is called where `bind` only hands the arrays
through. Asking both anew takes several times as long as a kernel on a scalar.

Only nodes that need a gradient keep their sources: what does not is a constant to whatever uses it,
and its history is freed. While a model is *recorded* (`engine.front.recording`), all that depends
on its columns and parameters keeps its sources, and nobody may read its numbers: what followed from
them would be the same in every run of the program.

What this module does not see: tensors people hold, gradients, plans.
"""

from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from itertools import count
from threading import Lock, local
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np

from allocsim.errors import EngineError
from allocsim.model.layout import contiguous_strides
from engine.kernels import KERNELS
from engine.kernels.binding import Array, Bind, strided
from engine.kernels.moving import window
from engine.ops import OPS, REQUIRED, ResultLayout, Rule
from engine.ops.shapes import FLOATS, STORED
from engine.runtime.plan_memory import NUMPY_DTYPES

if TYPE_CHECKING:
    from engine.ops.rule import Sources

DTYPES: Final[Mapping[Any, str]] = {dtype: name for name, dtype in NUMPY_DTYPES.items()}
"""numpy dtype -> the engine's name of it; the front has no others."""


class Keeper(Protocol):
    """Who keeps the history of what is computed, where it is not kept for gradients alone: a
    recording, in a module that imports this one.
    """

    def kept(  # noqa: D102 - as there
        self,
        array: Array,
        laid: "ArrayLayout",
        shared: "StorageHistory | None",
        recipe: "CallRecipe",
        sources: "tuple[Node, ...]",
    ) -> "Node": ...


tracking: Final[ContextVar[bool | Keeper]] = ContextVar("tracking", default=True)
"""Whether what is computed now keeps its history, for gradients alone (True) or by a keeper."""


@dataclass(slots=True, eq=False)
class ArrayLayout:
    """Where the elements of an array lie: one object a dtype, shape and strides."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes."""
    name: str
    """Of the dtype, as the engine has it."""
    dense: bool

    @classmethod
    def of(cls, array: Array) -> "ArrayLayout":
        """Return the layout of an array, with the engine's strides where it has no elements."""
        strides = array.strides if array.size else contiguous_strides(array.shape, array.itemsize)
        key = (array.dtype, array.shape, strides)
        laid = _laid.get(key)
        if laid is None:
            made = cls(*key, DTYPES[array.dtype], array.flags.c_contiguous)
            laid = _laid.setdefault(key, made)  # one, whichever thread is first
        return laid


_laid: Final[dict[Any, ArrayLayout]] = {}

_sharing: Final = Lock()


@dataclass(slots=True, eq=False)
class ByteChanges:
    """The changes in place of some bytes, whoever made them."""

    kept: bool = False
    """Whether they are those of a state (`engine.front.states`), which holds no history."""
    version: int = 0
    """How many so far."""
    by: str = ""
    """The last of them."""


@dataclass(slots=True, eq=False)
class StorageHistory:
    """The history of some bytes, as one tensor and its views see it; detached twins have their own.

    Made when they are first shared or changed, since most never are.
    """

    base: int
    """Serial of the node that views are taken of, the present one."""
    changes: ByteChanges = field(default_factory=ByteChanges)
    """Shared with twins."""
    rebased: int = 0
    """The changes that gradients flow through: what was made before has another history now."""
    viewed: bool = False
    """Whether views were taken."""
    wanted_grad: bool = False
    """Whether gradients flowed through the value that was first shared."""
    whole: "Node | None" = None
    """The value of all the bytes since a view was changed, or was there when they were, with a
    gradient; of its own memory (`engine.front.rebasing`)."""
    seen: Array | None = None
    """The bytes that `whole` is the value of, dense."""


@dataclass(slots=True, eq=False)
class CallRecipe:
    """What all calls that are alike share."""

    kind: str
    params: dict[str, Any]
    sources: tuple[ArrayLayout, ...]
    result: ArrayLayout | None
    """None for views: it follows from the array seen."""
    rule: Rule
    bind: Bind | None
    flows: tuple[bool, ...]
    """Whether a gradient can flow through each argument."""
    function: Callable[..., object] | None = None
    """What a call does with operands, constants and result, where `bind` comes to just that."""
    constants: tuple[Any, ...] = ()
    derivatives: dict[Any, Any] = field(default_factory=dict)
    """What `engine.front.extension` made of the rule, for as long as the recipe is known."""

    def __post_init__(self) -> None:
        """Look at what `bind` hands to a kernel."""
        if self.bind is not None and self.result is not None:
            self._read(self.bind, self.result)

    def _read(self, bind: Bind, result: ArrayLayout) -> None:
        arrays = [np.empty(laid.shape, laid.dtype) for laid in (*self.sources, result)]
        if not all(laid.dense for laid in self.sources) or not all(array.size for array in arrays):
            return
        function, args = bind(self.params, tuple(arrays[:-1]), (arrays[-1],))
        operands, constants, out = args[: len(arrays) - 1], args[len(arrays) - 1 : -1], args[-1]
        if any(isinstance(constant, (np.ndarray, tuple)) for constant in constants) or len(args) < len(arrays):
            return
        if all(_same(given, mine) for given, mine in zip((*operands, out), arrays, strict=True)):
            self.function, self.constants = function, constants


def _same(given: Any, mine: Array) -> bool:
    """Whether an argument is nothing but one of our own arrays."""
    if not isinstance(given, np.ndarray) or given.shape != mine.shape or given.strides != mine.strides:
        return False
    return bool(given.__array_interface__["data"][0] == mine.__array_interface__["data"][0])


_serials: Final = count()


class Node:
    """One value, immutable as far as gradients are concerned; compared by identity."""

    __slots__ = (
        "array", "hooks", "laid", "leaf_of", "name", "needs_grad", "rebased",
        "recipe", "serial", "shared", "sources", "version",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 - made once for every number typed; keywords cost
        self,
        array: Array,
        laid: ArrayLayout,
        shared: StorageHistory | None = None,
        recipe: CallRecipe | None = None,
        sources: "tuple[Node, ...]" = (),
        needs_grad: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> None:
        self.array = array
        self.laid = laid
        self.shared = shared
        """The history of the bytes, None while they have none."""
        self.version = 0 if shared is None else shared.changes.version
        self.rebased = 0 if shared is None else shared.rebased
        """ByteChanges that gradients flow through when it was made."""
        self.recipe = recipe
        self.sources = sources
        self.needs_grad = needs_grad
        self.leaf_of: Any = None
        """Who collects the gradient of a leaf, or of a result that is to keep its own."""
        self.hooks: list[Any] | None = None
        """What is asked about its gradient, in this order, before anything flows on."""
        self.name = ""
        self.serial = next(_serials)
        """Order of creation: sources have lower ones."""

    @property
    def storage(self) -> StorageHistory:
        """The history of the bytes."""
        if self.shared is None:
            with _sharing:  # threads that take views of one tensor at once must come to share one history
                if self.shared is None:
                    self.shared = StorageHistory(self.serial, wanted_grad=self.needs_grad)
        return self.shared

    @property
    def kind(self) -> str | None:
        """The op that made it; None for a leaf."""
        return self.recipe.kind if self.recipe is not None else None

    @property
    def stale(self) -> bool:
        """Whether the bytes hold another version by now."""
        return self.shared is not None and self.version != self.shared.changes.version

    # what a shape rule and `engine.graph.composites` ask of a tensor
    @property
    def graph(self) -> "type[Eager]":
        """Where ops are added: computing one now is all that adding is."""
        return Eager

    @property
    def dtype(self) -> str:
        """The engine's name of it."""
        return self.laid.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths, at least one."""
        return self.laid.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes."""
        return self.laid.strides

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie densely in row-major order."""
        return self.laid.dense

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.laid.dtype.itemsize

    @property
    def place(self) -> tuple[int, int]:
        """What a view of it may reach: its own elements, where these lie densely."""
        if not self.contiguous:
            raise EngineError(f"{self} is not contiguous; take cont of it first")
        return 0, self.array.nbytes

    def __repr__(self) -> str:
        return f"{self.name or self.kind or 'constant'} {self.dtype}[{', '.join(map(str, self.shape))}]"


_VIEWS: Final[Mapping[str, Callable[[Array, ResultLayout, Mapping[str, Any]], Array]]] = {
    "reshape": lambda x, layout, _: x.reshape(layout.shape, copy=False),
    "permute": lambda x, _, params: x.transpose(params["axes"]),
    "transpose": lambda x, *_: x.swapaxes(-1, -2),
    "slice": lambda x, _, params: window(x, params["starts"], params["lengths"], params["steps"]),
    "straight_through": lambda x, *_: x.view(),
    "stop_gradient": lambda x, *_: x.view(),
    "view": lambda x, layout, params: strided(
        x.reshape(-1, copy=False)[params["offset"] :], layout.shape, layout.strides
    ),
}
"""View op -> the same view by numpy."""


def _row(kind: str) -> tuple[Rule, Bind | None, tuple[bool, ...]]:
    """Return (rule, `bind` of the default kernel, whether a gradient can flow through each
    argument) of an op, as the tables are now.

    EngineError for one that the front cannot compute: it has no kernel, writes over an operand, or
    is a view numpy is not told how to take.
    """
    rule, kernels = OPS[kind], KERNELS.get(kind)
    if rule.mutates is not None or (rule.view and kind not in _VIEWS) or not (rule.view or kernels):
        why = (
            "writes over an operand"
            if rule.mutates is not None
            else "is a view of a new kind"
            if rule.view
            else "has no kernel"
        )
        raise EngineError(f"{kind} {why}; the front cannot compute it")
    bind = None if rule.view or kernels is None else next(iter(kernels.values())).bind
    return rule, bind, tuple(argument not in rule.constant for argument in rule.arguments)


KNOWN: Final = 4096
_recipes: Final[dict[Any, tuple[CallRecipe, ResultLayout]]] = {}
"""The recipes met; all are forgotten where they are too many, as with a changing parameter."""


class _Quiet(local):
    """For each thread a context without warnings of infinity and NaN: a tenth of `np.errstate`."""

    def __init__(self) -> None:
        context = Context()
        context.run(np.seterr, all="ignore")
        self.run = context.run


_quiet: Final = _Quiet()


def apply(
    kind: str, sources: tuple[Node, ...], params: dict[str, Any] | None = None, *, track: bool | Keeper = True
) -> Node:
    """Compute an op now and return its node.

    It keeps history only if `track` and a source needs a gradient, or as a keeper has it.

    Raises EngineError if the rule of `kind` refuses the operands.
    """
    if params:
        zeros = [repr(value) for value in params.values()] if 0 in params.values() else ()  # -0.0 equals 0.0
        key: Any = (kind, *[source.laid for source in sources], *params.items(), *zeros)
    else:
        key = (kind, *[source.laid for source in sources])
    known = _recipes.get(key)
    if known is None and any(source.laid.name in STORED for source in sources) and not _moves(kind, sources, params):
        return _widened(kind, sources, params, track)
    recipe, layout = known if known is not None else _learn(key, kind, sources, dict(params or {}))
    laid, shared = recipe.result, None
    if laid is None:
        array, shared = _VIEWS[kind](sources[0].array, layout, recipe.params), sources[0].storage
        laid, shared.viewed = ArrayLayout.of(array), True
    else:
        array = np.empty(laid.shape, laid.dtype)
        function = recipe.function
        if function is not None:
            _quiet.run(function, *[source.array for source in sources], *recipe.constants, array)
        else:
            assert recipe.bind is not None
            called, arguments = recipe.bind(recipe.params, tuple([source.array for source in sources]), (array,))
            _quiet.run(called, *arguments)
    if track:
        if track is not True:
            return track.kept(array, laid, shared, recipe, sources)
        for source, flowing in zip(sources, recipe.flows, strict=False):
            if source.needs_grad and flowing:
                return Node(array, laid, shared, recipe, sources, True)
    return Node(array, laid, shared)


def _moves(kind: str, sources: tuple[Node, ...], params: dict[str, Any] | None) -> bool:
    """Whether an op takes these operands as they are, 16-bit ones among them."""
    try:
        OPS[kind].shape(cast("Sources", sources), dict(params or {}))
    except (EngineError, TypeError, ValueError, OverflowError):
        return False
    return True


def _widened(kind: str, sources: tuple[Node, ...], params: dict[str, Any] | None, track: bool | Keeper) -> Node:  # noqa: FBT001 - as of `apply`
    """Compute an op of narrow operands in f32, and round its result once to what they promote to.

    As PyTorch promotes: a narrow dtype beside f32 or f64 is that one, two narrow ones are f32.
    """
    floats = {source.dtype for source in sources} & {*STORED, *FLOATS}
    wide = next((dtype for dtype in FLOATS if dtype in floats), None)
    target = wide or (floats.pop() if len(floats) == 1 else "f32")
    computed = wide or "f32"
    given = tuple(
        apply("cast", (source,), {"dtype": computed}, track=track) if source.dtype in STORED else source
        for source in sources
    )
    made = apply(kind, given, params, track=track)
    return (
        made if made.dtype != computed or target == computed else apply("cast", (made,), {"dtype": target}, track=track)
    )


def _learn(key: Any, kind: str, sources: tuple[Node, ...], params: dict[str, Any]) -> tuple[CallRecipe, ResultLayout]:
    rule, bind, flows = _row(kind)
    try:
        layout = rule.shape(cast("Sources", sources), params)
    except (EngineError, TypeError, ValueError, OverflowError) as error:  # of parameters no rule is made for, say "a"
        raise EngineError(f"{kind}({', '.join(map(str, sources))}): {error}") from None
    result = None if bind is None else ArrayLayout.of(np.empty(layout.shape, NUMPY_DTYPES[layout.dtype]))
    recipe = CallRecipe(kind, params, tuple(source.laid for source in sources), result, rule, bind, flows)
    if len(_recipes) >= KNOWN:
        _recipes.clear()
    _recipes[key] = recipe, layout
    return recipe, layout


def unlearn(kind: str) -> None:
    """Forget all recipes of an op whose row is gone."""
    for key in [key for key in list(_recipes) if key[0] == kind]:
        _recipes.pop(key, None)


class Eager:
    """A graph whose ops are computed when they are added.

    What `engine.graph.composites` builds its ops with, at the front.
    """

    @staticmethod
    def op(kind: str, *sources: Node, **params: Any) -> Node:
        """Return `apply(kind, sources)` with all parameters of the rule, as `Graph.op` fills them
        in.

        Raises EngineError if one is missing.
        """
        filled = {**OPS[kind].params, **{name: _fixed(value) for name, value in params.items()}}
        if missing := [name for name, value in filled.items() if value is REQUIRED]:
            raise EngineError(f"{kind}({', '.join(map(str, sources))}): parameter {', '.join(missing)} is missing")
        return apply(kind, sources, filled, track=tracking.get())


def _fixed(value: Any) -> Any:
    """Return a parameter as what can be compared: tuples for lists and arrays."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple(map(_fixed, value))
    if isinstance(value, (dict, set)):
        raise EngineError(f"{value!r} is no parameter of an op")
    return value


def composed(function: Callable[..., Any], *arguments: Any, **params: Any) -> Any:
    """Return what a function of `engine.graph.composites` or of a rule makes of nodes.

    They are to it what tensors of a graph are.
    """
    return function(*arguments, **params)


def constant(array: Array) -> Node:
    """Return a leaf without a gradient over an array of at least one dimension."""
    return Node(array, ArrayLayout.of(array))


def itself(node: Node, *, track: bool | Keeper | None = None) -> Node:
    """Return a view of all of a node: another value of its bytes, with a gradient of its own."""
    follow = tracking.get() if track is None else track
    return apply("permute", (node,), {"axes": tuple(range(node.array.ndim))}, track=follow)


def alias(node: Node) -> Node:
    """Return the present version of a node whose storage changed outside the history.

    The same bytes, the gradient passed on.
    """
    made = itself(node, track=tracking.get() or True)
    made.array, made.name = node.array, node.name
    return made


def history(*ends: Node) -> list[Node]:
    """Return `ends` and all they need, in order of creation; what needs no gradient is a leaf."""
    seen = set(ends)
    stack = list(ends)
    while stack:
        for source in stack.pop().sources:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return sorted(seen, key=_serial)


def _serial(node: Node) -> int:
    return node.serial
