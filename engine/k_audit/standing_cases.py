"""The standing cases of detector K: shapes of the calls, for each kind of kernel.

Every operand that can have the layout of the result has it in some case.

Sizes: rows of 1, 7, 33 and 576 elements (a scalar loop, less than a vector, vectors and a tail, a
real row), in 1 and 3 rows; kernels that take operands of the result's shape also a row longer than
numpy's buffer, for those that go block by block. Shapes are numpy's. What this module does not see:
dtypes, data, kernels. One line for each kind; a new kind of kernel needs one here, unless it is an
element-wise function of one argument.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.ops.attention import ROPE_MODES
from engine.ops.element_functions import COMPARISONS, UNARY
from engine.ops.shapes import STORED

Shape = tuple[int, ...]

SIZES: Final = (1, 7, 33, 576)
"""Elements of a row."""
COUNTS: Final = (1, 3)
"""Rows."""
LONG: Final = 16411
"""Elements of a long row: a prime beyond two of numpy's buffers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallShapes:
    """One call: shapes of the operands and of the result."""

    operands: tuple[Shape, ...]
    result: Shape
    params: Mapping[str, Any] = field(default_factory=dict)
    indices: frozenset[int] = frozenset()
    """Positions of int32 operands."""
    dtype: str | None = None
    """Of the result, where it is not that of the operands."""


def _each(make: Callable[[int, int], Iterable[CallShapes]]) -> Callable[[], tuple[CallShapes, ...]]:
    return lambda: tuple(shapes for n in SIZES for r in COUNTS for shapes in make(r, n))


def _call(
    *operands: Shape, to: Shape, indices: tuple[int, ...] = (), gives: str | None = None, **params: Any
) -> CallShapes:
    return CallShapes(operands=operands, result=to, params=params, indices=frozenset(indices), dtype=gives)


def _rows(count: int, **params: Any) -> Callable[[], tuple[CallShapes, ...]]:
    """`count` operands of the result's shape."""
    each = _each(lambda r, n: [_call(*[(r, n)] * count, to=(r, n), **params)])
    return lambda: (*each(), _call(*[(1, LONG)] * count, to=(1, LONG), **params))


def _square(r: int, n: int, count: int) -> list[CallShapes]:
    """`count` square operands; there are no rows to vary, so it comes once for each size."""
    return [_call(*[(n, n)] * count, to=(n, n))] if r == COUNTS[0] else []


def _broadcasts(r: int, n: int) -> list[CallShapes]:
    second: list[Shape] = [(2, r, n), (r, n), (n,), (1, n), (2, 1, n), (2, r, 1)]
    return [_call((2, r, n), b, to=(2, r, n)) for b in second] + [_call((6, n), (2, n), to=(6, n))]


def _soft_max(r: int, n: int) -> list[CallShapes]:
    return [
        _call((r, n), to=(r, n), scale=0.3),
        _call((r, n), (r, n), to=(r, n), scale=0.3),
        _call((2, r, n), (r, n), to=(2, r, n), scale=1.0),
    ]


def _rope(r: int, n: int) -> list[CallShapes]:
    return [
        _call(heads, (r,), to=heads, indices=(1,), base=1e4, dims=2 * n, mode=mode)
        for heads in ((r, 2, 2 * n), (r, 2, 2 * n + 3))  # all of a head is turned, or the first of it
        for mode in ROPE_MODES
    ]


_EACH: Final[Mapping[str, Any]] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
"""Windows of a convolution that move pixel by pixel."""

_ONE: Final[Mapping[str, Any]] = {"kernel": (1, 1), "stride": (1, 1), "padding": (0, 0)}
"""A window of one element."""


def _images(r: int, n: int) -> list[Shape]:
    return [(r, 2, 3, n), (1, 1, 1, n)]


def _columns(r: int, n: int) -> list[CallShapes]:
    """A column of pixels, each a window of its own: equal in layout to its columns where n is 1."""
    return [_call((r, 1, n, 1), to=(r, n, 1, 1), dilation=(1, 1), **_ONE)]


def _columns_back(r: int, n: int) -> list[CallShapes]:
    return [_call((r, n, 1, 1), to=(r, 1, n, 1), shape=(r, 1, n, 1), dilation=(1, 1), **_ONE)]


CASES: Final[dict[str, Callable[[], tuple[CallShapes, ...]]]] = {
    "get_rows": _each(lambda r, n: [_call((r, n), (r,), to=(r, n), indices=(1,))]),
    "get_rows_back": _each(lambda r, n: [_call((r, n), (r,), to=(r, n), indices=(1,), rows=r)]),
    "set_rows": _each(lambda r, n: [_call((r, n), (r, n), (r,), to=(r, n), indices=(2,))]),
    "rms_norm": _rows(1, eps=1e-5),
    "rms_norm_back": _rows(2, eps=1e-5),
    "soft_max": _each(_soft_max),
    "soft_max_back": _rows(2, scale=0.3),
    "add": _each(_broadcasts),
    "sub": _each(_broadcasts),
    "mul": _each(_broadcasts),
    "add_inplace": _each(_broadcasts),
    "div": _each(_broadcasts),
    "maximum": _each(_broadcasts),
    "minimum": _each(_broadcasts),
    "where": _rows(3),
    "power": _rows(2),
    **{kind: _each(_broadcasts) for kind in COMPARISONS},
    **{kind: _rows(1) for kind in (*UNARY, "log_soft_max", "silu")},
    **{kind: _rows(2) for kind in ("gelu_back", "gelu_erf_back", "log_soft_max_back", "silu_back", "swiglu")},
    "pow": _rows(1, p=3.0),
    "clamp": _rows(1, low=-0.5, high=0.5),
    "clamp_back": _rows(2, low=-0.5, high=0.5),
    "norm": _rows(1, eps=1e-5),
    "norm_back": _rows(2, eps=1e-5),
    "scale": _rows(1, s=0.7),
    "repeat": _each(lambda r, n: [_call((r, n), to=(r, n), shape=(r, n))]),
    "repeat_back": _each(lambda r, n: [_call((r, n), to=(r, n), shape=(r, n))]),
    "sum": _each(lambda r, n: [_call((r, n), to=(1,)), _call((1,), to=(1,))]),
    "mul_mat": _each(lambda r, n: [_call((n, n), (r, n), to=(r, n)), *_square(r, n, 2)]),
    "out_prod": _each(lambda r, n: [_call((r, n), (r, r), to=(r, n)), *_square(r, n, 2)]),
    "add_out_prod": _each(lambda r, n: [_call((r, n), (n, n), (n, r), to=(r, n)), *_square(r, n, 3)]),
    "rope": _each(_rope),
    "rope_back": _each(_rope),
    "cont": _rows(1),
    "cpy": _rows(1),
    "view_back": _each(
        lambda r, n: [
            _call((r, n), to=(r, n), shape=(r, n), strides=(n, 1), offset=0),
            _call((r, n), to=(r, n), shape=(r, n), strides=(0, 1), offset=0),
        ]
    ),
    "pad": _each(lambda r, n: [_call((r, n), to=(r, n), before=(0, 0), after=(0, 0))]),
    "concat": _each(lambda r, n: [_call((r, n), (0, n), to=(r, n), axis=0), _call((0, n), (r, n), to=(r, n), axis=0)]),
    **{
        kind: _each(
            lambda r, n: [
                _call((r, n), (r, n), to=(r, n), starts=(0, 0)),
                _call((r, n), (r, 1), to=(r, n), starts=(0, n - 1)),
            ]
        )
        for kind in ("acc", "set")
    },
    "full": _each(lambda r, n: [_call(to=(r, n), value=0.5)]),
    "gather": _each(lambda r, n: [_call((r, n), (r, n), to=(r, n), indices=(1,), axis=-1)]),
    "scatter": _each(lambda r, n: [_call((r, n), (r, n), to=(r, n), indices=(1,), axis=-1, length=n)]),
    "sum_axes": _each(lambda r, n: [_call((r, n), to=(1, n), axes=(0,)), _call((1, n), to=(1, n), axes=(0,))]),
    "mean": _each(lambda r, n: [_call((r, n), to=(1, n), axes=(0,)), _call((1, n), to=(1, n), axes=(0,))]),
    "argmax": _each(lambda r, n: [_call((r, n), to=(r,), axis=-1, gives="i32")]),
    "argsort": _each(lambda r, n: [_call((r, n), to=(r, n), axis=-1, gives="i32")]),
    "count_equal": _each(lambda r, n: [_call((r, n), (r, n), to=(1,), indices=(0, 1), gives="i32")]),
    "im2col": _each(_columns),
    "im2col_back": _each(_columns_back),
    "conv_2d": _each(
        lambda r, n: [
            _call((1, 2, r, n), (2, 2, 1, 1), to=(1, 2, r, n), **_EACH),
            _call((1, 1, r, n), (1, 1, r, n), to=(1, 1, 1, 1), **_EACH),
            _call((1, 1, 1, 1), (n, 1, 1, 1), to=(1, n, 1, 1), **_EACH),
        ]
    ),
    "conv_2d_back_x": _each(
        lambda r, n: [
            _call((1, 2, r, n), (2, 2, 1, 1), to=(1, 2, r, n), shape=(1, 2, r, n), **_EACH),
            _call((1, 1, 1, 1), (1, 1, r, n), to=(1, 1, r, n), shape=(1, 1, r, n), **_EACH),
        ]
    ),
    "conv_2d_back_w": _each(
        lambda r, n: [
            _call((1, 1, 1, 1), (1, 1, r, n), to=(1, 1, r, n), shape=(1, 1, r, n), **_EACH),
            _call((1, n, 1, 1), (1, 1, 1, 1), to=(n, 1, 1, 1), shape=(n, 1, 1, 1), **_EACH),
        ]
    ),
    "avg_pool": _each(lambda r, n: [_call(x, to=x, **_ONE) for x in _images(r, n)]),
    "avg_pool_back": _each(lambda r, n: [_call(x, to=x, shape=x, **_ONE) for x in _images(r, n)]),
    "pool_index": _each(lambda r, n: [_call(x, to=x, gives="i32", **_ONE) for x in _images(r, n)]),
    "attention": _each(
        lambda r, n: [
            _call((2, r, n), (1, 3, n), (1, 3, n), (r, 3), to=(2, r, n), scale=0.3),
            _call((1, r, n), (1, r, n), (1, r, n), to=(1, r, n), scale=0.3),
        ]
    ),
    "attention_back": _each(
        lambda r, n: [_call((2, r, n), (2, r, n), (1, 3, n), (1, 3, n), to=(2 * n * (r + 3),), scale=0.3)]
    ),
    "uniform": _each(lambda r, n: [_call((1,), to=(r, n), indices=(0,), salt=1)]),
    "dropout": _each(lambda r, n: [_call((r, n), (1,), to=(r, n), indices=(1,), p=0.3, salt=1)]),
    "cast": _each(lambda r, n: [_call((r, n), to=(r, n), dtype=dtype, gives=dtype) for dtype in STORED]),
    "all_finite": _each(lambda r, n: [_call((r, n), to=(1,)), _call((1,), to=(1,))]),
    "unscale": _each(lambda r, n: [_call((r, n), (1,), to=(r, n)), _call((1,), (1,), to=(1,))]),
    "mean_squared_error": _each(lambda r, n: [_call((r, n), (r, n), to=(1,)), _call((1,), (1,), to=(1,))]),
    "cross_entropy_loss": _each(lambda r, n: [_call((r, n), (r, n), to=(1,)), _call((1,), (1,), to=(1,))]),
    "cross_entropy_loss_back": _each(
        lambda r, n: [_call((1,), (r, n), (r, n), to=(r, n)), _call((1,), (1,), (1,), to=(1,))]
    ),
    "cross_entropy_classes": _each(
        lambda r, n: [_call((r, n), (r,), to=(1,), indices=(1,)), _call((1, 1), (1,), to=(1,), indices=(1,))]
    ),
    "cross_entropy_classes_back": _each(
        lambda r, n: [
            _call((1,), (r, n), (r,), to=(r, n), indices=(2,)),
            _call((1,), (1, 1), (1,), to=(1, 1), indices=(2,)),
        ]
    ),
    "opt_step_sgd": _each(lambda r, n: [_call((r, n), (r, n), (2,), to=(r, n)), _call((2,), (2,), (2,), to=(2,))]),
    **{
        kind: _each(lambda r, n: [_call((r, n), (r, n), (1,), to=(r, n)), _call((1,), (1,), (1,), to=(1,))])
        for kind in ("adamw_m", "adamw_v")
    },
    "opt_step_adamw": _each(
        lambda r, n: [_call((r, n), (r, n), (r, n), (5,), to=(r, n)), _call((5,), (5,), (5,), (5,), to=(5,))]
    ),
    **{kind: _rows(1, ranks=1, group="world") for kind in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")},
    **{kind: _rows(1, ranks=1, group="world", root=0) for kind in ("broadcast", "reduce")},
    "send_receive": _rows(1, ranks=1, group="world", by=0),
    "all_gather_over": _rows(1, ranks=1, group="world"),
    "own_part": _each(lambda r, n: [_call((r * n,), to=(r * n,), ranks=1, group="world")]),
    "send": _each(lambda r, n: [_call((r, n), to=(0,), ranks=1, group="world", peer=0)]),
    "recv": _each(lambda r, n: [_call(to=(r, n), ranks=1, group="world", peer=0)]),
}
"""kind -> its cases."""
