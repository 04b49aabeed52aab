"""Compile the judge's inner loops at their first call. The machine code is cached beside the source
or in the user's cache folder.

Importing this module imports numba (0.3 s), so it is imported only when a large input needs it. All
compiled functions that call each other must be in one file, because the cache checks only one file
for changes.

This module does not know the functions that it compiles.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])
_njit: Any = numba.njit


def compiled(function: Function) -> Function:
    """Compile a function at its first call.

    The function must not create arrays. Division follows numpy's rules and never raises an error.

    References to arrays are not counted, because the caller keeps every array alive. Counting them
    at every call took four fifths of the time.
    """
    try:
        fast: Function = _njit(cache=True, error_model="numpy", _nrt=False)(function)
    except RuntimeError:  # no folder for the machine code exists
        fast = _njit(error_model="numpy", _nrt=False)(function)
    return fast
