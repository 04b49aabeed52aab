"""Checks of the arguments of the front that are no tensors: numbers, dtypes, shapes and axes.

Every function returns what the engine works with, or raises EngineError in one line that names what
was asked and what was given. Whole numbers are those of `engine.ops.rule`: 2.0 is none. Axes may
count from the end. A number that a dtype cannot hold is refused: a whole one that it would round,
and a finite one that would become infinite.

What this module does not see: tensors; `x` is the node that a message names, and a scalar's shape
() stands beside it.
"""

from collections.abc import Iterable
from math import inf, prod
from typing import Any, Final

import numpy as np

from allocsim.errors import EngineError
from engine.front.record import DTYPES, Node
from engine.kernels.binding import Array
from engine.ops.shapes import counts, real, whole
from engine.runtime.plan_memory import finfo

Shape = tuple[int, ...]
_FINFO: Final[dict[np.dtype[Any], Any]] = {dtype: finfo(dtype) for dtype in DTYPES if dtype.kind != "i"}
_LARGEST: Final = {dtype: float(info.max) for dtype, info in _FINFO.items()}
_EXACT: Final = {dtype: int(2 ** (info.nmant + 1)) for dtype, info in _FINFO.items()}
"""Dtype -> whole numbers up to this are held exactly."""


def number(what: str, value: object, dtype: np.dtype[Any]) -> float:
    """Return a number to compute with beside a tensor of a dtype, which must hold it; beside a
    16-bit one float32 must, since that is what is computed in.
    """
    found = real(what, value)
    dtype = dtype if dtype.itemsize > 2 else np.dtype(np.float32)
    if dtype.kind == "i" or _EXACT[dtype] < abs(found) < inf:
        given = np.asarray(value)
        held(what, given if given.dtype.kind in "iuf" else np.asarray(found), dtype)
    return found


def held(what: str, given: Array, wanted: np.dtype[Any]) -> Array:
    """Return a copy of numbers in a dtype that holds them; O(elements)."""
    if wanted.kind == "i":
        _check_whole(what, given, wanted)
        return np.array(given, wanted, order="C")
    with np.errstate(over="ignore"):
        made = np.array(given, wanted, order="C")
    if given.dtype == wanted or wanted not in _LARGEST or not given.size:
        return made
    if given.dtype.kind in "iu":
        _check_exact(what, given, made)
    elif (given.dtype.kind == "f" or given.dtype in _LARGEST) and (
        lost := ~np.isfinite(made) & np.isfinite(given)
    ).any():
        raise EngineError(
            f"{what}: {given[lost].flat[0]:g} is beyond {wanted}, whose largest number is {_LARGEST[wanted]:g}"
        )
    return made


def _check_whole(what: str, given: Array, wanted: np.dtype[Any]) -> None:
    if given.dtype.kind not in "fiu" or not given.size:
        return
    low, high, holds = given.min(), given.max(), np.iinfo(wanted)
    if not holds.min <= low <= high <= holds.max:
        raise EngineError(f"{what}: numbers run from {low} to {high}; {wanted} holds up to {holds.max}")
    if given.dtype.kind == "f" and (given != np.trunc(given)).any():
        raise EngineError(f"{what}: {given[given != np.trunc(given)].flat[0]} is no whole number")


def _check_exact(what: str, given: Array, made: Array) -> None:
    most = _EXACT[made.dtype]
    if -most <= int(given.min()) and int(given.max()) <= most:
        return
    for whole_one, rounded in zip(given.reshape(-1).tolist(), made.reshape(-1).tolist(), strict=True):
        if rounded != whole_one:
            raise EngineError(
                f"{what}: {made.dtype} holds whole numbers up to {most} exactly, and would make {rounded:.0f} of "
                f"{whole_one}; int32 is for indices{'' if made.itemsize == 8 else ', float64 for more digits'}"
            )


def largest(dtype: np.dtype[Any]) -> float:
    """Return the largest number of a floating dtype."""
    return _LARGEST[dtype]


def keeps(dtype: np.dtype[Any]) -> bool:
    """Return whether arrays of a dtype keep it: floating ones do, whole numbers do not."""
    return dtype in DTYPES and dtype.kind != "i"


def dtype_of(dtype: Any) -> np.dtype[Any]:
    """Return numpy's dtype, which knows bfloat16 by name too."""
    named: list[np.dtype[Any]] = [d for d in DTYPES if dtype == d.name] if isinstance(dtype, str) else []
    return named[0] if named else np.dtype(dtype)


def one_axis(x: Node, rank: int, axis: Any) -> int:
    """Return the place of one axis of `rank`."""
    places = several_axes(x, rank, axis)
    if len(places) != 1:
        raise EngineError(f"axis {axis} of {x} names {len(places)} axes; one is needed")
    return places[0]


def several_axes(x: Node, rank: int, axis: Any) -> Shape:
    """Return the places of one axis or several distinct ones, in the given order; None: all."""
    several = isinstance(axis, Iterable) and not isinstance(axis, str)
    given = tuple(range(rank)) if axis is None else counts("axis", axis) if several else (whole("axis", axis),)
    if any(not -rank <= a < rank for a in given) or len({a % rank for a in given}) != len(given):
        raise EngineError(f"axis {axis} does not name distinct axes of {x}")
    return tuple(a % rank for a in given)


def lengths(x: Node, size: int, shape: Shape) -> Shape:
    """Return a shape that holds `size` elements, its one -1 resolved."""
    known = prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and known and size % known == 0:
        shape = tuple(size // known if n == -1 else n for n in shape)
    if min(shape, default=0) < 0 or prod(shape) != size:
        raise EngineError(f"{x} has {size} elements; shape {shape} does not hold them")
    return shape
