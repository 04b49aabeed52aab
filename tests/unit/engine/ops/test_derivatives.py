"""Every derivative of the op table against finite differences and HIPS autograd, to the second order, and in forward mode; all in float64."""

from dataclasses import dataclass, field
from itertools import product

import engine_oracle
import numpy as np
import pytest

from engine.autodiff import backward, jvp
from engine.graph import Graph
from engine.ops import OPS
from engine.ops.element_functions import COMPARISONS, UNARY
from engine.ops.pullback import needing


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call of an op: shapes of its operands, integers where an operand is indices."""

    kind: str
    shapes: tuple = ()
    params: dict = field(default_factory=dict)
    positive: frozenset = frozenset()
    """Operands drawn from (0.5, 2.5): inside the domain."""
    choices: frozenset = frozenset()
    """Operands drawn from 0 and 1."""

    def draw(self, name, shape, rng):
        if name in self.choices:
            return (rng.standard_normal(shape) > 0).astype(np.float64)
        return rng.uniform(0.5, 2.5, shape) if name in self.positive else rng.standard_normal(shape)

    def __str__(self):
        operands = "-".join("ids" if not isinstance(s, tuple) else "x".join(map(str, s)) for s in self.shapes)
        return f"{self.kind}-{operands}"


NON_DIFFERENTIABLE = {
    *COMPARISONS, "sgn", "step", "full", "stop_gradient", "floor", "round", "argmax", "argsort", "count_equal", "pool_index",
    "uniform", "all_finite", "unscale", "set_rows", "add_inplace", "add_out_prod", "opt_step_sgd", "adamw_m", "adamw_v",
    "opt_step_adamw", "own_part", "all_gather_over", "send", "recv",
}  # fmt: skip
"""Kinds without any derivative, listed so that silence is never a rule."""

OF_POSITIVES = ("log", "log1p", "sqrt", "abs", "relu")
"""Element-wise functions with a border in their domain, or a bend."""

SMOOTH = tuple(kind for kind, derivative in UNARY.items() if derivative and kind not in OF_POSITIVES)

CASES = (
    Case(kind="add", shapes=((3, 4), (3, 4))),
    Case(kind="add", shapes=((6, 4), (2, 4))),
    Case(kind="add", shapes=((2, 3, 4), (1, 2))),
    Case(kind="add", shapes=((3, 4), (1,))),
    Case(kind="add", shapes=((0, 4), (1, 4))),
    Case(kind="sub", shapes=((3, 4), (3, 4))),
    Case(kind="sub", shapes=((6, 4), (3, 1))),
    Case(kind="mul", shapes=((3, 4), (3, 4))),
    Case(kind="mul", shapes=((3, 4), (4,))),
    Case(kind="mul", shapes=((2, 6, 4), (3, 2))),
    Case(kind="mul", shapes=((1, 1), (1, 1))),
    Case(kind="scale", shapes=((3, 4),), params={"s": -2.5}),
    Case(kind="scale", shapes=((2, 0),), params={"s": 3.0}),
    *(Case(kind=kind, shapes=(shape,)) for kind in SMOOTH for shape in ((3, 5), (1,), (2, 0))),
    *(Case(kind=kind, shapes=((3, 5),), positive=frozenset("x")) for kind in OF_POSITIVES),
    Case(kind="abs", shapes=((3, 5),)),
    Case(kind="relu", shapes=((3, 5),)),
    Case(kind="pow", shapes=((3, 5),), params={"p": 3.0}),
    Case(kind="pow", shapes=((3, 5),), params={"p": -0.5}, positive=frozenset("x")),
    Case(kind="clamp", shapes=((3, 5),), params={"low": -0.7, "high": 0.4}),
    Case(kind="div", shapes=((3, 4), (3, 4)), positive=frozenset("b")),
    Case(kind="div", shapes=((6, 4), (2, 1)), positive=frozenset("b")),
    Case(kind="maximum", shapes=((3, 4), (3, 4))),
    Case(kind="maximum", shapes=((6, 4), (3, 1))),
    Case(kind="minimum", shapes=((3, 4), (3, 4))),
    Case(kind="minimum", shapes=((2, 3, 4), (4,))),
    *(Case(kind="power", shapes=(shape, shape), positive=frozenset("a")) for shape in ((3, 4), (1,), (0, 4))),
    Case(kind="where", shapes=((3, 4), (3, 4), (3, 4)), choices=frozenset({"cond"})),
    Case(kind="norm", shapes=((3, 8),), params={"eps": 1e-5}),
    Case(kind="norm", shapes=((2, 3, 7),), params={"eps": 1e-2}),
    Case(kind="norm", shapes=((4, 1),), params={"eps": 1e-1}),
    Case(kind="log_soft_max", shapes=((3, 5),)),
    Case(kind="log_soft_max", shapes=((2, 3, 1),)),
    Case(kind="silu", shapes=((3, 5),)),
    Case(kind="silu", shapes=((1,),)),
    Case(kind="swiglu", shapes=((3, 5), (3, 5))),
    Case(kind="swiglu", shapes=((1, 1), (1, 1))),
    Case(kind="repeat", shapes=((2, 3),), params={"shape": (2, 4, 6)}),
    Case(kind="repeat", shapes=((1,),), params={"shape": (3, 2)}),
    Case(kind="repeat_back", shapes=((2, 4, 6),), params={"shape": (2, 3)}),
    Case(kind="repeat_back", shapes=((2, 4, 6),), params={"shape": (1, 1, 6)}),
    Case(kind="sum", shapes=((3, 4),)),
    Case(kind="sum", shapes=((1,),)),
    Case(kind="rms_norm", shapes=((3, 8),), params={"eps": 1e-5}),
    Case(kind="rms_norm", shapes=((2, 3, 8),), params={"eps": 1e-2}),
    Case(kind="rms_norm", shapes=((4, 1),), params={"eps": 1e-1}),
    Case(kind="mul_mat", shapes=((4, 5), (3, 5))),
    Case(kind="mul_mat", shapes=((2, 4, 5), (6, 3, 5))),
    Case(kind="mul_mat", shapes=((4, 5), (2, 3, 5))),
    Case(kind="mul_mat", shapes=((2, 1, 4, 5), (4, 3, 3, 5))),
    Case(kind="mul_mat", shapes=((1, 1), (1, 1))),
    Case(kind="mul_mat", shapes=((4, 5), (0, 5))),
    Case(kind="rope", shapes=((3, 2, 8), [0, 1, 7]), params={"base": 100.0}),
    Case(kind="rope", shapes=((3, 2, 8), [0, 1, 7]), params={"base": 100.0, "dims": 4, "mode": "neox"}),
    Case(kind="rope", shapes=((1, 1, 2), [5]), params={"base": 10.0, "mode": "neox"}),
    Case(kind="reshape", shapes=((3, 4),), params={"shape": (2, 6)}),
    Case(kind="permute", shapes=((2, 3, 4),), params={"axes": (1, 2, 0)}),
    Case(kind="transpose", shapes=((2, 3, 4),)),
    Case(kind="view", shapes=((4, 6),), params={"shape": (3, 2), "strides": (6, 2), "offset": 1}),
    Case(kind="view", shapes=((4, 6),), params={"shape": (4, 2), "strides": (6, -1), "offset": 3}),
    Case(kind="cont", shapes=((3, 4),)),
    Case(kind="cont", shapes=((3, 4),), params={"shape": (12,)}),
    Case(kind="soft_max", shapes=((3, 5),)),
    Case(kind="soft_max", shapes=((2, 3, 5), (3, 5)), params={"scale": 0.3}),
    Case(kind="soft_max", shapes=((1, 1),), params={"scale": 2.0}),
    Case(kind="get_rows", shapes=((5, 3), [4, 0, 4, 1])),
    Case(kind="get_rows", shapes=((1, 1), [0])),
    Case(kind="cross_entropy_loss", shapes=((3, 5), (3, 5))),
    Case(kind="cross_entropy_loss", shapes=((1, 1), (1, 1))),
    Case(kind="cross_entropy_classes", shapes=((3, 5), [4, 0, 4])),
    Case(kind="cross_entropy_classes", shapes=((1, 1), [0])),
    Case(kind="cross_entropy_classes_back", shapes=((1,), (3, 5), [4, 0, 4])),
    Case(kind="mean_squared_error", shapes=((3, 5), (3, 5))),
    Case(kind="mean_squared_error", shapes=((1,), (1,))),
    Case(kind="view", shapes=((6,),), params={"shape": (3, 4), "strides": (1, 1), "offset": 0}),
    Case(kind="view_back", shapes=((3, 2),), params={"shape": (4, 6), "strides": (6, 2), "offset": 1}),
    Case(kind="view_back", shapes=((3, 4),), params={"shape": (6,), "strides": (1, 1), "offset": 0}),
    Case(kind="view_back", shapes=((0, 4),), params={"shape": (6,), "strides": (1, 1), "offset": 0}),
    Case(kind="slice", shapes=((4, 6),), params={"starts": (1, 2), "lengths": (2, 3)}),
    Case(kind="slice", shapes=((4, 6),), params={"starts": (1, 6), "lengths": (3, 0)}),
    Case(kind="slice", shapes=((4, 7),), params={"starts": (0, 1), "lengths": (2, 3), "steps": (3, 2)}),
    Case(kind="pad", shapes=((2, 3),), params={"before": (1, 0), "after": (0, 2), "value": 1.5}),
    Case(kind="pad", shapes=((0, 3),), params={"before": (1, 0), "after": (1, 0)}),
    Case(kind="concat", shapes=((2, 3), (2, 1)), params={"axis": -1}),
    Case(kind="concat", shapes=((2, 3), (4, 3)), params={"axis": 0}),
    Case(kind="concat", shapes=((2, 3), (2, 0)), params={"axis": 1}),
    Case(kind="acc", shapes=((3, 4), (2, 3)), params={"starts": (1, 0)}),
    Case(kind="set", shapes=((3, 4), (2, 3)), params={"starts": (1, 1)}),
    Case(kind="set", shapes=((1, 1), (1, 1)), params={"starts": (0, 0)}),
    Case(kind="gather", shapes=((2, 4), [[3, 0, 3], [1, 1, 2]])),
    Case(kind="gather", shapes=((4, 2), [[3, 0], [1, 1]]), params={"axis": 0}),
    Case(kind="scatter", shapes=((2, 3), [[3, 0, 3], [1, 1, 2]]), params={"length": 4}),
    Case(kind="scatter", shapes=((2, 3), [[3, 0, 3], [1, 1, 2]]), params={"length": 4, "axis": 0}),
    Case(kind="sum_axes", shapes=((2, 3, 4),), params={"axes": (0, 2)}),
    Case(kind="sum_axes", shapes=((2, 3, 4),), params={"axes": 1, "keepdims": True}),
    Case(kind="sum_axes", shapes=((3,),)),
    Case(kind="sum_axes", shapes=((0, 3),), params={"axes": 0}),
    Case(kind="mean", shapes=((2, 3, 4),), params={"axes": (1, -1)}),
    Case(kind="mean", shapes=((2, 3),), params={"axes": None, "keepdims": True}),
    Case(kind="mean", shapes=((1,),)),
    Case(kind="im2col", shapes=((2, 3, 5, 6),), params={"kernel": (3, 2), "stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}),
    Case(kind="im2col", shapes=((1, 1, 1, 1),), params={"kernel": 1}),
    Case(kind="im2col", shapes=((2, 1, 2, 2),), params={"kernel": (5, 5), "padding": (2, 2)}),
    Case(kind="im2col_back", shapes=((2, 3, 4, 4),), params={"shape": (2, 1, 5, 6), "kernel": (2, 2), "stride": (2, 2), "padding": (1, 1)}),
    Case(kind="conv_2d", shapes=((2, 3, 5, 6), (4, 3, 3, 2)), params={"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}),
    Case(kind="conv_2d", shapes=((1, 2, 7, 19), (3, 2, 2, 3)), params={"padding": (0, 1)}),
    Case(kind="conv_2d_back_x", shapes=((2, 4, 3, 8), (4, 3, 3, 2)), params={"shape": (2, 3, 5, 6)} | {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}),
    Case(kind="conv_2d_back_x", shapes=((1, 2, 2, 2), (2, 1, 2, 1)), params={"shape": (1, 1, 5, 4), "stride": (3, 2)}),
    Case(kind="conv_2d_back_w", shapes=((2, 4, 3, 8), (2, 3, 5, 6)), params={"shape": (4, 3, 3, 2)} | {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}),
    Case(kind="avg_pool", shapes=((2, 3, 5, 6),), params={"kernel": (3, 2), "stride": (2, 2), "padding": (1, 0)}),
    Case(kind="avg_pool_back", shapes=((2, 1, 2, 3),), params={"shape": (2, 1, 4, 6), "kernel": (2, 2), "stride": (2, 2)}),
    Case(kind="dropout", shapes=((3, 5), [7]), params={"p": 0.4, "salt": 3}),
    Case(kind="dropout", shapes=((3, 5), [7]), params={"p": 0.0}),
    Case(kind="attention", shapes=((4, 3, 2), (2, 5, 2), (2, 5, 4), (3, 5)), params={"scale": 0.6}),
    Case(kind="attention", shapes=((2, 1, 3, 2), (2, 1, 3, 2), (2, 1, 3, 2)), params={"scale": 1.0}),
    Case(kind="attention", shapes=((1, 1), (1, 1), (1, 1)), params={"scale": 1.0}),
    Case(kind="attention_back", shapes=((4, 3, 2), (4, 3, 2), (2, 5, 2), (2, 5, 2), (3, 5)), params={"scale": 0.6}),
    Case(kind="silu_back", shapes=((3, 5), (3, 5))),
    Case(kind="gelu_back", shapes=((3, 5), (3, 5))),
    Case(kind="gelu_erf_back", shapes=((3, 5), (3, 5))),
    Case(kind="clamp_back", shapes=((3, 5), (3, 5)), params={"low": -0.7, "high": 0.4}),
    Case(kind="rms_norm_back", shapes=((3, 8), (3, 8)), params={"eps": 1e-2}),
    Case(kind="rms_norm_back", shapes=((2, 1), (2, 1)), params={"eps": 1e-1}),
    Case(kind="norm_back", shapes=((3, 8), (3, 8)), params={"eps": 1e-2}),
    Case(kind="soft_max_back", shapes=((2, 3, 5), (2, 3, 5)), params={"scale": 0.3}),
    Case(kind="log_soft_max_back", shapes=((3, 5), (3, 5))),
    Case(kind="cross_entropy_loss_back", shapes=((1,), (3, 5), (3, 5))),
    Case(kind="out_prod", shapes=((4, 5), (4, 3))),
    Case(kind="out_prod", shapes=((2, 4, 5), (6, 4, 3))),
    Case(kind="rope_back", shapes=((3, 2, 8), [0, 1, 7]), params={"base": 100.0}),
    Case(kind="get_rows_back", shapes=((4, 3), [4, 0, 4, 1]), params={"rows": 5}),
    *(
        Case(kind=kind, shapes=(shape,))  # of one rank; tests/unit/engine/sharding has several
        for kind in ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "all_to_all", "send_receive")
        for shape in ((3, 4), (1,), (2, 0))
    ),
    Case(kind="all_reduce", shapes=((3, 4),), params={"backward": "identity"}),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Built:
    """The case as a scalar function of its floating operands: sum(op(...) * weights)."""

    graph: Graph
    loss: object
    wanted: tuple
    data: dict


def build(case, rng, *, strided=False, dtype="f64"):
    """Build the case; with `strided`, operands are views of parameters stored with their axes reversed."""
    graph, rule = Graph("case"), OPS[case.kind]
    operands, wanted, data = [], [], {}
    for name, shape in zip(rule.arguments, case.shapes, strict=False):
        if not isinstance(shape, tuple):
            data[name] = np.array(shape, dtype=np.int32)
            operands.append(graph.input(name, data[name].shape, "i32"))
            continue
        trainable = name not in rule.constant and name in rule.derivatives
        stored = tuple(reversed(shape)) if strided else shape
        leaf = graph.parameter(name, stored, dtype, trainable=trainable)
        data[name] = case.draw(name, stored, rng)
        operands.append(graph.op("permute", leaf, axes=tuple(reversed(range(len(shape))))) if strided else leaf)
        wanted += [leaf] * trainable
    y = graph.op(case.kind, *operands, **case.params)
    weights = graph.input("weights", y.shape, dtype)
    data["weights"] = rng.standard_normal(y.shape)
    loss = graph.op("sum", graph.op("mul", y, weights), name="loss")
    graph.expand(loss)
    return Built(graph=graph, loss=loss, wanted=tuple(wanted), data=data)


def analytic(built, execute):
    found = backward(built.graph, built.loss)
    arrays = execute(built.graph, {**built.data, "loss_grad": np.ones(1)}, built.loss, *found.values())
    return arrays[0], dict(zip(found, arrays[1:], strict=True))


EMPTY = (
    *(Case(kind=kind, shapes=((0, 4), shape)) for kind in ("sub", "mul", "div", "maximum", "minimum") for shape in ((0, 4), (1, 4), (4,))),
    *(Case(kind=kind, shapes=((2, 0),), positive=frozenset("x")) for kind in ("log", "log1p", "sqrt", "abs", "relu", "silu")),
    *(Case(kind=kind, shapes=(shape,), params={"eps": 1e-2}) for kind in ("norm", "rms_norm") for shape in ((0, 4), (2, 0, 3))),
    *(Case(kind=kind, shapes=((0, 4),)) for kind in ("soft_max", "log_soft_max", "transpose", "cont", "sum")),
    Case(kind="pow", shapes=((0,),), params={"p": 3.0}),
    Case(kind="clamp", shapes=((0, 2),), params={"low": -0.7, "high": 0.4}),
    Case(kind="where", shapes=((0, 2), (0, 2), (0, 2)), choices=frozenset({"cond"})),
    Case(kind="swiglu", shapes=((0, 5), (0, 5))),
    Case(kind="repeat", shapes=((0, 3),), params={"shape": (2, 0, 6)}),
    Case(kind="repeat", shapes=((1, 3),), params={"shape": (0, 3)}),
    Case(kind="repeat_back", shapes=((0, 4),), params={"shape": (1, 4)}),
    Case(kind="mul_mat", shapes=((0, 5), (3, 5))),
    Case(kind="mul_mat", shapes=((4, 0), (3, 0))),
    Case(kind="out_prod", shapes=((0, 5), (0, 3))),
    Case(kind="rope", shapes=((0, 2, 8), []), params={"base": 100.0}),
    Case(kind="reshape", shapes=((0, 4),), params={"shape": (2, 0)}),
    Case(kind="permute", shapes=((2, 0, 4),), params={"axes": (1, 2, 0)}),
    Case(kind="view", shapes=((4, 6),), params={"shape": (0, 2), "strides": (6, 2), "offset": 1}),
    Case(kind="slice", shapes=((0, 3),), params={"starts": (0, 1), "lengths": (0, 2)}),
    Case(kind="acc", shapes=((3, 4), (0, 3)), params={"starts": (1, 0)}),
    Case(kind="set", shapes=((3, 4), (2, 0)), params={"starts": (1, 1)}),
    Case(kind="get_rows", shapes=((5, 3), [])),
    Case(kind="get_rows", shapes=((5, 0), [4, 0])),
    Case(kind="get_rows_back", shapes=((0, 3), []), params={"rows": 2}),
    Case(kind="mean", shapes=((0, 3),), params={"axes": 1}),
    Case(kind="sum", shapes=((0,),)),
    Case(kind="im2col", shapes=((0, 1, 3, 3),), params={"kernel": 2}),
    Case(kind="conv_2d", shapes=((0, 1, 3, 3), (2, 1, 2, 2))),
    Case(kind="conv_2d", shapes=((1, 0, 3, 3), (2, 0, 2, 2))),
    Case(kind="avg_pool", shapes=((0, 1, 4, 4),), params={"kernel": 2, "stride": 2}),
    Case(kind="dropout", shapes=((0, 5), [7]), params={"p": 0.4}),
    Case(kind="attention", shapes=((0, 3, 2), (0, 5, 2), (0, 5, 4)), params={"scale": 0.6}),
    Case(kind="attention", shapes=((0, 2), (3, 2), (3, 2)), params={"scale": 0.6}),
)  # fmt: skip
"""Operands without elements: nothing to add up, gradients of the right shape, zero where nothing comes back."""

BACKS = {
    "clamp_back": {"low": -0.7, "high": 0.4}, "gelu_back": {}, "gelu_erf_back": {}, "log_soft_max_back": {}, "norm_back": {"eps": 0.1},
    "rms_norm_back": {"eps": 0.1}, "silu_back": {}, "soft_max_back": {"scale": 0.3},
}  # fmt: skip
"""Backward ops of two operands of one shape, with parameters."""

EMPTY += (
    *(Case(kind=kind, shapes=((0, 4), (0, 4)), params=params) for kind, params in BACKS.items()),
    Case(kind="attention_back", shapes=((0, 3, 2), (0, 3, 2), (0, 5, 2), (0, 5, 2)), params={"scale": 0.6}),
    Case(kind="avg_pool_back", shapes=((0, 1, 2, 2),), params={"shape": (0, 1, 4, 4), "kernel": 2, "stride": 2}),
    Case(kind="im2col_back", shapes=((0, 2, 2, 4),), params={"shape": (0, 1, 3, 3), "kernel": 2}),
    Case(kind="conv_2d_back_x", shapes=((0, 2, 2, 2), (2, 1, 2, 2)), params={"shape": (0, 1, 3, 3)}),
    Case(kind="conv_2d_back_w", shapes=((0, 2, 2, 2), (0, 1, 3, 3)), params={"shape": (2, 1, 2, 2)}),
    Case(kind="rope_back", shapes=((0, 2, 8), []), params={"base": 100.0}),
    Case(kind="gather", shapes=((0, 4), np.zeros((0, 3), int))),
    Case(kind="scatter", shapes=((0, 3), np.zeros((0, 3), int)), params={"length": 4}),
    Case(kind="view", shapes=((0, 6),), params={"shape": (0, 2), "strides": (6, 2)}),
)  # fmt: skip

SINGLE = (
    *(Case(kind=kind, shapes=((1, 1), (1, 1)), params=params) for kind, params in BACKS.items()),
    *(
        Case(kind=kind, shapes=((1,), (1,)), positive=frozenset("b"))
        for kind in ("add", "sub", "div", "maximum", "minimum")
    ),
    *(
        Case(kind=kind, shapes=((1,),), positive=frozenset("x"))
        for kind in ("log", "sqrt", "abs", "relu", "cont", "sum_axes")
    ),
    *(Case(kind=kind, shapes=((1, 1),), params={"eps": 0.1}) for kind in ("norm", "rms_norm")),
    Case(kind="scale", shapes=((1,),), params={"s": -2.0}),
    Case(kind="pow", shapes=((1,),), params={"p": 3.0}),
    Case(kind="clamp", shapes=((1,),), params={"low": -9.0, "high": 9.0}),
    Case(kind="where", shapes=((1,), (1,), (1,)), choices=frozenset({"cond"})),
    Case(kind="log_soft_max", shapes=((1, 1),)),
    Case(kind="repeat_back", shapes=((1, 1),), params={"shape": (1,)}),
    Case(kind="out_prod", shapes=((1, 1), (1, 1))),
    Case(kind="rope", shapes=((1, 1, 2), [3]), params={"base": 10.0}),
    Case(kind="rope_back", shapes=((1, 1, 2), [3]), params={"base": 10.0}),
    Case(kind="reshape", shapes=((1,),), params={"shape": (1, 1)}),
    Case(kind="permute", shapes=((1, 1),), params={"axes": (1, 0)}),
    Case(kind="transpose", shapes=((1, 1),)),
    Case(kind="view", shapes=((1,),), params={"shape": (1, 1), "strides": (7, 1)}),
    Case(kind="view_back", shapes=((1, 1),), params={"shape": (1,), "strides": (7, 1)}),
    Case(kind="slice", shapes=((1, 1),), params={"starts": (0, 0), "lengths": (1, 1)}),
    Case(kind="pad", shapes=((1,),), params={"before": (1,), "after": (0,)}),
    Case(kind="concat", shapes=((1,), (1,))),
    Case(kind="acc", shapes=((1,), (1,)), params={"starts": (0,)}),
    Case(kind="gather", shapes=((1, 1), [[0]])),
    Case(kind="scatter", shapes=((1, 1), [[0]]), params={"length": 1}),
    Case(kind="get_rows_back", shapes=((1, 1), [0]), params={"rows": 1}),
    Case(kind="dropout", shapes=((1,), [7]), params={"p": 0.1}),
    Case(kind="attention_back", shapes=((1, 1), (1, 1), (1, 1), (1, 1)), params={"scale": 0.6}),
    Case(kind="avg_pool", shapes=((1, 1, 1, 1),), params={"kernel": 1}),
    Case(kind="avg_pool_back", shapes=((1, 1, 1, 1),), params={"shape": (1, 1, 1, 1), "kernel": 1}),
    Case(kind="im2col_back", shapes=((1, 1, 1, 1),), params={"shape": (1, 1, 1, 1), "kernel": 1}),
    Case(kind="conv_2d", shapes=((1, 1, 1, 1), (1, 1, 1, 1))),
    *(
        Case(kind=kind, shapes=((1, 1, 1, 1), (1, 1, 1, 1)), params={"shape": (1, 1, 1, 1)})
        for kind in ("conv_2d_back_x", "conv_2d_back_w")
    ),
    Case(kind="cross_entropy_loss_back", shapes=((1,), (1, 1), (1, 1))),
    Case(kind="cross_entropy_classes_back", shapes=((1,), (1, 1), [0])),
)
"""Operands of one element."""

CASES += EMPTY + SINGLE

NOTHING = [
    case
    for case in CASES
    if any(
        0 in (shape if isinstance(shape, tuple) else np.shape(shape))
        for shape in (*case.shapes, case.params.get("shape", ()))
    )
]
FILLED = [case for case in CASES if not any(case is other for other in NOTHING)]
"""HIPS autograd cannot tile an empty array; those are left to finite differences."""

STRIDED = [case for case in FILLED if case.kind not in ("reshape", "view")]

KINKED = frozenset({"abs", "relu", "clamp", "clamp_back", "maximum", "minimum"})
"""Not smooth everywhere: their second derivative is zero, and the first jumps."""


@pytest.mark.parametrize(("case", "strided"), [*product(FILLED, [False]), *product(STRIDED, [True])], ids=str)
def test_gradient_is_that_of_hips_autograd(case, strided, execute, rng):
    """Value and gradient of each op are those of the plain numpy meaning under HIPS autograd, on dense and strided operands."""
    built = build(case, rng, strided=strided)
    expected_loss = engine_oracle.interpret(built.graph, built.data)[built.loss]
    expected = engine_oracle.gradients(built.graph, built.loss, built.wanted, built.data)
    loss, found = analytic(built, execute)

    np.testing.assert_allclose(loss, expected_loss, rtol=1e-12, atol=1e-12)
    for parameter in built.wanted:
        np.testing.assert_allclose(found[parameter], expected[parameter], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradient_is_that_of_finite_differences(case, execute, rng):
    """Along a random direction the loss the engine itself computes changes as its gradient says."""
    built = build(case, rng)
    direction = {p: rng.standard_normal(p.shape) for p in built.wanted}
    step = 1e-5
    moved = [
        execute(
            built.graph,
            {**built.data, **{p.name: built.data[p.name] + sign * step * direction[p] for p in built.wanted}},
            built.loss,
        )[0][0]
        for sign in (1, -1)
    ]
    _, found = analytic(built, execute)

    slope = sum(float((found[p] * direction[p]).sum()) for p in built.wanted)
    assert slope == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-6, abs=1e-8)


WIDE = {"f64": np.float64, "f32": np.float32}


@pytest.mark.parametrize("case", [case for case in FILLED if case.kind != "uniform"], ids=str)
def test_gradients_in_float32_are_those_of_float64_rounded(case, execute, rng):
    """The same graph in the other dtype that is computed in, from the same numbers."""
    found = {}
    wide = build(case, rng)
    narrow = {
        name: array.astype(np.float32) if array.dtype == np.float64 else array for name, array in wide.data.items()
    }
    for dtype, floats in WIDE.items():
        built = build(case, np.random.default_rng(0), dtype=dtype)
        data = {name: array.astype(floats) if array.dtype == np.float32 else array for name, array in narrow.items()}
        gradients = backward(built.graph, built.loss)
        found[dtype] = execute(built.graph, {**data, "loss_grad": np.ones(1, floats)}, built.loss, *gradients.values())

    for half, whole in zip(found["f32"], found["f64"], strict=True):
        assert half.dtype == np.float32
        np.testing.assert_allclose(half, whole, rtol=2e-4, atol=2e-5 * max(1.0, float(np.abs(whole).max())))


def directional(built, gradients, direction):
    """Append the derivative of the loss along a fixed direction, as a scalar."""
    graph = built.graph
    parts = []
    for p in built.wanted:
        along = graph.input(f"along.{p.name}", p.shape, "f64")
        built.data[along.name] = direction[p]
        parts.append(graph.op("sum", graph.op("mul", gradients[p], along)))
    total = parts[0]
    for part in parts[1:]:
        total = graph.op("add", total, part)
    return total


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_of_gradients_are_those_of_finite_differences(case, execute, rng):
    """The extended graph, differentiated again, says how the first derivative changes along a second direction."""
    built = build(case, rng)
    first = {p: rng.standard_normal(p.shape) for p in built.wanted}
    other = {p: rng.standard_normal(p.shape) for p in built.wanted}
    ones = {"loss_grad": np.ones(1), "loss_grad_2": np.ones(1)}
    slope = directional(built, backward(built.graph, built.loss), first)
    smooth = case.kind not in KINKED and linear_apart(built.graph, slope, built.wanted)
    built.graph.expand(slope)
    used = lambda: {  # noqa: E731
        n: a for n, a in {**built.data, **ones}.items() if any(leaf.name == n for leaf in built.graph.leafs)
    }
    ends = [
        execute(
            built.graph,
            {**used(), **{p.name: built.data[p.name] + sign * 1e-5 * other[p] for p in built.wanted}},
            slope,
        )[0][0]
        for sign in (1, -1)
    ]
    difference = (ends[0] - ends[1]) / 2e-5
    if (
        not smooth
    ):  # flat in between, or linear: the second derivative is zero, and the graph may say so by having no way
        assert difference == pytest.approx(0, abs=1e-6)
        return
    reachable = [p for p in built.wanted if depends(built.graph, slope, p)]
    found = backward(built.graph, slope, parameters=reachable)
    arrays = execute(built.graph, used(), *found.values())
    bend = sum(float((a * other[p]).sum()) for p, a in zip(found, arrays, strict=True))

    assert bend == pytest.approx(difference, rel=2e-6, abs=1e-7)


def depends(graph, end, leaf):
    """Whether a gradient can flow from `end` to `leaf`."""
    graph.expand(end)
    return end in needing(graph.nodes, [leaf])


def linear_apart(graph, end, leafs):
    return any(depends(graph, end, leaf) for leaf in leafs)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_mode_is_the_transpose_of_reverse_mode(case, execute, rng):
    """The derivative along a direction is the gradient times it, and what finite differences say of every element."""
    built = build(case, rng)
    y = built.graph.nodes[-3]
    assert y.kind == case.kind or y.rule.view
    direction = {p: rng.standard_normal(p.shape) for p in built.wanted}
    tangents = {}
    for p in built.wanted:
        tangents[p] = built.graph.input(f"along.{p.name}", p.shape, "f64")
        built.data[f"along.{p.name}"] = direction[p]
    (moved,) = jvp(built.graph, [y], tangents)
    (found,) = execute(built.graph, built.data, moved)
    ends = [
        execute(
            built.graph,
            {**built.data, **{p.name: built.data[p.name] + s * 1e-5 * direction[p] for p in built.wanted}},
            y,
        )[0]
        for s in (1, -1)
    ]

    np.testing.assert_allclose(found, (ends[0] - ends[1]) / 2e-5, rtol=2e-6, atol=2e-7)
    _, gradients = analytic(built, execute)
    along = sum(float((gradients[p] * direction[p]).sum()) for p in built.wanted)
    assert float((found * built.data["weights"]).sum()) == pytest.approx(along, rel=1e-10, abs=1e-10)


def test_every_derivative_of_the_table_has_a_case():
    """No op with a derivative goes untested; cast, attention and what has no value of its own have tests of their own."""
    covered = {case.kind for case in CASES} | {"cast", "cpy", "straight_through"}

    assert covered >= {kind for kind, rule in OPS.items() if rule.derivatives}


def test_every_derivative_is_asked_for_no_element_and_for_one():
    """But losses, whose mean over nothing is no number, and what has tests of its own."""
    differentiable = {kind for kind, rule in OPS.items() if rule.derivatives} - {"cast", "cpy", "straight_through"}
    of_none = {"cross_entropy_loss", "cross_entropy_loss_back", "cross_entropy_classes", "cross_entropy_classes_back", "mean_squared_error"}  # fmt: skip
    sizes = lambda case: [np.prod(shape) if isinstance(shape, tuple) else np.size(shape) for shape in case.shapes]  # noqa: E731

    assert differentiable - of_none <= {case.kind for case in CASES if 0 in sizes(case)}
    assert differentiable <= {case.kind for case in CASES if max(sizes(case)) <= (2 if "rope" in case.kind else 1)}


def test_ops_without_derivatives_are_listed():
    """Silence is never a rule: what has no derivative is named as such."""
    assert {kind for kind, rule in OPS.items() if not rule.derivatives} == NON_DIFFERENTIABLE


def test_no_argument_is_both_constant_and_differentiable():
    """An argument has a rule, or no gradient by definition, and both name real arguments."""
    for rule in OPS.values():
        assert not rule.constant & set(rule.derivatives)
        assert rule.constant | set(rule.derivatives) <= set(rule.arguments)
