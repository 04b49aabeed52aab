"""Narrow operands of functions made of several ops: computed in float32, and rounded once.

An op of the engine rounds its result; a function of several would round in between, where squares
overflow and sums lose what the result could hold. `in_float32` casts the operands up and the result
down. What a function writes (`_WRITTEN`) is left as it is.

What this module does not see: what the functions compute.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

from allocsim.errors import EngineError
from engine.front.in_place import ChangeableValue

P = ParamSpec("P")
T = TypeVar("T")
_WRITTEN: Final = {"batch_norm": ("mean", "variance")}
"""Function -> arguments, given by name, that it changes in place."""


def in_float32(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function computed in float32 where a tensor of 16 or 8 bits is given.

    The result has their dtype where all tensors of floating numbers have one, else float32. Raises
    EngineError where an argument given by its place is to be a tensor, and is none.
    """
    written = _WRITTEN.get(function.__name__, ())
    takes = {name: parameter.annotation for name, parameter in signature(function).parameters.items()}
    tensors = [isinstance(kind, type) and issubclass(kind, ChangeableValue) for kind in takes.values()]

    @wraps(function)
    def computed(*args: P.args, **kwargs: P.kwargs) -> T:
        for value, wanted in zip(args, tensors, strict=False):
            if wanted and not isinstance(value, ChangeableValue):
                raise EngineError(f"{type(value).__name__} given where a tensor is needed; tensor(...) makes one")
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, ChangeableValue)]
        if all(value.dtype.itemsize > 2 for value in given):
            return function(*args, **kwargs)
        dtypes = {value.dtype for value in given if value.dtype.kind != "i"}
        named: Any = {name: value if name in written else _wide(value) for name, value in kwargs.items()}
        found: Any = function(*map(_wide, args), **named)
        return found.astype(dtypes.pop()) if len(dtypes) == 1 and found.dtype.itemsize > 2 else found  # type: ignore[no-any-return]

    return computed


def _wide(value: Any) -> Any:
    narrow = isinstance(value, ChangeableValue) and value.dtype.itemsize <= 2
    return value.astype(np.float32) if narrow else value
