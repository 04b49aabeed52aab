"""Every kernel against a float64 oracle written with numpy alone, and the promises of `engine.kernels.binding`: in place, placement, no allocation."""

import math
import shutil
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import engine_oracle
import ml_dtypes  # noqa: F401 - numpy learns the name bfloat16
import numpy as np
import pytest

from allocsim.allocators import find
from allocsim.errors import EngineError, UnknownNameError
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.kernels import COLLECTIVES, KERNELS, default, kernel
from engine.ops.element_functions import COMPARISONS, UNARY
from engine.runtime import EXECUTORS, Runtime

SIZES = [1, 7, 33, 64, 576, 1536]
TOLERANCE = {"f4": 4e-6, "f8": 2e-13}
EPS = 1e-5
VARIANTS = [(kind, variant) for kind, variants in KERNELS.items() for variant in variants]
SAFE = [
    (kind, variant, pair)
    for kind, variant in VARIANTS
    for pair in KERNELS[kind][variant].in_place
    if variant != "two_pass"
]


@dataclass(frozen=True, kw_only=True)
class Call:
    """Operands and result shape of one call, with what it must compute in float64."""

    operands: list[np.ndarray]
    shape: tuple[int, ...]
    want: np.ndarray
    terms: float = 0.0
    """Largest term that cancels in the result; rounding is relative to it."""
    params: dict[str, Any] = field(default_factory=dict)
    gives: str | None = None
    """dtype of the result, where it is not that of the operands."""

    def blank(self, dtype: str) -> np.ndarray:
        """Return a result to be written, full of what no kernel writes."""
        return np.full(self.shape, -7 if self.gives == "i4" else np.nan, self.gives or dtype)


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rotate(x, pos, params, sign):
    dims = params["dims"]
    angle = sign * pos[:, None, None] * params["base"] ** (-2.0 * np.arange(dims // 2) / dims)
    i, j = (
        (slice(0, dims // 2), slice(dims // 2, dims))
        if params["mode"] == "neox"
        else (slice(0, dims, 2), slice(1, dims, 2))
    )
    y = x.copy()
    y[..., i] = x[..., i] * np.cos(angle) - x[..., j] * np.sin(angle)
    y[..., j] = x[..., i] * np.sin(angle) + x[..., j] * np.cos(angle)
    return y


def call(kind: str, n: int, seed: int = 0, dtype: str = "f8") -> Call:
    """Return a call of `kind` with rows of n elements; operands are float64, of values that `dtype` has exactly."""
    rng = np.random.default_rng([seed, n])

    def normal(*shape, scale=1.0):
        return (scale * rng.standard_normal(shape)).astype(dtype).astype("f8")

    x, y = normal(3, n), normal(3, n, scale=1.7)
    s = 1 / (1 + np.exp(-x))
    ids = np.array([2, 0, 2], np.int32)
    pos = np.array([0, 5, 5000], np.int32)
    heads = normal(3, 2, 2 * n + 1)
    turn = {"base": 1e4, "dims": 2 * n, "mode": ("normal", "neox")[seed % 2]}
    mask = np.where(np.arange(n) <= np.arange(3)[:, None], normal(3, n), -np.inf)
    cube, grouped = normal(6, 3, n), normal(2, 5, n)
    labels = (softmax(3 * normal(3, n)) * 1.3).astype(dtype).astype("f8")
    mean_square = (x * x).mean(-1, keepdims=True) + EPS
    hp = np.array([0.125, 0.0625])
    beta, adam = np.array([0.875]), np.array([0.0078125, 0.001953125, 0.0625, 2.0, 3.0])
    match kind:
        case "get_rows":
            return Call(operands=[x, ids], shape=(3, n), want=x[ids])
        case "get_rows_back":
            want = np.zeros((4, n))
            np.add.at(want, ids, x)
            return Call(operands=[x, ids], shape=(4, n), want=want, params={"rows": 4})
        case "set_rows":
            dst = np.concatenate([y, y[:1]])
            want = dst.copy()
            want[ids] = x  # of equal indices the last
            return Call(operands=[dst, x, ids], shape=dst.shape, want=want)
        case "rms_norm":
            return Call(operands=[x], shape=x.shape, want=x / np.sqrt(mean_square), params={"eps": EPS})
        case "rms_norm_back":
            want = (y - x * (x * y).mean(-1, keepdims=True) / mean_square) / np.sqrt(mean_square)
            return Call(
                operands=[y, x],
                shape=x.shape,
                want=want,
                params={"eps": EPS},
                terms=abs(y / np.sqrt(mean_square)).max(),
            )
        case "soft_max":
            big = np.stack([x, y])
            return Call(operands=[big, mask], shape=big.shape, want=softmax(big * 0.3 + mask), params={"scale": 0.3})
        case "soft_max_back":
            p = softmax(x).astype(dtype).astype("f8")
            return Call(
                operands=[y, p],
                shape=x.shape,
                want=(y - (y * p).sum(-1, keepdims=True)) * p * 0.3,
                params={"scale": 0.3},
            )
        case "add" | "add_inplace":
            return Call(operands=[cube, x], shape=cube.shape, want=cube + x)
        case "sub":
            return Call(operands=[cube, x], shape=cube.shape, want=cube - x)
        case "mul":
            tile = cube[:2, :1].copy()
            return Call(operands=[cube, tile], shape=cube.shape, want=cube * np.tile(tile, (3, 3, 1)))
        case "scale":
            return Call(operands=[x], shape=x.shape, want=x * 0.7, params={"s": 0.7})
        case "repeat":
            return Call(operands=[x], shape=(2, 6, 2 * n), want=np.tile(x, (2, 2, 2)), params={"shape": (2, 6, 2 * n)})
        case "repeat_back":
            return Call(
                operands=[cube],
                shape=(2, 1, n),
                want=cube.reshape(3, 2, 3, n).sum((0, 2))[:, None],
                params={"shape": (2, 1, n)},
            )
        case "sum":
            return Call(operands=[abs(x)], shape=(1,), want=abs(x).sum(keepdims=True).reshape(1))
        case "mul_mat":
            return Call(operands=[grouped, cube], shape=(6, 3, 5), want=cube @ np.repeat(grouped, 3, 0).swapaxes(1, 2))
        case "out_prod":
            a, b = grouped.swapaxes(1, 2).copy(), cube.swapaxes(1, 2).copy()
            return Call(operands=[a, b], shape=(6, 3, 5), want=cube @ np.repeat(a, 3, 0))
        case "add_out_prod":
            acc, a, b = normal(4, n), normal(3, n), normal(3, 4)
            return Call(
                operands=[acc, a, b], shape=(4, n), want=acc + b.T @ a, terms=abs(acc).max() + abs(b.T @ a).max()
            )
        case "rope" | "rope_back":
            sign = 1 if kind == "rope" else -1
            return Call(operands=[heads, pos], shape=heads.shape, want=rotate(heads, pos, turn, sign), params=turn)
        case "cont" | "cpy":
            return Call(operands=[x.T], shape=(n, 3), want=x.T)
        case "silu":
            return Call(operands=[x], shape=x.shape, want=x * s)
        case "silu_back":
            return Call(operands=[y, x], shape=x.shape, want=y * s * (1 + x * (1 - s)))
        case "swiglu":
            return Call(operands=[x, y], shape=x.shape, want=x * s * y)
        case "cross_entropy_loss":
            return Call(
                operands=[y, labels],
                shape=(1,),
                want=np.array([-(labels * np.log(softmax(y))).sum() / 3]),
                terms=abs(y).max() * 1.3,
            )
        case "cross_entropy_loss_back":
            want = (softmax(y) * labels.sum(-1, keepdims=True) - labels) * 2.5 / 3
            return Call(operands=[np.array([2.5]), y, labels], shape=y.shape, want=want)
        case "opt_step_sgd":
            return Call(operands=[x, y, hp], shape=x.shape, want=x * (1 - hp[0] * hp[1]) - hp[0] * y)
        case "adamw_m":
            return Call(operands=[x, y, beta], shape=x.shape, want=x * 0.875 + y * 0.125)
        case "adamw_v":
            return Call(operands=[x * x, y, beta], shape=x.shape, want=x * x * 0.875 + y * y * 0.125)
        case "opt_step_adamw":
            want = x * (1 - adam[0] * adam[2]) - adam[0] * (y * adam[3]) / (np.sqrt(x * x * adam[4]) + adam[1])
            return Call(operands=[x, y, x * x, adam], shape=x.shape, want=want)
        case kind if kind in UNARY:
            z = abs(x) + 0.25 if kind in ("log", "log1p", "sqrt") else x
            z = z.astype(dtype).astype("f8")
            return Call(operands=[z], shape=z.shape, want=engine_oracle.MEANING[kind](z))
        case "pow":
            return Call(operands=[x], shape=x.shape, want=x**3, params={"p": 3.0})
        case "clamp":
            return Call(operands=[x], shape=x.shape, want=np.clip(x, -0.5, 0.75), params={"low": -0.5, "high": 0.75})
        case "clamp_back":
            want = np.where((x >= -0.5) & (x <= 0.75), y, 0.0)
            return Call(operands=[y, x], shape=x.shape, want=want, params={"low": -0.5, "high": 0.75})
        case "div":
            safe = np.where(x < 0, x - 0.5, x + 0.5).astype(dtype).astype("f8")
            return Call(operands=[cube, safe], shape=cube.shape, want=cube / safe)
        case "maximum" | "minimum":
            pick = np.maximum if kind == "maximum" else np.minimum
            return Call(operands=[cube, x], shape=cube.shape, want=pick(cube, x))
        case "power":
            base = abs(x) + 0.25
            base = base.astype(dtype).astype("f8")
            return Call(operands=[base, y], shape=x.shape, want=base**y)
        case "equal" | "not_equal" | "less" | "less_equal" | "greater" | "greater_equal":
            cube[0, 0] = x[0]  # some elements meet their equal
            return Call(operands=[cube, x], shape=cube.shape, want=getattr(np, kind)(cube, x) * 1.0)
        case "where":
            cond = (normal(3, n) > 0) * 1.0
            return Call(operands=[cond, x, y], shape=x.shape, want=np.where(cond > 0, x, y))
        case "gelu_back":
            c = np.sqrt(2 / np.pi)
            th = np.tanh(c * (x + 0.044715 * x**3))
            want = y * (0.5 * (1 + th) + 0.5 * x * (1 - th**2) * c * (1 + 3 * 0.044715 * x**2))
            return Call(operands=[y, x], shape=x.shape, want=want)
        case "gelu_erf_back":
            want = y * (0.5 * (1 + engine_oracle.erf(x / np.sqrt(2))) + x * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi))
            return Call(operands=[y, x], shape=x.shape, want=want)
        case "norm" | "norm_back":
            around = x - x.mean(-1, keepdims=True)
            r = 1 / np.sqrt((around**2).mean(-1, keepdims=True) + 0.01)
            if kind == "norm":
                return Call(
                    operands=[x], shape=x.shape, want=around * r, params={"eps": 0.01}, terms=(abs(x) * r).max()
                )
            z = around * r
            want = (y - y.mean(-1, keepdims=True) - z * (y * z).mean(-1, keepdims=True)) * r
            return Call(operands=[y, x], shape=x.shape, want=want, params={"eps": 0.01}, terms=4 * (abs(y) * r).max())
        case "log_soft_max":
            return Call(operands=[y], shape=y.shape, want=np.log(softmax(y)), terms=abs(y).max())
        case "log_soft_max_back":
            z = np.log(softmax(x)).astype(dtype).astype("f8")
            want = y - np.exp(z) * y.sum(-1, keepdims=True)
            return Call(operands=[y, z], shape=y.shape, want=want, terms=abs(y).sum(-1).max())
        case kind if kind in COLLECTIVES:  # of one rank, who gets what it gave
            return Call(operands=[x], shape=x.shape, want=x, params={"ranks": 1, "group": "world", "root": 0, "by": 0})
        case "send":
            return Call(operands=[x], shape=(0,), want=x.ravel()[:0], params={"ranks": 1, "group": "world", "peer": 0})
        case "recv":
            return Call(operands=[], shape=x.shape, want=0 * x, params={"ranks": 1, "group": "world", "peer": 0})
        case "own_part":
            return Call(operands=[x], shape=(x.size,), want=x.ravel(), params={"ranks": 1, "group": "world"})
        case "cast":
            return rounded(("bfloat16", "f2")[seed], n)
        case kind if kind in engine_oracle.MEANING:
            return meant(kind, n, seed, normal)
    raise AssertionError(kind)


def meant(kind: str, n: int, seed: int, normal) -> Call:
    """Return a call of an op whose meaning the oracle of derivatives has in plain numpy."""
    n = min(n, 64) if kind in {"view_back", "im2col_back", "avg_pool_back"} else n  # their oracle makes whole Jacobians
    n = min(n, 257) if kind.startswith("conv_2d") else n  # theirs whole tables of which pixel a window shows
    x, y = normal(3, n), normal(3, n, scale=1.7)
    ids = np.random.default_rng([seed, n]).integers(0, n, (3, 4), dtype=np.int32)
    number = np.array([seed + 5], np.int32)
    image = normal(2, 2, 4, n)
    window = {"kernel": (2, min(3, n)), "stride": (2, 1), "padding": (1, min(3, n) // 2)}
    spread = window | {"dilation": (2, 1)}
    strides, filters = {"stride": (2, 1), "padding": (2, min(3, n) // 2), "dilation": (2, 1)}, (9, 2, *window["kernel"])
    slope = (2, 9, 3, n - min(3, n) + 2 * (min(3, n) // 2) + 1)
    params, operands, gives = {
        "view_back": ({"shape": (4, 2 * n), "strides": (2 * n, 2 - seed), "offset": seed}, [x], None),
        "pad": ({"before": (1, 2), "after": (0, 1), "value": 0.5}, [x], None),
        "concat": ({"axis": 1}, [x, normal(3, 2)], None),
        "acc": ({"starts": (1, 0)}, [x, y[:2].copy()], None),
        "set": ({"starts": (1, 0)}, [x, y[:2].copy()], None),
        "full": ({"shape": (3, n), "value": 1.25}, [], None),
        "gather": ({"axis": -1}, [x, ids], None),
        "scatter": ({"axis": -1, "length": n}, [normal(3, 4), ids], None),
        "sum_axes": ({"axes": (seed,), "keepdims": False}, [x], None),
        "mean": ({"axes": (0, 1), "keepdims": True}, [x], None),
        "argmax": ({"axis": seed}, [x], "i4"),
        "argsort": ({"axis": seed}, [x], "i4"),
        "count_equal": ({}, [ids % 2, ids[::-1].copy() % 2], "i4"),
        "im2col": (spread, [image], None),
        "im2col_back": (spread | {"shape": (1, 1, 4, n)}, [normal(1, 2, n - min(3, n) + 2 * (min(3, n) // 2) + 1, 2 * min(3, n))], None),
        "conv_2d": (strides, [image, normal(*filters)], None),
        "conv_2d_back_x": (strides | {"shape": image.shape}, [normal(*slope), normal(*filters)], None),
        "conv_2d_back_w": (strides | {"shape": filters}, [normal(*slope), image], None),
        "avg_pool": (window, [image], None),
        "avg_pool_back": (window | {"shape": (1, 1, 4, n)}, [normal(1, 1, 3, n - min(3, n) + 2 * (min(3, n) // 2) + 1)], None),
        "pool_index": (window, [image], "i4"),
        "attention": ({"scale": 0.4}, [normal(4, 70, 3), normal(2, n, 3), normal(2, n, 2), normal(70, n)], None),
        "attention_back": ({"scale": 0.4}, [normal(2, 70, 2), normal(2, 70, 3), normal(2, n, 3), normal(2, n, 2)], None),
        "uniform": ({"shape": (3, n), "salt": 4}, [number], None),
        "dropout": ({"p": 0.3, "salt": 4}, [x, number], None),
        "all_finite": ({}, [x], None),
        "unscale": ({}, [x, np.array([8.0])], None),
        "mean_squared_error": ({}, [x, y], None),
        "cross_entropy_classes": ({}, [y, ids[:, 0].copy()], None),
        "cross_entropy_classes_back": ({}, [np.array([2.5]), y, ids[:, 0].copy()], None),
    }[kind]  # fmt: skip
    want = engine_oracle.MEANING[kind](*operands, **params)
    terms = max((float(np.abs(o).max(initial=0)) for o in operands if o.dtype != np.int32), default=0.0)
    return Call(operands=operands, shape=want.shape, want=want, params=params, gives=gives, terms=terms)


def rounded(kind: str, n: int) -> Call:
    """Return a cast to a storage dtype; ml_dtypes says what it must give."""
    x = np.random.default_rng(n).standard_normal((3, n)).astype("f4").astype("f8")
    return Call(operands=[x], shape=x.shape, want=x.astype(kind).astype("f8"), params={"dtype": kind}, gives=kind)


def aligned(values: np.ndarray, offset: int = 0) -> np.ndarray:
    """Return a dense copy whose first element lies `offset` bytes behind a multiple of 4096."""
    raw = np.zeros(values.nbytes + 4096 + offset, np.uint8)
    start = -raw.ctypes.data % 4096 + offset
    copy = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def cast(made: Call, dtype: str) -> list[np.ndarray]:
    return [x if x.dtype == np.int32 else x.astype(dtype) for x in made.operands]


def run(kind: str, variant: str, made: Call, dtype: str, *, over: int | None = None, offset: int = 0) -> np.ndarray:
    """Run one call and return its result; `over` an operand, or apart, with arrays at `offset` bytes."""
    operands = [aligned(x, offset * i) for i, x in enumerate(cast(made, dtype), start=1)]
    out = operands[over] if over is not None else aligned(made.blank(dtype), offset)
    function, args = kernel(kind, variant).bind(made.params, tuple(operands), (out,))
    function(*args)
    return out.copy()


def bits(array: np.ndarray) -> bytes:
    return array.tobytes()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("kind", "variant"), VARIANTS)
def test_computes_what_the_oracle_computes(kind, variant, dtype):
    """Within rounding of float64 numpy, for every size, both rope modes, broadcasts and masks."""
    for n in SIZES:
        for seed in (0, 1):
            made = call(kind, n, seed, dtype)
            got = run(kind, variant, made, dtype)

            most = max(np.abs(made.want).max(initial=0), made.terms)
            assert np.abs(got - made.want).max(initial=0) <= TOLERANCE[dtype] * most, (
                n,
                seed,
            )


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("kind", "variant", "pair"), SAFE)
def test_declared_pairs_do_not_change_a_bit(kind, variant, pair, dtype):
    """With the result exactly over a declared operand of its layout, the bits are those of the run apart."""
    met = 0
    for n in SIZES:
        for made in (call(kind, n), square(kind, n)):
            operands = cast(made, dtype)
            if operands[min(pair[0], len(operands) - 1)].shape != made.shape or pair[0] >= len(operands):
                continue
            met += 1
            assert bits(run(kind, variant, made, dtype, over=pair[0])) == bits(run(kind, variant, made, dtype)), (
                n,
                pair,
            )
    assert met


def square(kind: str, n: int) -> Call:
    """Return a call whose second operand, if any, has the layout of the result."""
    made = call(kind, n)
    if kind not in {"add", "sub", "mul", "div", "add_inplace", "soft_max"}:
        return made
    first = made.operands[0]
    second = np.random.default_rng([3, n]).standard_normal(first.shape if kind != "soft_max" else first[0].shape)
    shape = second.shape
    return Call(
        operands=[first if kind != "soft_max" else first[0], second], shape=shape, params=made.params, want=made.want
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("kind", "variant"), VARIANTS)
def test_placement_does_not_change_a_bit(kind, variant, dtype):
    """Every multiple of 32 bytes is as good as any other, for each array independently."""
    for n in SIZES:
        made = call(kind, n)
        want = bits(run(kind, variant, made, dtype))
        for offset in (32, 64, 96, 160, 1056):
            assert bits(run(kind, variant, made, dtype, offset=offset)) == want, (n, offset)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", ["mul_mat", "out_prod"])
def test_placement_does_not_change_a_bit_of_thin_products(kind, dtype):
    """BLAS has other code for vectors and small matrices; it is as indifferent to placement."""
    rng = np.random.default_rng(0)
    for m, n, k in [(1, 64, 576), (64, 1, 576), (1, 1, 33), (64, 8, 7), (8, 577, 64), (2, 5, 1)]:
        shapes = [(n, k), (m, k)] if kind == "mul_mat" else [(k, n), (k, m)]
        made = Call(operands=[rng.standard_normal(s) for s in shapes], shape=(m, n), want=np.zeros((m, n)))
        want = bits(run(kind, "blas", made, dtype))
        for offset in (32, 96, 1056):
            assert bits(run(kind, "blas", made, dtype, offset=offset)) == want, (m, n, k, offset)


@pytest.mark.parametrize(("kind", "variant"), VARIANTS)
def test_a_second_run_repeats_the_first(kind, variant):
    """A call keeps no state: run twice on the same arrays it writes the same bits."""
    made = call(kind, 33)
    operands, out = cast(made, "f4"), made.blank("f4")
    function, args = kernel(kind, variant).bind(made.params, tuple(operands), (out,))
    function(*args)
    first = bits(out)
    out[...] = made.blank("f4")
    function(*args)

    assert bits(out) == first


BUFFERS = {"mul": 1, "avg_pool": 2, "avg_pool_back": 2, "acc": 2}
"""Kinds whose arithmetic goes over strided windows (of `mul`: an odd broadcast), and how many buffers numpy takes for that."""


@pytest.mark.parametrize(("kind", "variant"), VARIANTS)
def test_a_run_allocates_no_arrays(kind, variant):
    """All memory is bound before the run; only numpy's iterator for broadcasts and windows takes its buffers, of 8192 elements each."""
    made = call(kind, 1536)
    limit = 8192 * 8 * BUFFERS[kind] + 32768 if kind in BUFFERS else 4096

    assert peak(kind, variant, cast(made, "f8"), made) < limit


@pytest.mark.parametrize("kind", ["add", "sub", "mul"])
@pytest.mark.parametrize("second", [(6, 3, 1536), (3, 1536), (1536,)])
def test_ordinary_arithmetic_allocates_nothing(kind, second):
    """Equal shapes and operands that repeat over leading rows need no buffer."""
    first = np.ones((6, 3, 1536), "f4")
    made = Call(operands=[], shape=first.shape, want=first)

    assert peak(kind, default(kind), [first, np.ones(second, "f4")], made) < 1024


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n", [4095, 4096, 4096 + 7, 5 * 16 * 64 + 1])
def test_large_arithmetic_has_numpy_s_bits_apart_and_over_either_operand(n, dtype):
    """What compiled loops do a line at a time, with the odd elements at the end, is what numpy does."""
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal(n).astype(dtype) for _ in range(2))
    a[[3, n - 1]] = np.inf, np.nan
    for kind, ufunc in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
        want = ufunc(a, b)
        for over in (None, 0, 1):
            operands = [aligned(a, 4 * a.itemsize), aligned(b, a.itemsize)]
            out = aligned(np.full(n, 7, dtype)) if over is None else operands[over]
            function, args = kernel(kind).bind({}, tuple(operands), (out,))
            function(*args)
            np.testing.assert_array_equal(out, want)
    for over in (False, True):
        x = a.copy()
        out = x if over else np.full(n, 7, dtype)
        function, args = kernel("scale").bind({"s": 0.3}, (x,), (out,))
        function(*args)
        np.testing.assert_array_equal(out, a * np.dtype(dtype).type(0.3))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("width", [1, 16, 37])
def test_large_copies_take_rows_in_whatever_order_they_lie(width, dtype):
    """Heads first, positions first, a part of a wider array, one row for all, transposed; and nothing beside the result is written."""
    wide = np.random.default_rng(width).standard_normal((64, 72, width + 3)).astype(dtype)
    for x in (
        wide[..., :width].transpose(1, 0, 2),
        wide[::3, :, 2 : 2 + width],
        np.broadcast_to(wide[0, 0, :width], (64, 72, width)),
        wide.transpose(2, 0, 1),
        wide.transpose(0, 2, 1),
        wide[:61, 5:].T,
        wide[:, ::2].transpose(1, 2, 0),
    ):
        room = np.full(x.size + 64, 7, dtype)
        out = room[32:-32].reshape(x.shape)
        function, args = kernel("cont").bind({}, (x,), (out,))
        function(*args)
        np.testing.assert_array_equal(out, x)
        assert (room[:32] == 7).all()
        assert (room[-32:] == 7).all()


def peak(kind: str, variant: str, operands: list[np.ndarray], made: Call) -> int:
    """Return the bytes Python and numpy allocate during a second run."""
    out = np.zeros_like(made.blank(next((x.dtype.str for x in operands if x.dtype != np.int32), "f4")))
    function, args = kernel(kind, variant).bind(made.params, tuple(operands), (out,))
    function(*args)
    tracemalloc.start()
    try:
        function(*args)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("kind", "variant"), VARIANTS)
def test_strides_of_any_kind_are_taken(kind, variant):
    """Operands and results that are views with gaps give the values of dense ones."""
    made = call(kind, 33)
    dense = run(kind, variant, made, "f8")
    operands = tuple(gapped(x) for x in cast(made, "f8"))
    out = gapped(made.blank("f8"))
    function, args = kernel(kind, variant).bind(made.params, operands, (out,))
    function(*args)

    np.testing.assert_allclose(out, dense, rtol=1e-12, atol=1e-12)


def gapped(values: np.ndarray) -> np.ndarray:
    room = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
    view = room[..., ::2]
    view[...] = values
    return view


@pytest.mark.parametrize("kind", ["rms_norm_back", "soft_max_back"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_both_variants_agree_bit_for_bit_apart(kind, dtype):
    """Repairing the kernel changes nothing but what happens in place."""
    for n in SIZES:
        made = call(kind, n)
        assert bits(run(kind, "one_pass", made, dtype)) == bits(run(kind, "two_pass", made, dtype))


@pytest.mark.parametrize(("kind", "bad", "good"), [("rms_norm_back", 0, 1), ("soft_max_back", 1, 0)])
def test_two_pass_breaks_over_one_operand_and_not_the_other(kind, bad, good):
    """The planted defect is where ggml had it."""
    made = call(kind, 33)
    apart = run(kind, "two_pass", made, "f4")

    assert bits(run(kind, "two_pass", made, "f4", over=good)) == bits(apart)
    assert np.abs(run(kind, "two_pass", made, "f4", over=bad) - apart).max() > 0.01 * np.abs(apart).max()


def test_two_pass_gives_the_figures_measured_on_ggml():
    """rms_norm_back of dz = x = [1, 0, 0, 0] with eps 1e-4: 0.000799 apart, -3.9976 over dz."""
    unit = np.array([[1, 0, 0, 0]], np.float32)
    made = Call(operands=[unit, unit], shape=(1, 4), want=unit, params={"eps": 1e-4})

    assert run("rms_norm_back", "two_pass", made, "f4")[0, 0] == pytest.approx(0.000799, abs=1e-6)
    assert run("rms_norm_back", "two_pass", made, "f4", over=0)[0, 0] == pytest.approx(-3.9976, abs=1e-4)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_exp_is_right_over_its_whole_range(dtype):
    """swiglu with up = 1 is the logistic function times x: far tails underflow to zero and do not overflow."""
    x = np.linspace(-120, 120, 4801).astype(dtype)
    out = np.empty_like(x)
    function, args = kernel("silu").bind({}, (x,), (out,))
    function(*args)
    wide = x.astype("f8")

    np.testing.assert_allclose(out, wide / (1 + np.exp(-wide)), rtol=6e-7 if dtype == "f4" else 2e-15, atol=1e-35)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_exp_errs_by_no_more_than_its_docstring_says(dtype):
    """1.1 units in the last place over the normal range, vectors and the odd elements at the end alike; 0 below, NaN for NaN."""
    from numba import njit  # noqa: PLC0415 - only here

    from engine.kernels.compiled.row_primitives import exp  # noqa: PLC0415 - what is measured

    @njit(error_model="numpy")
    def exps(x, out):
        for i in range(x.size):
            out[i] = exp(x[i])

    info = np.finfo(dtype)
    if np.finfo(np.longdouble).nmant <= info.nmant:
        pytest.skip("this platform has no longer float to measure by")
    low, high = (math.log(float(info.tiny)) + 0.02, math.log(float(info.max)) - 0.5)
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(low, high, 200_000), 3 * rng.standard_normal(200_003)]).astype(dtype)
    out = np.empty_like(x)
    exps(x, out)
    want = np.exp(x.astype(np.longdouble))

    assert (np.abs(out - want) <= 1.1 * np.spacing(want.astype(dtype))).all()
    edge = np.array([2 * low, -np.inf, np.nan, 0], dtype)
    exps(edge, out)
    np.testing.assert_array_equal(out[:4], [0, 0, np.nan, 1])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", ["soft_max", "log_soft_max", "cross_entropy_classes", "cross_entropy_classes_back"])
def test_a_nan_of_either_sign_anywhere_in_a_row_makes_all_of_it_nan(kind, dtype):
    """The search for the largest may pass a NaN over; what is made of the row may not. Other rows stay as they are."""
    n = 600
    x = np.random.default_rng(5).standard_normal((3, n)).astype(dtype)
    classes = np.array([2, 0, 1], np.int32)
    besides = {
        "cross_entropy_classes": ((), (classes,)),
        "cross_entropy_classes_back": ((np.ones(1, dtype),), (classes,)),
    }
    before, behind = besides.get(kind, ((), ()))
    for at in (0, 5, 255, 256, n - 1):
        for sign in (1, -1):
            given, out = x.copy(), np.zeros(1 if kind == "cross_entropy_classes" else (3, n), dtype)
            given[1, at] = np.copysign(np.nan, sign)
            function, args = kernel(kind).bind({}, (*before, given, *behind), (out,))
            function(*args)

            assert np.isnan(out.reshape(-1, 1) if out.size == 1 else out[1]).all()
            assert out.size == 1 or np.isfinite(out[[0, 2]]).all()


def test_soft_max_of_masked_rows_is_exactly_zero_there():
    """A mask of -inf leaves nothing, and the rest sums to one."""
    x, mask = np.zeros((2, 3, 3), "f4"), np.triu(np.full((3, 3), -np.inf, "f4"), 1)
    out = np.empty_like(x)
    function, args = kernel("soft_max").bind({"scale": 1.0}, (x, mask), (out,))
    function(*args)

    assert (out[:, mask == -np.inf] == 0).all()
    np.testing.assert_allclose(out.sum(-1), 1, rtol=1e-6)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("shape", [(2, 1, 1, 5), (2, 1, 3, 5), (1, 4, 1, 5), (2, 3, 5), (4, 1, 5), (1, 1, 3, 5), (5,)])
def test_a_mask_repeats_along_each_axis_by_itself(shape, executor, rng):
    """One for all heads of a batch, one for all rows of a head, one for every other head."""
    graph = Graph("masked")
    x, mask = rng.standard_normal((2, 4, 3, 5)), rng.standard_normal(shape)
    made = graph.op("soft_max", graph.input("x", x.shape, "f64"), graph.input("mask", shape, "f64"), name="y")
    graph.expand(made)
    lowered = lower(graph, (made,))
    with Runtime(lowered, find("reference").plan(lowered.program), parameters={}, executor=executor) as runtime:
        found = runtime.run({"x": x, "mask": mask})["y"]
    aligned = mask.reshape((1,) * (4 - mask.ndim) + shape)
    wide = np.tile(aligned, [n // m for n, m in zip(x.shape, aligned.shape, strict=True)])
    np.testing.assert_allclose(found, softmax(x + wide), rtol=1e-12)


HIDING = {
    *("get_rows", "get_rows_back", "mul_mat", "out_prod"),
    "set_rows",  # replaces rows
    *("gather", "im2col", "im2col_back", "avg_pool"),  # leave out what no index names and no window shows
    *("argmax", "argsort", "pool_index", "count_equal", "all_finite"),  # give indices, counts, flags
    *COMPARISONS,  # say what is true, and by IEEE 754 nothing but != is true of a NaN
    "unscale",  # is there to take away what is not finite
    "send",  # has an empty result
}


@pytest.mark.parametrize("kind", [k for k in KERNELS if k not in HIDING])
def test_a_poisoned_element_shows_in_the_result(kind):
    """NaN spreads: a kernel never hides memory that was overwritten."""
    made = call(kind, 64)
    for position, operand in enumerate(made.operands):
        if operand.dtype == np.int32 or (kind == "where" and position):  # what is not chosen is not seen
            continue
        operands = [x.copy() for x in cast(made, "f4")]
        operands[position][(0,) * operand.ndim] = np.nan
        out = np.zeros_like(made.blank("f4"))
        function, args = kernel(kind).bind(made.params, tuple(operands), (out,))
        function(*args)

        assert np.isnan(out.astype("f8")).any(), position


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_gradients_of_a_loss_over_classes_have_no_subnormal_numbers(dtype):
    """Logits over the whole range of exp: what would be subnormal is 0, all else is what it is, and NaN stays."""
    tiny = np.finfo(dtype).tiny
    span = -math.log(float(tiny)) + 20
    logits = np.linspace(-span, 0, 4001).astype(dtype)[None]
    soft = softmax(logits.astype("f8")) if dtype == "f4" else None
    labels, classes = np.eye(4001, dtype=dtype)[4000:], np.array([4000], np.int32)
    for kind, last in (("cross_entropy_loss_back", labels), ("cross_entropy_classes_back", classes)):
        for poisoned in (False, True):
            given, out = logits.copy(), np.empty_like(logits)
            given[0, 0] = np.nan if poisoned else given[0, 0]
            function, args = kernel(kind).bind({}, (np.full(1, 1 / 64, dtype), given, last), (out,))
            function(*args)

            assert np.isnan(out).any() == poisoned
            assert not (np.abs(out[out != 0]) < tiny).any()
            if soft is not None and not poisoned:
                want = soft[0, :-1] / 64
                np.testing.assert_allclose(out[0, :-1], np.where(want < tiny, 0, want), rtol=4e-6, atol=2 * tiny)


@pytest.mark.parametrize("bad", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_class_out_of_range_makes_the_loss_and_its_row_nan(bad):
    """And no other row of the gradient."""
    logits, loss, back = np.ones((2, 3), "f4"), np.zeros(1, "f4"), np.zeros((2, 3), "f4")
    classes = np.array([1, bad], np.int32)
    for kind, operands, out in (
        ("cross_entropy_classes", (logits, classes), loss),
        ("cross_entropy_classes_back", (np.ones(1, "f4"), logits, classes), back),
    ):
        function, args = kernel(kind).bind({}, operands, (out,))
        function(*args)

    assert np.isnan(loss[0])
    assert np.isnan(back[1]).all()
    np.testing.assert_allclose(back[0], [1 / 6, -1 / 3, 1 / 6], rtol=1e-6)


@pytest.mark.parametrize("bad", [-1, 3, 2**31 - 1, -(2**31)])
def test_an_index_out_of_range_gives_nan_and_no_wild_read(bad):
    """An index tensor overwritten by something else is visible in the result."""
    ids = np.array([1, bad, 0], np.int32)
    table, rows, back, over = np.ones((3, 4), "f4"), *np.zeros((3, 3, 4), "f4")
    for kind, operands, out in (
        ("get_rows", (table, ids), rows),
        ("get_rows_back", (table, ids), back),
        ("set_rows", (over, table, ids), over),
    ):
        function, args = kernel(kind).bind({"rows": 3}, operands, (out,))
        function(*args)

    assert np.isnan(rows[1]).all()
    assert (rows[[0, 2]] == 1).all()
    assert (over[1] == 1).all()
    assert np.isnan(back[0]).all()
    assert np.isnan(over[0]).all()


def test_rope_back_undoes_rope():
    """A rotation's transpose is its inverse, at positions inside and outside the table."""
    x, pos = np.random.default_rng(0).standard_normal((4, 3, 64)), np.array([0, 1023, 1024, -7], np.int32)
    params = {"base": 1e5, "dims": 64, "mode": "neox"}
    turned, back = np.empty_like(x), np.empty_like(x)
    for kind, a, b in (("rope", x, turned), ("rope_back", turned, back)):
        function, args = kernel(kind).bind(params, (a, pos), (b,))
        function(*args)

    np.testing.assert_allclose(back, x, rtol=0, atol=1e-13)


F4 = np.zeros((4, 6), "f4")


@pytest.mark.parametrize(
    ("kind", "params", "operands", "shape"),
    [
        ("rms_norm", {"eps": EPS}, (F4,), (4, 5)),
        ("rms_norm_back", {"eps": EPS}, (F4, F4.astype("f8")), (4, 6)),
        ("soft_max", {}, (F4, F4[:3]), (4, 6)),
        ("add", {}, (F4, F4[:3]), (4, 6)),
        ("mul", {}, (F4, F4), (6, 4)),
        ("mul_mat", {}, (F4, F4[:, :5]), (4, 4)),
        ("mul_mat", {}, (np.zeros((2, 4, 6), "f4"), np.zeros((3, 4, 6), "f4")), (3, 4, 4)),
        ("out_prod", {}, (F4, F4), (4, 4)),
        ("get_rows", {}, (F4, np.zeros(3, "i8")), (3, 6)),
        ("get_rows_back", {"rows": 9}, (F4, np.zeros(4, "i4")), (8, 6)),
        ("rope", {"base": 1e4, "dims": 3}, (np.zeros((4, 1, 6), "f4"), np.zeros(4, "i4")), (4, 1, 6)),
        ("rope", {"base": 1e4, "mode": "other"}, (np.zeros((4, 1, 6), "f4"), np.zeros(4, "i4")), (4, 1, 6)),
        ("opt_step_sgd", {}, (F4, F4, np.zeros(3, "f4")), (4, 6)),
        ("cross_entropy_loss", {}, (F4, F4), (4,)),
        ("cont", {}, (F4,), (5, 5)),
    ],
)
def test_misuse_is_refused_when_bound(kind, params, operands, shape):
    """Compiled code checks nothing, so bind does."""
    with pytest.raises(EngineError, match=rf"{kind.split('_')[0]}|copy"):
        kernel(kind).bind(params, operands, (np.zeros(shape, "f4"),))


def test_names_that_do_not_exist_are_refused_with_the_near_ones():
    """Tables are looked up with help."""
    with pytest.raises(UnknownNameError, match="rms_norm"):
        default("rms_nrm")
    with pytest.raises(UnknownNameError, match="two_pass"):
        kernel("rms_norm_back", "twopass")


def test_defaults_declare_and_the_safe_variant_comes_first():
    """The default of both repaired kernels is the one that reads before it writes."""
    assert default("rms_norm_back") == default("soft_max_back") == "one_pass"
    assert KERNELS["rms_norm_back"]["two_pass"].in_place == ((0, 0), (1, 0))
    assert KERNELS["soft_max_back"]["two_pass"].in_place == ((0, 0), (1, 0))


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_mask_of_no_rows_fits_no_rows_and_nothing_else():
    """Zero queries have a mask of zero rows; any other rows have none to repeat."""
    bind, mask, none = kernel("soft_max").bind, np.zeros((0, 5), "f4"), np.zeros((2, 0, 5), "f4")
    function, args = bind({}, (none, mask), (none.copy(),))
    function(*args)

    with pytest.raises(EngineError, match="does not repeat over"):
        bind({}, (np.zeros((2, 3, 5), "f4"), mask), (np.zeros((2, 3, 5), "f4"),))


def test_importing_kernels_does_not_load_numba():
    """numba costs a third of a second; the command's help must not pay it."""
    assert python("import sys, engine.kernels, engine.k_audit; print('numba' in sys.modules)") == "False"


SILU = """
import numpy as np
from engine.kernels import kernel
x = np.ones(9, "f4"); y = np.zeros(9, "f4")
function, args = kernel("silu").bind({}, (x,), (y,)); function(*args); print(y[0] > 0.73)
"""


def test_kernels_kept_on_disk_are_not_taken_once_any_file_of_theirs_has_changed(monkeypatch, tmp_path):
    """numba looks at the file of a kernel alone; what is compiled into it stands in others."""
    import numba  # noqa: PLC0415 - only here

    from engine.kernels.compiled import jit, maps  # noqa: PLC0415 - loads numba
    from engine.kernels.loading import load  # noqa: PLC0415 - loads numba

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def found():
        dispatcher = jit.kernel(maps.sigmoid.py_func)
        kept = load(dispatcher, (numba.float32[::1], numba.float32[::1]))
        jit.entry(dispatcher, (np.zeros(3, "f4"), np.zeros(3, "f4")))
        return kept

    assert [found(), found()] == [False, True]
    here, copied = Path(jit.__file__).parent, tmp_path / "copied"
    shutil.copytree(here, copied)
    assert jit._digest(copied) == jit.DIGEST
    for source in sorted(copied.glob("*.py")):
        before = jit._digest(copied)
        source.write_bytes(source.read_bytes() + b"\n")
        assert jit._digest(copied) != before
    monkeypatch.setattr(jit, "DIGEST", jit._digest(copied))
    assert [found(), found()] == [False, True]


NO_FOLDER = "from numba.core import caching; caching.CacheImpl._locator_classes = []"
NO_WRITING = """
from numba.core import caching
def refuse(*_): raise PermissionError("read-only")
caching.IndexDataCacheFile.load = lambda *_: None
caching.IndexDataCacheFile.save = refuse
"""


@pytest.mark.parametrize("breakage", [NO_FOLDER, NO_WRITING], ids=["no folder", "read-only folder"])
def test_kernels_work_where_no_cache_can_be_written(breakage):
    """An installed package on a read-only disk compiles each time and is silent about it."""
    assert python(breakage + SILU) == "True"
