"""How kernels are compiled: at their first use, for the types met, with a cache on disk.

The machine code is kept next to the source or in the user's cache.

If neither can be written, it is compiled each time. Pieces are compiled into each kernel that uses
them, wherever they stand; but numba looks for changes in the file of the kernel alone, so what is
kept is marked with a digest of all files of this package.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import numba
import numpy as np
from numba import types

from engine.kernels.binding import remember
from engine.kernels.loading import load
from engine.kernels.vector_width import lanes

_njit: Any = numba.njit
_typeof: Any = numba.typeof

OPTIONS: Final[dict[str, Any]] = {"error_model": "numpy", "_nrt": False}
"""References are not counted, since the caller holds every array. Counting them at each row and
block is atomic work that also keeps the processor from running ahead to the next block; it took up
to half of the time."""


def _digest(folder: Path) -> bytes:
    """Return a digest of a folder's source files and of the vectors that they are compiled for.

    Empty if there are no files to be read.
    """
    sources = sorted(folder.glob("*.py"))
    if not sources:
        return b""
    return hashlib.sha256(b"".join([b"%d" % lanes(), *(source.read_bytes() for source in sources)])).digest()


DIGEST: Final = _digest(Path(__file__).parent)
"""Of the code of the kernels; empty where there are no sources."""


def kernel(function: Callable[..., None], *, nogil: bool = False) -> Any:
    """Make a dispatcher that is cached on disk where there is a cache folder."""
    try:
        dispatcher = _njit(cache=True, nogil=nogil, **OPTIONS)(function)
    except RuntimeError:  # numba found no folder to write to
        return _njit(nogil=nogil, **OPTIONS)(function)
    if DIGEST:
        dispatcher._cache._cache_file._source_stamp = DIGEST  # noqa: SLF001 - numba has no door to it
    return dispatcher


def unlocked(function: Callable[..., None]) -> Any:
    """Make a `kernel` that lets other threads of Python run meanwhile: it is long, or part of what
    `engine.kernels.threads` does at once.
    """
    return kernel(function, nogil=True)


INLINED: Final = {**OPTIONS, "forceinline": True, "no_cpython_wrapper": True}
"""Of what kernels call, and nothing else does. Were it called, each kernel would carry a copy as
LLVM made it there, and the linker would take the one that was loaded first: sums are made vectors
in more ways than one, and so the bits of a result would hang on which kernels came before."""

leaf: Any = _njit(**INLINED)
"""Compile what kernels call, every operation rounded as it stands."""

reduction: Any = _njit(fastmath={"reassoc", "nsz"}, **INLINED)
"""Compile a sum that kernels call: its additions may be done in any order, which is what makes them
vectors."""


@lru_cache(maxsize=256)
def _array(dtype: "np.dtype[Any]", rank: int, layout: Literal["C", "A"]) -> Any:
    return types.Array(numba.from_dtype(dtype), rank, layout)


@lru_cache(maxsize=16)
def _whole_numbers(count: int) -> Any:
    return _typeof((0,) * count)


def _type(given: Any, layout: Literal["C", "A"]) -> Any:
    """Return numba's type of an argument; those it asks most of are made once."""
    if isinstance(given, np.ndarray):
        return _array(given.dtype, given.ndim, layout)
    if isinstance(given, tuple) and all(type(number) is int for number in given):  # not True, not np.int64
        return _whole_numbers(len(given))
    return _typeof(given)


def entry(dispatcher: Any, args: tuple[Any, ...], *, layout: Literal["C", "A"] = "C") -> Callable[..., object]:
    """Return the compiled function for these arguments' types.

    Called directly, without numba's own dispatch.

    Arrays must be C-contiguous, unless `layout` is "A". Compiles or loads from the cache at the
    first use of a type; a cache that cannot be written is ignored.
    """
    signature = tuple(_type(given, layout) for given in args)
    try:
        if not load(dispatcher, signature):
            dispatcher.compile(signature)
    except OSError:
        dispatcher = _njit(nogil=dispatcher.targetoptions.get("nogil", False), **OPTIONS)(dispatcher.py_func)
        dispatcher.compile(signature)
    compiled = dispatcher.overloads[signature]
    function: Callable[..., object] = compiled.entry_point
    remember(function, compiled)
    return function
