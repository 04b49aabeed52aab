"""Element-wise functions of one argument, quotients, extrema and choices.

| kind | computes | derivative by |
|---|---|---|
| neg abs sgn step relu | -x, |x|, sign, x > 0, max(x, 0) | 0 for sgn and step; at 0: abs 0, relu 0, as ggml's |
| floor round | the next whole number below, the nearest (of two the even one) | 0 |
| exp expm1 log log1p sqrt sqr sin cos atan tanh sigmoid softplus erf | as named | x; at the borders of a domain what the formula gives |
| gelu gelu_erf | x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), x/2 (1 + erf(x / sqrt 2)) | x |
| clamp | min(max(x, low), high) | x, where low <= x <= high |
| pow | x ** p for a constant p | x |
| power | a ** b, one shape | a and b; 0 where b is 0, and where a is 0 and b is not negative |
| equal not_equal less less_equal greater greater_equal | 1 where it holds, else 0, b repeating into a | none |
| div | a / b, b repeating into a | a and b |
| maximum minimum | of a and b, b repeating into a | a and b; a tie is a's |
| where | a where cond is 1, b where it is 0 | a and b; cond holds zeros and ones only |

Where a choice was not taken, its gradient is 0 whatever came back, infinity and NaN too: chosen,
not multiplied by a mask.

Sources of formulas: ggml's `ggml_compute_backward` (d99724f2) for those it has. Derivatives are
built of ordinary ops wherever that is exact, so they can be differentiated again; `gelu_back` and
`gelu_erf_back` are ops of their own.
"""

from math import inf, pi, sqrt
from typing import Any

from allocsim.errors import EngineError
from engine.ops.elementwise import broadcast
from engine.ops.row import row
from engine.ops.rule import Derivative, ResultLayout, Tensor
from engine.ops.shapes import like, repeats_into

_GELU_BACK = f"""
k, c = {2 * sqrt(2 / pi)!r}, 0.044715
cube = mul(sqr(x), x)
s = sigmoid(scale(add(x, scale(cube, s=c)), s=k))
inner = scale(add(x, scale(cube, s=3 * c)), s=k)
mul(dy, add(s, mul(inner, sub(s, sqr(s)))))
"""
"""dy * (s + x s (1 - s) k (1 + 3 c x^2))."""

_GELU_ERF_BACK_X = f"""
square = sqr(x)
density = scale(exp(scale(square, s=-0.5)), s={1 / sqrt(2 * pi)!r})
bend = sub(scale(density, s=2.0), mul(density, square))
mul(mul(g, dy), bend)
"""
"""g * dy * (Phi + x phi)', which is phi (2 - x^2), phi = exp(-x^2 / 2) / sqrt(2 pi)."""


def _relu_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("clamp_back", grad, node.sources[0], low=_LEAST[node.dtype], high=inf)


_LEAST = {"f32": 2.0**-149, "f64": 2.0**-1074}
"""The smallest number above 0."""


def _compared(_params: dict[str, Any], a: Tensor, b: Tensor) -> ResultLayout:
    """Shape rule of a comparison: shaped like a, b repeating into it; whole numbers too."""
    if a.dtype != b.dtype or a.dtype not in COMPARED:
        raise EngineError(f"{a} cannot be compared with {b}; two of one dtype of {', '.join(COMPARED)} can")
    if not repeats_into(b.shape, a.shape):
        raise EngineError(f"{b} does not repeat into {a}")
    return ResultLayout(shape=a.shape, dtype=a.dtype)


def _bounds(params: dict[str, Any], *sources: Tensor) -> ResultLayout:
    layout = like("low", "high")(params, *sources)
    if not params["low"] <= params["high"]:
        raise EngineError(f"low {params['low']} is not below high {params['high']}")
    return layout


UNARY: dict[str, "Derivative | str | None"] = {
    "neg": "scale(g, s=-1.0)",
    "abs": "mul(g, sgn(x))",
    **dict.fromkeys(("sgn", "step", "floor", "round")),
    "relu": _relu_x,
    "exp": "mul(g, r)",
    "expm1": "mul(g, exp(x))",
    "log": "div(g, x)",
    "log1p": "div(g, add(x, filled(x, 1.0)))",
    "sqrt": "scale(div(g, r), s=0.5)",
    "sqr": "scale(mul(g, x), s=2.0)",
    "sin": "mul(g, cos(x))",
    "cos": "neg(mul(g, sin(x)))",
    "atan": "div(g, add(sqr(x), filled(x, 1.0)))",
    "erf": f"mul(g, scale(exp(neg(sqr(x))), s={2 / sqrt(pi)!r}))",
    "tanh": "sub(g, mul(g, sqr(r)))",
    "sigmoid": "mul(g, sub(r, sqr(r)))",
    "softplus": "mul(g, sigmoid(x))",
    "gelu": "gelu_back(g, x)",
    "gelu_erf": "gelu_erf_back(g, x)",
}
"""Kind -> derivative, None where it is zero by definition."""

COMPARED = ("f32", "f64", "i32")
"""What two sides of a comparison may both be."""

COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")

_LIMITS = {"low": -inf, "high": inf}

RULES = (
    *(row(f"{kind}(x)", like(), x=slope) for kind, slope in UNARY.items()),
    row("gelu_back(dy, x)", like(), dy="gelu_back(g, x)", parts=_GELU_BACK),
    row("gelu_erf_back(dy, x)", like(), dy="gelu_erf_back(g, x)", x=_GELU_ERF_BACK_X),
    row("clamp(x)", _bounds, params=_LIMITS, x="clamp_back(g, x, **params)"),
    row("clamp_back(dy, x)", _bounds, params=_LIMITS, dy="clamp_back(g, x, **params)", x=None),
    row(  # 0 * x^-1 is no number at 0
        "pow(x, *, p)", like("p"), x="scale(g, s=0.0) if p == 0 else mul(g, scale(pow(x, p=p - 1), s=p))"
    ),
    row(  # b a^(b - 1), and 0 where b is 0; a^b log(a), and 0 where a is 0 and b not negative: the limit there
        "power(a, b)",
        like(),
        a="slope = mul(g, mul(b, power(a, sub(b, filled(b, 1.0))))); where(equal(b, filled(b, 0.0)), filled(g, 0.0), slope)",
        b="flat = mul(equal(a, filled(a, 0.0)), greater_equal(b, filled(b, 0.0)));"
        "where(flat, filled(g, 0.0), mul(g, mul(r, log(a))))",
    ),
    *(row(f"{kind}(a, b)", _compared, a=None, b=None) for kind in COMPARISONS),
    row("div(a, b)", broadcast, a="div(g, b)", b="summed(neg(div(mul(g, r), b)), b)"),
    *(
        row(
            f"{kind}(a, b)",
            broadcast,
            a=f"where({loses}(a, b), filled(g, 0.0), g)",
            b=f"summed(where({loses}(a, b), g, filled(g, 0.0)), b)",
        )
        for kind, loses in (("maximum", "less"), ("minimum", "greater"))
    ),
    row("where(cond, a, b)", like(), a="where(cond, g, filled(g, 0.0))", b="where(cond, filled(g, 0.0), g)", cond=None),
)
