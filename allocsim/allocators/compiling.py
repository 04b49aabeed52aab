"""Compiling functions with numba, kept on disk where a folder for that can be found.

Importing this module imports numba (0.3 s); nothing is compiled before the first call, unless a
signature is given.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import numba
from numba import types

_njit: Any = numba.njit  # its overloads know no tuples of signatures
_unliteral: Any = types.unliteral

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(*signature: Any, allocates: bool = True, part: bool = False) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function, at once if a signature is given.

    One that allocates no array can do without counting references, since its caller holds them all
    meanwhile. A `part` is called by compiled code of its module alone: it has no entry for Python,
    and is kept on disk in what calls it.
    """
    options: dict[str, Any] = {"error_model": "numpy", "_nrt": allocates}
    options |= {"no_cpython_wrapper": part, "no_cfunc_wrapper": part}

    def decorate(function: Function) -> Function:
        try:
            dispatcher: Any = _njit(*signature, cache=not part, **options)(function)
        except RuntimeError:  # numba found no folder to write to
            dispatcher = _njit(*signature, **options)(function)
        dispatcher.get_call_template = partial(_for_any_number, dispatcher.get_call_template)
        return cast("Function", dispatcher)

    return decorate


def _for_any_number(template: Callable[..., Any], given: Any, named: Any) -> Any:
    """Return what a call of compiled code by compiled code takes: else a function would be compiled
    anew for each constant that it is called with.
    """
    return template([_unliteral(kind) for kind in given], named)
