"""The shape arithmetic that shape rules share.

Each function checks sources or parameters and raises `EngineError` for what does not fit.

Broadcast is ggml's repeat: `b` repeats into `a` if, aligned at the last dimension, each length of
`b` divides that of `a`; missing leading dimensions count as 1. numpy's broadcast is the case where
the lengths of `b` are 1 or equal.

What this module does not see: kinds of op, derivatives, data.
"""

from collections.abc import Callable, Iterable
from math import prod
from operator import index
from typing import Any

from allocsim.errors import EngineError
from engine.ops.rule import ResultLayout, Shape, Tensor

FLOATS = ("f32", "f64")
"""What is computed in."""

HALVES = ("bf16", "f16")
"""What numbers are stored in that ranks add: in f32, rounded once."""

STORED = (*HALVES, "f8_e4m3", "f8_e5m2")
"""What numbers are stored in: cast, viewed and moved, and but for `HALVES` nothing else."""


def floating(*sources: Tensor) -> str:
    """Return the dtype all sources share; raise EngineError unless it is one and floating."""
    found = {source.dtype for source in sources}
    if len(found) != 1 or not found <= set(FLOATS):
        raise EngineError(f"operands have dtypes {', '.join(s.dtype for s in sources)}; all must be f32 or all f64")
    return sources[0].dtype


def whole(what: str, value: Any) -> int:
    """Return a whole number; EngineError for what is none, 2.0 included."""
    try:
        return index(value)
    except TypeError:
        raise EngineError(f"{what}: {value!r} is no whole number") from None


def real(what: str, value: Any) -> float:
    """Return a number as a float.

    Raises EngineError, which calls it `what`, for what is none, or none that a float holds.
    """
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise EngineError(f"{what}: {error}") from None


def counts(what: str, values: Any) -> tuple[int, ...]:
    """Return a tuple of whole numbers; EngineError for what is none."""
    try:
        return tuple(map(index, values))
    except TypeError:
        raise EngineError(f"{what}: {values!r} are no whole numbers") from None


def axis_of(x: Tensor, axis: Any) -> int:
    """Return `axis` counted from the first; raise EngineError unless `x` has it."""
    given, rank = whole("axis", axis), len(x.shape)
    if not -rank <= given < rank:
        raise EngineError(f"axis {axis} is none of the {rank} axes of {x}")
    return given % rank


def axes_of(x: Tensor, axes: Any) -> tuple[int, ...]:
    """Return distinct axes counted from the first, in order, all for None; errors as `axis_of`."""
    if axes is None:
        return tuple(range(len(x.shape)))
    given = tuple(axes) if isinstance(axes, Iterable) else (axes,)
    found = tuple(sorted(axis_of(x, axis) for axis in given))
    if len(set(found)) != len(found):
        raise EngineError(f"axes {given} name an axis of {x} twice")
    return found


def per_axis(x: Tensor, what: str, given: Any) -> tuple[int, ...]:
    """Return one whole number for each axis of `x`; EngineError unless there are that many."""
    found = counts(what, given)
    if len(found) != len(x.shape):
        raise EngineError(f"{what} {found} does not fit the {len(x.shape)} axes of {x}")
    return found


def indices(source: Tensor, length: int | None = None) -> None:
    """Raise EngineError unless `source` is an i32 vector (of `length` elements)."""
    if source.dtype != "i32" or len(source.shape) != 1:
        raise EngineError(f"{source} must be a vector of i32")
    if length is not None and source.shape[0] != length:
        raise EngineError(f"{source} has {source.shape[0]} entries; {length} are needed")


def repeats_into(b: Shape, a: Shape) -> bool:
    """Return whether `b` repeats into `a` (see the module header)."""
    if len(b) > len(a):
        return False
    return all(_divides(n, m) for n, m in zip(reversed(b), reversed(a), strict=False))


def batch_divides(a: Shape, b: Shape) -> bool:
    """Return whether the batch dimensions (all but the last two) of `a` divide those of `b`."""
    return repeats_into(a[:-2], b[:-2])


def same_shape(a: Tensor, b: Tensor) -> None:
    """Raise EngineError unless the shapes agree."""
    if a.shape != b.shape:
        raise EngineError(f"{a} and {b} must have one shape")


def elements(shape: Shape) -> int:
    """Return the number of elements."""
    return prod(shape)


def checked_shape(shape: object, what: str = "shape") -> Shape:
    """Return `shape` as ints; EngineError unless it has a dimension and none is negative."""
    dims = counts(what, shape) if isinstance(shape, (tuple, list)) else ()
    if not dims or min(dims) < 0:
        raise EngineError(f"{what} {shape!r} is not a sequence of lengths, at least one and none negative")
    return dims


def like(*reals: str, to: Shape | None = None) -> Callable[..., ResultLayout]:
    """Return the shape rule of a result that is contiguous and shaped like the sources, or as `to`.

    The sources have one floating dtype and shape; `reals` names parameters that are numbers.
    """

    def rule(params: dict[str, Any], *sources: Tensor) -> ResultLayout:
        params.update({name: real(name, params[name]) for name in reals})
        for other in sources:
            same_shape(sources[0], other)
        return ResultLayout(shape=to or sources[0].shape, dtype=floating(*sources))

    return rule


def _divides(n: int, m: int) -> bool:
    return m % n == 0 if n else m == 0
