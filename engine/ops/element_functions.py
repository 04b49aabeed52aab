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
from engine.ops.elementwise import broadcast, unbroadcast
from engine.ops.pullback import by_parts
from engine.ops.rule import REQUIRED, Derivative, ResultLayout, Rule, Sources, Tensor
from engine.ops.shapes import floating, like, repeats_into, same_shape


def _times(kind: str) -> Derivative:
    """Return the rule grad * kind(x)."""

    def rule(node: Tensor, grad: Tensor) -> Tensor:
        return node.graph.op("mul", grad, node.graph.op(kind, node.sources[0]))

    return rule


def _scaled(s: float) -> Derivative:
    def rule(node: Tensor, grad: Tensor) -> Tensor:
        return node.graph.op("scale", grad, s=s)

    return rule


def _back(kind: str) -> Derivative:
    def rule(node: Tensor, grad: Tensor) -> Tensor:
        return node.graph.op(kind, grad, node.sources[0])

    return rule


def _exp_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("mul", grad, node)


def _log_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("div", grad, node.sources[0])


def _log1p_x(node: Tensor, grad: Tensor) -> Tensor:
    x = node.sources[0]
    return node.graph.op("div", grad, node.graph.op("add", x, _full(x, 1.0)))


def _atan_x(node: Tensor, grad: Tensor) -> Tensor:
    x = node.sources[0]
    return node.graph.op("div", grad, node.graph.op("add", node.graph.op("sqr", x), _full(x, 1.0)))


def _erf_x(node: Tensor, grad: Tensor) -> Tensor:
    """Return grad * 2 / sqrt(pi) * exp(-x^2)."""
    op = node.graph.op
    slope = op("scale", op("exp", op("neg", op("sqr", node.sources[0]))), s=2 / sqrt(pi))
    return op("mul", grad, slope)


def _sqrt_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("scale", node.graph.op("div", grad, node), s=0.5)


def _sqr_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("scale", node.graph.op("mul", grad, node.sources[0]), s=2.0)


def _cos_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("neg", node.graph.op("mul", grad, node.graph.op("sin", node.sources[0])))


def _tanh_x(node: Tensor, grad: Tensor) -> Tensor:
    graph = node.graph
    return graph.op("sub", grad, graph.op("mul", grad, graph.op("sqr", node)))


def _sigmoid_x(node: Tensor, grad: Tensor) -> Tensor:
    graph = node.graph
    return graph.op("mul", grad, graph.op("sub", node, graph.op("sqr", node)))


def _again(kind: str) -> Derivative:
    """Return the rule for the gradient argument of a `_back` op that multiplies it element by
    element.
    """

    def rule(node: Tensor, grad: Tensor) -> Tensor:
        return node.graph.op(kind, grad, node.sources[1], **node.params)

    return rule


def _gelu_back_parts(node: Tensor, dy: Tensor, x: Tensor) -> Tensor:
    """Return dy * (s + x s (1 - s) k (1 + 3 c x^2)), s = sigmoid(k (x + c x^3)), c = 0.044715, k =
    2 sqrt(2 / pi).
    """
    op, k, c = node.graph.op, 2 * sqrt(2 / pi), 0.044715
    cube = op("mul", op("sqr", x), x)
    s = op("sigmoid", op("scale", op("add", x, op("scale", cube, s=c)), s=k))
    inner = op("scale", op("add", x, op("scale", cube, s=3 * c)), s=k)
    bent = op("mul", inner, op("sub", s, op("sqr", s)))
    return op("mul", dy, op("add", s, bent))


def _gelu_erf_back_x(node: Tensor, grad: Tensor) -> Tensor:
    """Return grad * dy * (Phi + x phi)'.

    It is phi (2 - x^2), phi = exp(-x^2 / 2) / sqrt(2 pi).
    """
    op, (dy, x) = node.graph.op, node.sources
    square = op("sqr", x)
    density = op("scale", op("exp", op("scale", square, s=-0.5)), s=1 / sqrt(2 * pi))
    bend = op("sub", op("scale", density, s=2.0), op("mul", density, square))
    return op("mul", op("mul", grad, dy), bend)


def _relu_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("clamp_back", grad, node.sources[0], low=_LEAST[node.dtype], high=inf)


_LEAST = {"f32": 2.0**-149, "f64": 2.0**-1074}
"""The smallest number above 0."""


def _clamp_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("clamp_back", grad, node.sources[0], **node.params)


def _pow_x(node: Tensor, grad: Tensor) -> Tensor:
    graph, p = node.graph, node.params["p"]
    if p == 0:
        return graph.op("scale", grad, s=0.0)  # 0 * x^-1 is no number at 0
    return graph.op("mul", grad, graph.op("scale", graph.op("pow", node.sources[0], p=p - 1), s=p))


def _div_a(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("div", grad, node.sources[1])


def _div_b(node: Tensor, grad: Tensor) -> Tensor:
    graph, b = node.graph, node.sources[1]
    return unbroadcast(graph.op("neg", graph.op("div", graph.op("mul", grad, node), b)), b)


def _compared(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    """Shape rule of a comparison: shaped like a, b repeating into it; whole numbers too."""
    del params
    a, b = sources
    if a.dtype != b.dtype or a.dtype not in COMPARED:
        raise EngineError(f"{a} cannot be compared with {b}; two of one dtype of {', '.join(COMPARED)} can")
    if not repeats_into(b.shape, a.shape):
        raise EngineError(f"{b} does not repeat into {a}")
    return ResultLayout(shape=a.shape, dtype=a.dtype)


def _power_a(node: Tensor, grad: Tensor) -> Tensor:
    """Return grad * b * a^(b - 1), and 0 where b is 0."""
    op, (a, b) = node.graph.op, node.sources
    lower = op("sub", b, op("full", shape=b.shape, dtype=b.dtype, value=1.0))
    slope = op("mul", grad, op("mul", b, op("power", a, lower)))
    return op("where", op("equal", b, _zeros(b)), _zeros(grad), slope)


def _power_b(node: Tensor, grad: Tensor) -> Tensor:
    """Return grad * a^b * log(a), and 0 where a is 0 and b is not negative: the limit there."""
    op, (a, b) = node.graph.op, node.sources
    flat = op("mul", op("equal", a, _zeros(a)), op("greater_equal", b, _zeros(b)))
    return op("where", flat, _zeros(grad), op("mul", grad, op("mul", node, op("log", a))))


def _zeros(x: Tensor) -> Tensor:
    return _full(x, 0.0)


def _full(x: Tensor, value: float) -> Tensor:
    """Return `value` in the shape and dtype of x."""
    return x.graph.op("full", shape=x.shape, dtype=x.dtype, value=value)


def _extremum_a(loses: str) -> Derivative:
    """Return the derivative by a, which is 0 where `a loses b` holds."""

    def rule(node: Tensor, grad: Tensor) -> Tensor:
        return node.graph.op("where", node.graph.op(loses, *node.sources), _zeros(grad), grad)

    return rule


def _extremum_b(loses: str) -> Derivative:
    """Return the derivative by b, which flows where `a loses b` holds."""

    def rule(node: Tensor, grad: Tensor) -> Tensor:
        lost = node.graph.op(loses, *node.sources)
        return unbroadcast(node.graph.op("where", lost, grad, _zeros(grad)), node.sources[1])

    return rule


def _where(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    del params
    for other in sources[1:]:
        same_shape(sources[0], other)
    return ResultLayout(shape=sources[0].shape, dtype=floating(*sources))


def _where_a(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("where", node.sources[0], grad, _zeros(grad))


def _where_b(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("where", node.sources[0], _zeros(grad), grad)


def _bounds(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    layout = like("low", "high")(sources, params)
    if not params["low"] <= params["high"]:
        raise EngineError(f"low {params['low']} is not below high {params['high']}")
    return layout


def _unary(kind: str, derivative: "Derivative | None") -> Rule:
    if derivative is None:
        return Rule(kind=kind, arguments=("x",), shape=like(), constant=frozenset({"x"}))
    return Rule(kind=kind, arguments=("x",), shape=like(), derivatives={"x": derivative})


UNARY: dict[str, "Derivative | None"] = {
    "neg": _scaled(-1.0),
    "abs": _times("sgn"),
    "sgn": None,
    "step": None,
    "floor": None,
    "round": None,
    "relu": _relu_x,
    "exp": _exp_x,
    "expm1": _times("exp"),
    "log": _log_x,
    "log1p": _log1p_x,
    "sqrt": _sqrt_x,
    "sqr": _sqr_x,
    "sin": _times("cos"),
    "cos": _cos_x,
    "atan": _atan_x,
    "erf": _erf_x,
    "tanh": _tanh_x,
    "sigmoid": _sigmoid_x,
    "softplus": _times("sigmoid"),
    "gelu": _back("gelu_back"),
    "gelu_erf": _back("gelu_erf_back"),
}
"""Kind -> derivative, None where it is zero by definition."""

COMPARED = ("f32", "f64", "i32")
"""What two sides of a comparison may both be."""

COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")

_LIMITS = {"low": -inf, "high": inf}

RULES = (
    *(_unary(kind, derivative) for kind, derivative in UNARY.items()),
    Rule(
        kind="gelu_back",
        arguments=("dy", "x"),
        shape=like(),
        derivatives={"dy": _again("gelu_back"), "x": by_parts("x", _gelu_back_parts)},
    ),
    Rule(
        kind="gelu_erf_back",
        arguments=("dy", "x"),
        shape=like(),
        derivatives={"dy": _again("gelu_erf_back"), "x": _gelu_erf_back_x},
    ),
    Rule(kind="clamp", arguments=("x",), params=_LIMITS, shape=_bounds, derivatives={"x": _clamp_x}),
    Rule(
        kind="clamp_back",
        arguments=("dy", "x"),
        params=_LIMITS,
        shape=_bounds,
        derivatives={"dy": _again("clamp_back")},
        constant=frozenset({"x"}),
    ),
    Rule(kind="pow", arguments=("x",), params={"p": REQUIRED}, shape=like("p"), derivatives={"x": _pow_x}),
    Rule(kind="power", arguments=("a", "b"), shape=like(), derivatives={"a": _power_a, "b": _power_b}),
    *(Rule(kind=kind, arguments=("a", "b"), shape=_compared, constant=frozenset({"a", "b"})) for kind in COMPARISONS),
    Rule(kind="div", arguments=("a", "b"), shape=broadcast, derivatives={"a": _div_a, "b": _div_b}),
    Rule(
        kind="maximum",
        arguments=("a", "b"),
        shape=broadcast,
        derivatives={"a": _extremum_a("less"), "b": _extremum_b("less")},
    ),
    Rule(
        kind="minimum",
        arguments=("a", "b"),
        shape=broadcast,
        derivatives={"a": _extremum_a("greater"), "b": _extremum_b("greater")},
    ),
    Rule(
        kind="where",
        arguments=("cond", "a", "b"),
        shape=_where,
        derivatives={"a": _where_a, "b": _where_b},
        constant=frozenset({"cond"}),
    ),
)
