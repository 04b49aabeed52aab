"""The vocabulary of the op table: `Rule` is one kind of op, `Tensor` what an op makes or reads.

A *shape rule* maps the sources and parameters of a call to the `ResultLayout` of its result or
raises `EngineError`; it never sees data. A *derivative* builds, out of ordinary ops, the gradient
of one argument from the gradient of the result; it records those ops through `Tensor.graph`.

Shapes are row-major (`shape[-1]` varies fastest; ggml's `ne` reversed) and have at least one
dimension. Strides and offsets are bytes, as in `allocsim.model`, and absolute in the storage of a
tensor.

What this module does not see: the table (`engine.ops.OPS`), the graph that records
(`engine.graph.Graph`), kernels, data.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, Protocol

from allocsim.errors import EngineError
from allocsim.model import Role
from allocsim.model.layout import contiguous_strides, same_layout

ITEMSIZES: Final = {"f32": 4, "f64": 8, "i32": 4, "f16": 2, "bf16": 2, "f8_e4m3": 1, "f8_e5m2": 1}
"""The dtypes of the engine: two to compute in, indices, and four to store in."""

Shape = tuple[int, ...]
Params = Mapping[str, Any]


class GraphRecorder(Protocol):
    """What a derivative may ask of the graph it adds to; `engine.graph.Graph` is one."""

    name: str

    @property
    def tensors(self) -> "Sequence[Tensor]":
        """All tensors, in order of creation."""
        ...

    def op(self, kind: str, *sources: "Tensor", name: str = "", **params: Any) -> "Tensor":
        """Add the result of one op."""
        ...

    def scope(
        self, prefix: str = "", *, layer: int | None = None, stage: str | None = None
    ) -> AbstractContextManager[None]:
        """Put `prefix.` before the names of what is made inside."""
        ...

    def unused(self, stem: str) -> str:
        """Return `stem`, with a number behind it where the name is taken."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Tensor:
    """A value of the graph; compared by identity."""

    graph: "GraphRecorder"
    index: int
    """Order of creation."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes."""
    offset: int = 0
    """Bytes from the start of the storage to element 0."""
    root: "Tensor | None" = None
    """The tensor in whose storage a view lies, itself no view; None if it has its own."""
    row: "Rule | None" = None
    """The row of the op table for the op that makes it; None for a leaf."""
    sources: "tuple[Tensor, ...]" = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    role: Role = Role.TEMPORARY
    trainable: bool = False
    """A parameter that training changes; all other parameters are read-only."""
    reset: bool = False
    """A state the host may set (to zeros, unless it gives data) before a run."""
    layer: int | None = None
    stage: str = "forward"
    """`forward`, `backward` or `update`."""

    @property
    def storage(self) -> "Tensor":
        """The tensor whose buffer this one lies in."""
        return self if self.root is None else self.root

    @property
    def place(self) -> tuple[int, int]:
        """Bytes from the start of its storage to element 0, and the bytes of that storage.

        What a view of it may reach.
        """
        return self.offset, self.storage.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return ITEMSIZES[self.dtype]

    @property
    def nbytes(self) -> int:
        """Bytes of all elements; of a leaf or a fresh result also the size of its buffer."""
        return prod(self.shape) * self.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie densely in row-major order; if there are none, they do."""
        dense = contiguous_strides(self.shape, self.itemsize)
        return 0 in self.shape or same_layout(
            (self.shape, self.strides, self.itemsize), (self.shape, dense, self.itemsize)
        )

    @property
    def kind(self) -> str | None:
        """The kind of the op that makes it; None for a leaf."""
        return None if self.row is None else self.row.kind

    @property
    def is_leaf(self) -> bool:
        """Whether no op makes it."""
        return self.row is None

    @property
    def operands(self) -> "tuple[Tensor, ...]":
        """The sources the kernel reads, by position."""
        unread = self.rule.unread
        return tuple(s for s, name in zip(self.sources, self.rule.arguments, strict=False) if name not in unread)

    @property
    def rule(self) -> "Rule":
        """The row of the op table for the op that makes it; raises EngineError for a leaf."""
        if self.row is None:
            raise EngineError(f"{self} is a leaf; no op makes it")
        return self.row

    def __repr__(self) -> str:
        return f"{self.name} {self.dtype}[{', '.join(map(str, self.shape))}]"


Sources = tuple[Tensor, ...]
Derivative = Callable[[Tensor, Tensor], Tensor]
"""(node, gradient of node) -> gradient of one argument, shaped like the argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLayout:
    """Where the elements of a result lie."""

    shape: Shape
    dtype: str
    strides: tuple[int, ...] | None = None
    """Bytes; None is contiguous. Only views have other strides."""
    offset: int = 0
    """Bytes from element 0 of the first source to element 0 of the result; only views have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of the op table."""

    kind: str
    arguments: tuple[str, ...]
    """Names of the arguments by position."""
    shape: Callable[[Sources, dict[str, Any]], ResultLayout]
    params: Params = field(default_factory=dict)
    """Parameters and their defaults; `REQUIRED` where the caller must say."""
    optional: int = 0
    """How many of the last arguments may be left out."""
    derivatives: Mapping[str, Derivative] = field(default_factory=dict)
    """Argument -> rule. An argument that is in neither `derivatives` nor `constant` has no rule:
    asking for one is an error."""
    constant: frozenset[str] = frozenset()
    """Arguments through which no gradient flows by definition: indices, positions, masks."""
    view: bool = False
    """Whether the result is the bytes of source 0, seen otherwise; such an op has no kernel."""
    mutates: int | None = None
    """Position of the source in whose buffer the result is written, in the same layout."""
    unread: frozenset[str] = frozenset()
    """Arguments that order the op and give it memory but are no operands of the kernel."""
    prepare: Callable[[Tensor, Tensor], Tensor] | None = None
    """(node, gradient of node) -> what the derivatives get in place of the gradient: work they
    share, built once a node."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()
"""Default of a parameter that has none."""
