"""Checks of the arguments of the front that are no tensors: numbers, dtypes, shapes and axes.

Every function returns what the engine works with, or raises EngineError in one line that names what
was asked and what was given. Whole numbers are those of `engine.ops.rule`: 2.0 is none. Axes may
count from the end.

What this module does not see: tensors; `x` is the node that a message names, and a scalar's shape
() stands beside it.
"""

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from engine.front.record import DTYPES, Node
from engine.ops.shapes import counts, whole

Shape = tuple[int, ...]


def keeps(dtype: np.dtype[Any]) -> bool:
    """Return whether arrays of a dtype keep it.

    Floating ones do, whole numbers become what they meet.
    """
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
    """Return the places of one axis or several distinct ones, in the order given.

    None names all.
    """
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
