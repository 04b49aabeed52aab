"""Build an engine graph on real ggml: the same forward ops, and ggml's own backward graph.

Contract
--------
* `forward(loss)` returns the ops that the loss needs as plain data (`Forward`), in the engine's
  order, which is also ggml's order. `build` makes the graph with ggml's own builders. Its `kind`
  decides whether the graph also has ggml's backward graph (`ggml_build_backward_expand`) and one
  `ggml_opt_step_sgd` for each trainable parameter. The result is a
  `transformer.LibraryTransformer`, so the same plans and modes apply to it.
* Parameters have memory of their own; inputs are in the compute buffer with the flag INPUT. Shapes
  are reversed: the engine's last dimension is ggml's first. Only f32 and i32 are supported. Names
  are kept.
* If ggml lacks a kind of op, or has it in another form, EngineError names the tensor and the kind.

What this module does not see: data and plans.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.model import Role
from allocsim.systems.ggml.access.workspace import Context, LibraryWorkspace
from allocsim.systems.ggml.lora_training.transformer import HYPER, LibraryTransformer, step_of

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardTensor:
    """One tensor of the forward graph."""

    name: str
    kind: str | None
    """The op; None for a leaf."""
    dtype: str
    shape: tuple[int, ...]
    sources: tuple[int, ...]
    params: Mapping[str, Any]
    role: Role
    trainable: bool

    @property
    def ne(self) -> tuple[int, ...]:
        """The dimensions in ggml's order, innermost first."""
        return self.shape[::-1] or (1,)


Forward = tuple[ForwardTensor, ...]


class GraphTensor(Protocol):
    """The attributes of an engine tensor that this module reads.

    The type is a protocol because the engine imports this module, and not the reverse.
    """

    @property
    def name(self) -> str:
        """The name of the tensor."""

    @property
    def kind(self) -> str | None:
        """The op; None for a leaf."""

    @property
    def dtype(self) -> str:
        """The dtype, named as in `allocsim.model.dtypes`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions, outermost first."""

    @property
    def sources(self) -> "Sequence[GraphTensor]":
        """The tensors that the op reads; empty for a leaf."""

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of the op, by name."""

    @property
    def role(self) -> Role:
        """The role of the tensor, if it is a leaf."""

    @property
    def trainable(self) -> bool:
        """Whether a training step updates the tensor."""


def forward(loss: GraphTensor) -> Forward:
    """Return all tensors that `loss` depends on, sources before readers, and the loss last."""
    order: dict[GraphTensor, int] = {}
    stack: list[tuple[GraphTensor, bool]] = [(loss, False)]
    while stack:
        tensor, ready = stack.pop()
        if tensor in order:
            continue
        if ready or not tensor.sources:
            order[tensor] = len(order)
        else:
            stack.append((tensor, True))
            stack.extend((source, False) for source in reversed(tensor.sources) if source not in order)
    return tuple(
        ForwardTensor(
            name=tensor.name,
            kind=tensor.kind,
            dtype=tensor.dtype,
            shape=tensor.shape,
            sources=tuple(order[source] for source in tensor.sources),
            params=dict(tensor.params),
            role=tensor.role,
            trainable=tensor.trainable,
        )
        for tensor in order
    )


def build(ws: LibraryWorkspace, rows: Forward, *, kind: str = "train") -> LibraryTransformer:
    """Build the graph of one training step without a plan; `kind` is in `transformer.KINDS`."""
    size = 8 * len(rows) + 64
    static, ctx = ws.context(tensors=len(rows) + 2), ws.context(tensors=2 * size, graph_size=size, gradients=True)
    weights: dict[str, int] = {}
    adapters: dict[str, int] = {}
    inputs: dict[str, int] = {}
    made: list[int] = []
    for row in rows:
        if row.dtype not in ("f32", "i32"):
            raise EngineError(f"{row.name!r} is {row.dtype}; ggml training supports f32 and i32")
        if row.kind is not None:
            made.append(0)
        elif row.role == Role.INPUT:
            made.append(ctx.tensor(row.dtype, *row.ne, name=row.name, flag="input"))
            inputs[row.name] = made[-1]
        else:
            made.append(static.tensor(row.dtype, *row.ne, name=row.name, flag="param" if row.trainable else ""))
            (adapters if row.trainable else weights)[row.name] = made[-1]
    weights[HYPER] = static.tensor("f32", 2, name=HYPER)
    ws.apart(static)
    for index, row in enumerate(rows):
        if row.kind is not None:
            made[index] = _op(ctx, row, [made[source] for source in row.sources])
    return step_of((static, ctx), made[-1], size=size, kind=kind, weights=weights, adapters=adapters, inputs=inputs)


def _op(ctx: Context, row: ForwardTensor, sources: list[int]) -> int:
    lower = LOWERINGS.get(row.kind or "")
    if lower is None:
        raise EngineError(f"{row.name!r}: the op kind {row.kind!r} cannot be lowered to ggml")
    tensor = lower(ctx, row, sources)
    ctx.workspace.library.ggml_set_name(tensor, row.name.encode())
    return tensor


def _plain(builder: str, *params: str) -> Callable[[Context, ForwardTensor, Sequence[int]], int]:
    """Return a lowering to a builder that takes the sources and then these parameters as floats."""
    return lambda ctx, row, sources: ctx.op(builder, *sources, *(float(row.params[name]) for name in params))


def _soft_max(ctx: Context, row: ForwardTensor, sources: Sequence[int]) -> int:
    mask = sources[1] if len(sources) > 1 else None
    return ctx.op("soft_max_ext", sources[0], mask, float(row.params["scale"]), 0.0)


def _rope(ctx: Context, row: ForwardTensor, sources: Sequence[int]) -> int:
    mode = {"normal": 0, "neox": 2}[row.params["mode"]]
    x, positions = sources
    return ctx.op(
        "rope_ext", x, positions, None, row.params["dims"], mode, 0, float(row.params["base"]), 1.0, 0.0, 1.0, 0.0, 0.0
    )


def _reshape(ctx: Context, row: ForwardTensor, sources: Sequence[int]) -> int:
    return ctx.op(f"reshape_{len(row.ne)}d", sources[0], *row.ne)


def _cont(ctx: Context, row: ForwardTensor, sources: Sequence[int]) -> int:
    return ctx.op(f"cont_{len(row.ne)}d", sources[0], *row.ne) if len(row.ne) == 2 else ctx.op("cont", sources[0])


def _permute(ctx: Context, row: ForwardTensor, sources: Sequence[int]) -> int:
    """Lower a permutation.

    The engine gives the source axis of each result axis, outermost first. ggml takes the result
    axis of each source axis, innermost first.
    """
    axes = row.params["axes"]
    rank = len(axes)
    places = [0, 1, 2, 3]
    for axis, source in enumerate(axes):
        places[rank - 1 - source] = rank - 1 - axis
    return ctx.op("permute", sources[0], *places)


def _view(ctx: Context, row: ForwardTensor, sources: Sequence[int]) -> int:
    *outer, inner = row.params["strides"]
    if inner != 1:
        raise EngineError(f"{row.name!r}: the last dimension has stride {inner}; a ggml view needs stride 1")
    strides = [4 * stride for stride in reversed(outer)]
    return ctx.op(f"view_{len(row.ne)}d", sources[0], *row.ne, *strides, 4 * int(row.params["offset"]))


LOWERINGS: Final[dict[str, Callable[[Context, ForwardTensor, Sequence[int]], int]]] = {
    "get_rows": _plain("get_rows"),
    "add": _plain("add"),
    "sub": _plain("sub"),
    "mul": _plain("mul"),
    "scale": _plain("scale", "s"),
    "silu": _plain("silu"),
    "swiglu": _plain("swiglu_split"),
    "sum": _plain("sum"),
    "rms_norm": _plain("rms_norm", "eps"),
    "mul_mat": _plain("mul_mat"),
    "soft_max": _soft_max,
    "rope": _rope,
    "reshape": _reshape,
    "permute": _permute,
    "transpose": _plain("transpose"),
    "view": _view,
    "cont": _cont,
    "cpy": _plain("cpy"),
    "cross_entropy_loss": _plain("cross_entropy_loss"),
}
"""Kind of an engine op -> the function that calls ggml's builder for it."""
