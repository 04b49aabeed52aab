"""How the judge's inner loops are compiled: at their first call, the machine code kept beside the
source or in the user's cache.

Importing this module imports numba (0.3 s), so it is imported where a large input asks for it. All
compiled functions that call each other stand in one file, for that is what the cache looks at.

What this module does not see: what is compiled.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])
_njit: Any = numba.njit


def compiled(function: Function) -> Function:
    """Compile a function at its first call.

    It makes no array, and division is numpy's: nothing is raised.

    References are not counted: the caller holds every array. Counting them, wherever one is handed
    on, took four fifths of the time.
    """
    try:
        fast: Function = _njit(cache=True, error_model="numpy", _nrt=False)(function)
    except RuntimeError:  # no folder to keep machine code in
        fast = _njit(error_model="numpy", _nrt=False)(function)
    return fast
