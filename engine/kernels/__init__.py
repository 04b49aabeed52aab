"""Every kernel of the engine in one table: kind -> variant -> `Kernel`.

The first variant is the default.

    function, args = KERNELS["mul"]["numpy"].bind(params, operands, results)     # once
    function(*args)                                                              # each run

Declared pairs (`Kernel.in_place`) follow what ggml's in-place list promises: for a listed op, the
result over *every* source of the same layout; and the mutated operand of ops that write into one
(`opt_step_*`, `adamw_*`, `add_inplace`, `add_out_prod`). Of ops that ggml lacks, some declare what
their loops keep: the note says so. All other ops declare nothing. A declaration is a promise, not a
finding: both `two_pass` kernels keep the promise of the list and break it, as ggml's did.

Importing this package neither loads numba nor compiles anything.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from allocsim.errors import UnknownNameError
from engine.kernels import collective, convolution, fused, indexed, moving, products, rowwise, windows
from engine.kernels import elementwise as ew
from engine.kernels.binding import Bind, Call, Kernel

__all__ = ["KERNELS", "Bind", "Call", "Kernel", "default", "kernel", "register"]

_EVERY: Final = ((0, 0), (1, 0))
_FIRST: Final = ((0, 0),)


_UFUNCS: Final[dict[str, tuple[Any, ...]]] = {
    "neg": (np.negative,),
    "abs": (np.absolute,),
    "sgn": (np.sign,),
    "step": (np.heaviside, 0.0),
    "relu": (ew.maximum, 0.0),
    "exp": (np.exp,),
    "expm1": (np.expm1,),
    "log": (np.log,),
    "log1p": (np.log1p,),
    "atan": (np.arctan,),
    "floor": (np.floor,),
    "round": (np.rint,),
    "sqrt": (np.sqrt,),
    "sqr": (np.square,),
    "sin": (np.sin,),
    "cos": (np.cos,),
    "tanh": (np.tanh,),
}
"""Functions that are one numpy ufunc, with constants behind the operand. All are UNARY, SQR, SQRT,
LOG, SIN or COS to ggml."""

_COMPARISONS: Final = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
"""Comparisons, of which numpy writes the truth as 1 and 0 of the result's dtype."""

COLLECTIVES: Final = (
    *("all_gather", "reduce_scatter", "all_reduce", "broadcast"),
    *("reduce", "all_to_all", "send_receive", "all_gather_over"),
)
"""Kinds in which all ranks of a group wait for each other."""

MESSAGES: Final = ("send", "recv")
"""Kinds in which one rank waits for one other."""

_MAPS: Final = ("sigmoid", "softplus", "erf", "gelu", "gelu_erf")
"""Functions with a compiled map of their own."""


def _products(bind: Callable[..., Bind], **described: Any) -> dict[str, Kernel]:
    return {name: Kernel(bind=bind(tiled=name == "tiles"), **described) for name in ("tiles", "blas")}


def _table() -> dict[str, dict[str, Kernel]]:
    fixed_norm = "reads a row before it writes it; ggml since 0.15.0 (29e2eef8)"
    broken_norm = "copies x, then re-reads dy: wrong over dy; ggml before 0.15.0"
    fixed_softmax = "reads a row before it writes it; ggml since 0.26.0"
    broken_softmax = "copies dy, then re-reads y: wrong over y; ggml before 0.26.0"
    return {
        "get_rows": {"loop": Kernel(bind=rowwise.bind_get_rows)},
        "get_rows_back": {"loop": Kernel(bind=rowwise.bind_get_rows_back)},
        "set_rows": {"loop": Kernel(bind=rowwise.bind_set_rows, in_place=_FIRST, note="on ggml's list with other rules")},
        "rms_norm": {"one_pass": Kernel(bind=rowwise.bind_rows("rms_norm", "eps"), in_place=_FIRST)},
        "rms_norm_back": {
            "one_pass": Kernel(bind=rowwise.bind_rows("rms_norm_back", "eps"), in_place=_EVERY, note=fixed_norm),
            "two_pass": Kernel(bind=rowwise.bind_rows("rms_norm_back_two_pass", "eps"), in_place=_EVERY, note=broken_norm),
        },
        "soft_max": {"one_pass": Kernel(bind=rowwise.bind_soft_max, in_place=_EVERY)},
        "soft_max_back": {
            "one_pass": Kernel(bind=rowwise.bind_rows("soft_max_back", scale=1.0), in_place=_EVERY, note=fixed_softmax),
            "two_pass": Kernel(bind=rowwise.bind_rows("soft_max_back_two_pass", scale=1.0), in_place=_EVERY, note=broken_softmax),
        },
        "add": {"numpy": Kernel(bind=ew.bind_binary("add", np.add), in_place=_EVERY)},
        "sub": {"numpy": Kernel(bind=ew.bind_binary("sub", np.subtract), in_place=_EVERY)},
        "mul": {"numpy": Kernel(bind=ew.bind_binary("mul", np.multiply), in_place=_EVERY)},
        "div": {"numpy": Kernel(bind=ew.bind_binary("div", np.divide), in_place=_EVERY)},
        "maximum": {"numpy": Kernel(bind=ew.bind_binary("maximum", ew.maximum))},
        "minimum": {"numpy": Kernel(bind=ew.bind_binary("minimum", ew.minimum))},
        "power": {"numpy": Kernel(bind=ew.bind_binary("power", np.power), note="ggml has none")},
        **{kind: {"numpy": Kernel(bind=ew.bind_comparison(kind, how), note="ggml has none")} for kind, how in _COMPARISONS.items()},
        "where": {"one_pass": Kernel(bind=rowwise.bind_elements("where"))},
        **{kind: {"numpy": Kernel(bind=ew.bind_unary(kind, *how), in_place=_FIRST)} for kind, how in _UFUNCS.items()},
        **{kind: {"one_pass": Kernel(bind=rowwise.bind_elements(kind), in_place=_FIRST)} for kind in _MAPS},
        "gelu_back": {"one_pass": Kernel(bind=rowwise.bind_elements("gelu_back"), note="not on ggml's list")},
        "gelu_erf_back": {"one_pass": Kernel(bind=rowwise.bind_elements("gelu_erf_back"), note="not on ggml's list")},
        "pow": {"numpy": Kernel(bind=ew.bind_unary("pow", np.power, "p"), note="ggml has none")},
        "clamp": {"numpy": Kernel(bind=ew.bind_unary("clamp", np.clip, "low", "high"), in_place=_FIRST, note="on ggml's list since 0.25.3")},
        "clamp_back": {"one_pass": Kernel(bind=rowwise.bind_clamp_back)},
        "norm": {"one_pass": Kernel(bind=rowwise.bind_rows("norm", "eps"), note="not on ggml's list")},
        "norm_back": {"one_pass": Kernel(bind=rowwise.bind_rows("norm_back", "eps"))},
        "log_soft_max": {"one_pass": Kernel(bind=rowwise.bind_rows("log_soft_max"))},
        "log_soft_max_back": {"one_pass": Kernel(bind=rowwise.bind_rows("log_soft_max_back"))},
        "scale": {"numpy": Kernel(bind=ew.bind_scale, in_place=_FIRST)},
        "repeat": {"numpy": Kernel(bind=ew.bind_repeat)},
        "repeat_back": {"numpy": Kernel(bind=ew.bind_repeat_back)},
        "sum": {"numpy": Kernel(bind=ew.bind_sum)},
        "mul_mat": _products(partial(products.bind_product, "mul_mat", inner_last=True)),
        "out_prod": _products(partial(products.bind_product, "out_prod", inner_last=False)),
        "add_out_prod": _products(products.bind_add_out_prod, in_place=_FIRST, note="ggml has none; beta = 1"),
        "rope": {"table": Kernel(bind=rowwise.bind_rope(1.0), in_place=_FIRST)},
        "rope_back": {"table": Kernel(bind=rowwise.bind_rope(-1.0), in_place=_FIRST)},
        "cont": {"numpy": Kernel(bind=ew.bind_copy)},
        "cpy": {"numpy": Kernel(bind=ew.bind_copy, note="the destination is the result; ggml counts it as a source and does not read it")},
        "view_back": {"numpy": Kernel(bind=moving.bind_view_back)},
        "pad": {"numpy": Kernel(bind=moving.bind_pad)},
        "concat": {"numpy": Kernel(bind=moving.bind_concat)},
        "acc": {"numpy": Kernel(bind=moving.bind_acc, note="ggml's ACC; not on its list")},
        "set": {"numpy": Kernel(bind=moving.bind_set, note="ggml's SET; not on its list")},
        "full": {"numpy": Kernel(bind=moving.bind_full)},
        "gather": {"loop": Kernel(bind=indexed.bind_gather)},
        "scatter": {"loop": Kernel(bind=indexed.bind_scatter)},
        "sum_axes": {"numpy": Kernel(bind=moving.bind_sum_axes)},
        "mean": {"numpy": Kernel(bind=moving.bind_mean)},
        "argmax": {"loop": Kernel(bind=indexed.bind_argmax)},
        "argsort": {"numpy": Kernel(bind=indexed.bind_argsort, note="ggml's is not stable")},
        "count_equal": {"loop": Kernel(bind=indexed.bind_count_equal)},
        "im2col": {"loop": Kernel(bind=windows.bind_im2col)},
        "im2col_back": {"loop": Kernel(bind=windows.bind_im2col_back)},
        "conv_2d": {"direct": Kernel(bind=convolution.bind_conv_2d)},
        "conv_2d_back_x": {"direct": Kernel(bind=convolution.bind_conv_2d_back_x)},
        "conv_2d_back_w": {"direct": Kernel(bind=convolution.bind_conv_2d_back_w)},
        "avg_pool": {"numpy": Kernel(bind=windows.bind_avg_pool)},
        "avg_pool_back": {"numpy": Kernel(bind=windows.bind_avg_pool_back)},
        "pool_index": {"loop": Kernel(bind=windows.bind_pool_index)},
        "attention": {"blocks": Kernel(bind=fused.bind_attention)},
        "attention_back": {"blocks": Kernel(bind=fused.bind_attention_back)},
        "uniform": {"philox": Kernel(bind=indexed.bind_uniform)},
        "dropout": {"philox": Kernel(bind=indexed.bind_dropout, in_place=_FIRST, note="ggml has none")},
        "cast": {"numpy": Kernel(bind=moving.bind_cast)},
        "all_finite": {"loop": Kernel(bind=indexed.bind_all_finite)},
        "unscale": {"one_pass": Kernel(bind=indexed.bind_unscale, in_place=_FIRST, note="ggml has none")},
        "mean_squared_error": {"blocks": Kernel(bind=indexed.bind_mean_squared_error)},
        "silu": {"one_pass": Kernel(bind=rowwise.bind_elements("silu"), in_place=_FIRST)},
        "silu_back": {"one_pass": Kernel(bind=rowwise.bind_elements("silu_back"), in_place=_EVERY)},
        "swiglu": {"one_pass": Kernel(bind=rowwise.bind_elements("swiglu"), note="GLU is not on ggml's list")},
        "cross_entropy_loss": {"rows": Kernel(bind=rowwise.bind_cross_entropy_loss)},
        "cross_entropy_loss_back": {
            "rows": Kernel(bind=rowwise.bind_cross_entropy_loss_back, note="not on ggml's list"),
            "in_place": Kernel(
                bind=rowwise.bind_cross_entropy_loss_back, in_place=((1, 0), (2, 0)), note="the same code, its contract declared"
            ),
        },
        "cross_entropy_classes": {"rows": Kernel(bind=rowwise.bind_cross_entropy_classes)},
        "cross_entropy_classes_back": {
            "rows": Kernel(bind=rowwise.bind_cross_entropy_classes_back, in_place=((1, 0),), note="ggml has none")
        },
        "opt_step_sgd": {"one_pass": Kernel(bind=rowwise.bind_step("opt_step_sgd", 2), in_place=_FIRST)},
        "adamw_m": {"one_pass": Kernel(bind=rowwise.bind_step("adamw_m", 1), in_place=_FIRST)},
        "adamw_v": {"one_pass": Kernel(bind=rowwise.bind_step("adamw_v", 1), in_place=_FIRST)},
        "opt_step_adamw": {"one_pass": Kernel(bind=rowwise.bind_step("opt_step_adamw", 5), in_place=_FIRST)},
        "add_inplace": {"numpy": Kernel(bind=ew.bind_binary("add_inplace", np.add), in_place=_FIRST)},
        **{kind: {"ranks": Kernel(bind=collective.bind_collective(kind), note="ggml has none")} for kind in COLLECTIVES},
        "own_part": {"ranks": Kernel(bind=collective.bind_own_part, note="ggml has none")},
        **{kind: {"ranks": Kernel(bind=collective.bind_collective(kind), note="ggml has none")} for kind in MESSAGES},
    }  # fmt: skip


_rows: Final[dict[str, Mapping[str, Kernel]]] = {
    kind: MappingProxyType(variants) for kind, variants in _table().items()
}
KERNELS: Final[Mapping[str, Mapping[str, Kernel]]] = MappingProxyType(_rows)
"""kind -> variant -> kernel. Read-only but for `register`; a table with more or other kernels is a
new dict made from this one."""


def register(kind: str, variants: Mapping[str, Kernel] | None) -> None:
    """Add the kernels of a new kind, or with None take those of an added one away.

    The caller sees to it that the table of ops has the same kinds (`engine.front.custom_ops`).
    """
    if variants is None:
        _rows.pop(kind, None)
    else:
        _rows[kind] = MappingProxyType(dict(variants))


def default(kind: str) -> str:
    """Return the name of the default variant of `kind`; raises UnknownNameError."""
    if kind not in KERNELS:
        raise UnknownNameError("kernel", kind, KERNELS)
    return next(iter(KERNELS[kind]))


def kernel(kind: str, variant: str | None = None) -> Kernel:
    """Return the kernel of `kind`, by default its first variant; raises UnknownNameError."""
    name = default(kind) if variant is None else variant
    if kind not in KERNELS:
        raise UnknownNameError("kernel", kind, KERNELS)
    if name not in KERNELS[kind]:
        raise UnknownNameError(f"variant of {kind}", name, KERNELS[kind])
    return KERNELS[kind][name]
