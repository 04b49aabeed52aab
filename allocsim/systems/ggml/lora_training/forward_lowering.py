"""An engine graph on real ggml: the same forward ops, the backward graph built by ggml itself.

Contract
--------
* `forward(loss)` lists the ops that the loss needs as plain data (`Forward`), in the engine's
  order, which is ggml's. `build` makes the graph by ggml's own builders, with
  `ggml_build_backward_expand` and one `ggml_opt_step_sgd` for each trainable parameter. The result
  is a `transformer.Model`, so the same plans and modes apply to it.
* Parameters lie in memory of their own, inputs in the compute buffer with the flag INPUT. Shapes
  are reversed: the engine's last dimension is ggml's first. f32 and i32 only. Names are kept.
* A kind that ggml does not have, or has in another form, is refused by name.

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
        """The dimensions as ggml has them."""
        return self.shape[::-1] or (1,)


Forward = tuple[ForwardTensor, ...]


class GraphTensor(Protocol):
    """A tensor of the graph that is lowered, as the engine has them.

    By shape and not by name: the graph stands above this module.
    """

    @property
    def name(self) -> str:
        """How it is called."""

    @property
    def kind(self) -> str | None:
        """The op; None for a leaf."""

    @property
    def dtype(self) -> str:
        """As `allocsim.model.dtypes` names it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions, outermost first."""

    @property
    def sources(self) -> "Sequence[GraphTensor]":
        """What the op reads."""

    @property
    def params(self) -> Mapping[str, Any]:
        """What the op is told beside its sources."""

    @property
    def role(self) -> Role:
        """Of a leaf."""

    @property
    def trainable(self) -> bool:
        """Whether a step of training changes it."""


def forward(loss: GraphTensor) -> Forward:
    """Return everything `loss` needs, sources before readers, the loss last."""
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
    """Build the graph of one step, unplanned; `kind` is one of `transformer.KINDS`."""
    size = 8 * len(rows) + 64
    static, ctx = ws.context(tensors=len(rows) + 2), ws.context(tensors=2 * size, graph_size=size, gradients=True)
    weights: dict[str, int] = {}
    adapters: dict[str, int] = {}
    inputs: dict[str, int] = {}
    made: list[int] = []
    for row in rows:
        if row.dtype not in ("f32", "i32"):
            raise EngineError(f"{row.name!r} is {row.dtype}; real ggml trains f32 only")
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
        raise EngineError(f"{row.name!r}: {row.kind!r} has no forward op in ggml that this bridge lowers to")
    tensor = lower(ctx, row, sources)
    ctx.workspace.library.ggml_set_name(tensor, row.name.encode())
    return tensor


def _plain(builder: str, *params: str) -> Callable[[Context, ForwardTensor, Sequence[int]], int]:
    """A builder that takes the sources and then these parameters, as numbers."""
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
    """The engine says where each axis comes from, first dimension first.

    Ggml where each goes, last dimension first.
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
        raise EngineError(f"{row.name!r}: its last dimension has stride {inner}; a ggml view has 1 there")
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
"""Kind of the engine -> ggml's builder."""
