"""Compiles the judge's inner loops at their first call; the machine code is kept beside the source
or in the user's cache.

Importing this module imports numba (0.3 s), so it is imported only when a large input needs it. All
compiled functions that call each other stand in one file, because the cache checks one file only.

This module does not examine the functions it compiles.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])
_njit: Any = numba.njit


def compiled(function: Function) -> Function:
    """Compile a function at its first call.

    The function must make no array; its division is numpy's, which raises nothing.

    References to arrays are not counted, for the caller holds every array: counting them at every
    call took four fifths of the time.
    """
    try:
        fast: Function = _njit(cache=True, error_model="numpy", _nrt=False)(function)
    except RuntimeError:  # no folder to keep machine code in
        fast = _njit(error_model="numpy", _nrt=False)(function)
    return fast
