"""Functions of each element, made of ops of the table: PyTorch's names, numpy's broadcasting.

A choice is chosen (`where`), never multiplied by a mask, so what is not taken has gradient 0, even
where its value is infinite. At a jump or a kink the derivative is that of the side named in the
docstring. Truth is 1 and 0 of the operand's dtype, and has no gradient.

What this module does not see: nodes' history, plans, kernels.
"""

from collections.abc import Callable
from math import inf, log, pi
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from engine.front.arguments import largest
from engine.front.core_functions import maximum, minimum, place_of, row, split, where
from engine.front.rounding_once import in_float32
from engine.front.tensors import EagerTensor, operand, tensor, within
from engine.ops.shapes import real

SELU = 1.0507009873554805, 1.6732632423543772
"""Scale and alpha (Klambauer et al. 2017, "Self-Normalizing Neural Networks")."""


Unary = Callable[[EagerTensor], EagerTensor]


def _of(kind: str, words: str) -> Unary:
    """Return the function that is one row of the table, for tensors of any shape."""

    def function(x: EagerTensor) -> EagerTensor:
        return row(kind, x)

    function.__name__, function.__doc__ = kind, f"Return {words}."
    return function


sign = _of("sgn", "the sign, 0 at 0; its derivative is 0")
floor = _of("floor", "the next whole number below; its derivative is 0")
round = _of("round", "the nearest whole number, of two the even one; its derivative is 0")  # noqa: A001 - as it is called
log1p = _of("log1p", "log(1 + x), exact near 0")
expm1 = _of("expm1", "exp(x) - 1, exact near 0")
atan = _of("atan", "the inverse tangent")
erf = _of("erf", "the error function")
square = _of("sqr", "x * x")


def _plainly(name: str, words: str, function: Unary) -> Unary:
    """Return a function that is one expression, of tensors of any shape, each op of it rounded."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {words}."
    function.__annotations__ = {"x": EagerTensor, "return": EagerTensor}
    return function


def _by(name: str, words: str, function: Unary) -> Unary:
    """Return the same, rounded once (`engine.front.rounding_once`)."""
    return in_float32(_plainly(name, words, function))


ceil = _plainly("ceil", "the least whole number that is not below x; its derivative is 0", lambda x: -floor(-x))
trunc = _plainly("trunc", "the next whole number towards 0; its derivative is 0", lambda x: sign(x) * floor(x.abs()))
logical_not = _plainly("logical_not", "1 where x is 0, else 0", lambda x: ~x)
isnan = _plainly("isnan", "1 where x is NaN, else 0", lambda x: x != x)  # noqa: PLR0124 - just NaN differs from itself
isinf = _plainly("isinf", "1 where x is infinite, else 0", lambda x: x.abs() == inf)
isfinite = _plainly("isfinite", "1 where x is neither infinite nor NaN, else 0", lambda x: x.abs() < inf)
clone = _plainly("clone", "a copy with the history of x", lambda x: row("cont", x))
zeros_like = _plainly("zeros_like", "zeros of the shape and dtype of x", lambda x: _filled(x, np.zeros))
ones_like = _plainly("ones_like", "ones of the shape and dtype of x", lambda x: _filled(x, np.ones))

log2 = _by("log2", "the logarithm to base 2", lambda x: x.log() * (1 / log(2)))
log10 = _by("log10", "the logarithm to base 10", lambda x: x.log() * (1 / log(10)))
exp2 = _by("exp2", "2 ** x", lambda x: (x * log(2)).exp())
reciprocal = _by("reciprocal", "1 / x", lambda x: 1.0 / x)
rsqrt = _by("rsqrt", "1 / sqrt(x)", lambda x: 1.0 / x.sqrt())
tan = _by("tan", "the tangent", lambda x: x.sin() / x.cos())
sinh = _by("sinh", "the hyperbolic sine", lambda x: (expm1(x) - expm1(-x)) * 0.5)
cosh = _by("cosh", "the hyperbolic cosine", lambda x: (x.exp() + (-x).exp()) * 0.5)
asin = _by("asin", "the inverse sine, of -1 to 1", lambda x: atan(x / ((1.0 - x) * (1.0 + x)).sqrt()))
acos = _by("acos", "the inverse cosine, of -1 to 1", lambda x: pi / 2 - asin(x))
frac = _by("frac", "x - trunc(x); its derivative is 1", lambda x: x - trunc(x))
relu6 = _by("relu6", "min(max(x, 0), 6)", lambda x: x.clamp(0.0, 6.0))
hardsigmoid = _by("hardsigmoid", "min(max(x / 6 + 1/2, 0), 1)", lambda x: (x * (1 / 6) + 0.5).clamp(0.0, 1.0))
hardswish = _by("hardswish", "x * hardsigmoid(x)", lambda x: x * hardsigmoid(x))
softsign = _by("softsign", "x / (1 + |x|)", lambda x: x / (x.abs() + 1.0))
log_sigmoid = _by("log_sigmoid", "log(sigmoid(x)) without overflow", lambda x: -(-x).softplus())
mish = _by("mish", "x * tanh(softplus(x))", lambda x: x * x.softplus().tanh())
tanhshrink = _by("tanhshrink", "x - tanh(x)", lambda x: x - x.tanh())


def _filled(x: EagerTensor, made: Callable[..., Any]) -> EagerTensor:
    return tensor(made(x.shape, x.dtype), dtype=x.dtype)


@in_float32
def atan2(y: EagerTensor, x: Any) -> EagerTensor:
    """Return the angle of the points (x, y), in (-pi, pi]; 0 at the origin.

    The sign of a zero is not seen, and infinities have no angle: where both are, it is NaN.
    """
    x = operand(x, y)
    steep = y.abs() > x.abs()
    top, bottom = where(steep, x, y), where(steep, y, x)
    slope = atan(top / where(bottom == 0.0, 1.0, bottom))
    half = where(y < 0.0, operand(-pi / 2, y), pi / 2)
    aside, behind = half - slope, slope + half * 2.0
    return where(steep, aside, where(x < 0.0, behind, slope))


@in_float32
def hypot(x: EagerTensor, y: Any) -> EagerTensor:
    """Return sqrt(x^2 + y^2) without overflow; its derivative at the origin is 0."""
    y = operand(y, x)
    most = maximum(x.abs(), y.abs()).detach()
    unit = where((most == 0.0) + isinf(most), 1.0, most)
    one, other = x / unit, y / unit
    return root(one * one + other * other) * unit


@in_float32
def root(x: EagerTensor) -> EagerTensor:
    """Return the square root, whose derivative at 0 is taken as 0."""
    none = x == 0.0
    return where(none, 0.0, where(none, 1.0, x).sqrt())


@in_float32
def logaddexp(a: EagerTensor, b: Any) -> EagerTensor:
    """Return log(exp(a) + exp(b)) without overflow; infinities as the limits have them."""
    other = operand(b, a)
    most = maximum(a, other).detach()
    most = where(isinf(most), 0.0, most)
    return ((a - most).exp() + (other - most).exp()).log() + most


def remainder(a: Any, b: Any) -> EagerTensor:
    """Return a - floor(a / b) * b, of the sign of b as Python's %; its derivative by a is 1."""
    found: EagerTensor = a % b
    return found


@in_float32
def fmod(a: Any, b: Any) -> EagerTensor:
    """Return a - trunc(a / b) * b, of the sign of a as C's %; its derivative by a is 1."""
    first = a if isinstance(a, EagerTensor) else b
    a, b = operand(a, first), operand(b, first)
    return where(isinf(b), a + a * 0.0, a - trunc(a / b) * b)


def logical_and(a: EagerTensor, b: Any) -> EagerTensor:
    """Return 1 where neither is 0, else 0."""
    found: EagerTensor = a & b
    return found


def logical_or(a: EagerTensor, b: Any) -> EagerTensor:
    """Return 1 where one is not 0, else 0."""
    found: EagerTensor = a | b
    return found


def logical_xor(a: EagerTensor, b: Any) -> EagerTensor:
    """Return 1 where just one is not 0, else 0."""
    return (a != 0.0) != (operand(b, a) != 0.0)


def nan_to_num(
    x: EagerTensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> EagerTensor:
    """Return x with other numbers in place of NaN and infinities, by default 0 and the largest."""
    most = largest(x.dtype)
    x = where(isnan(x), nan, x)
    x = where(x == inf, most if posinf is None else posinf, x)
    return where(x == -inf, -most if neginf is None else neginf, x)


def masked_fill(x: EagerTensor, mask: Any, value: float) -> EagerTensor:
    """Return x with `value` where the mask is not 0."""
    return where(mask, real("masked_fill", value), x)


@in_float32
def lerp(a: EagerTensor, b: Any, weight: Any) -> EagerTensor:
    """Return a + weight * (b - a)."""
    moved: EagerTensor = a + (operand(b, a) - a) * weight
    return moved


@in_float32
def hardtanh(x: EagerTensor, low: float = -1.0, high: float = 1.0) -> EagerTensor:
    """Return min(max(x, low), high)."""
    return x.clamp(low, high)


@in_float32
def leaky_relu(x: EagerTensor, slope: float = 0.01) -> EagerTensor:
    """Return x where it is above 0, else slope * x; at 0 the derivative is the slope."""
    return where(x > 0.0, x, x * real("leaky_relu", slope))


@in_float32
def prelu(x: EagerTensor, weight: Any) -> EagerTensor:
    """Return x where it is above 0, else weight * x; the weight broadcasts and has a gradient."""
    positive = x > 0.0
    return where(positive, x, where(positive, 0.0, x) * within("prelu", weight, x))


@in_float32
def elu(x: EagerTensor, alpha: float = 1.0) -> EagerTensor:
    """Return x where it is above 0, else alpha * (exp(x) - 1)."""
    return where(x > 0.0, x, expm1(minimum(x, 0.0)) * real("elu", alpha))


@in_float32
def celu(x: EagerTensor, alpha: float = 1.0) -> EagerTensor:
    """Return x where it is above 0, else alpha * (exp(x / alpha) - 1)."""
    if not real("celu", alpha):
        raise EngineError("celu: x is divided by alpha, which is 0")
    return where(x > 0.0, x, expm1(minimum(x, 0.0) * (1 / alpha)) * alpha)


selu = _by("selu", "elu with alpha and scale of self-normalizing networks", lambda x: elu(x, SELU[1]) * SELU[0])


@in_float32
def softshrink(x: EagerTensor, least: float = 0.5) -> EagerTensor:
    """Return x moved by `least` towards 0, and 0 within it."""
    return x - x.clamp(-real("softshrink", least), least)


def hardshrink(x: EagerTensor, least: float = 0.5) -> EagerTensor:
    """Return x, and 0 where |x| is at most `least`."""
    return where(x.abs() <= real("hardshrink", least), 0.0, x)


def threshold(x: EagerTensor, least: float, value: float) -> EagerTensor:
    """Return x where it is above `least`, else `value`."""
    return where(x <= real("threshold", least), real("threshold", value), x)


@in_float32
def glu(x: EagerTensor, axis: int = -1) -> EagerTensor:
    """Return the first half along an axis, times the sigmoid of the second."""
    place = place_of(x, axis)
    if x.shape[place] % 2:
        raise EngineError(f"glu: axis {axis} has {x.shape[place]} elements, which have no halves")
    half, gate = split(x, 2, place)
    return half * gate.sigmoid()


__all__ = [
    "acos", "asin", "atan", "atan2", "ceil", "celu", "clone", "cosh", "elu", "erf", "exp2", "expm1", "floor",
    "fmod", "frac", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hypot", "isfinite", "isinf",
    "isnan", "leaky_relu", "lerp", "log1p", "log2", "log10", "log_sigmoid", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "masked_fill", "mish", "nan_to_num", "ones_like", "prelu",
    "reciprocal", "relu6", "remainder", "round", "rsqrt", "selu", "sign", "sinh", "softshrink", "softsign",
    "square", "tan", "tanhshrink", "threshold", "trunc", "zeros_like",
]  # fmt: skip
