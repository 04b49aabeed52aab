"""numpy's inner loops by address, as words of the drivers `loop` and `nest`.

They are the functions that its ufuncs run.

A ufunc keeps its inner loops in a table with the types each is for; the struct is part of numpy's C
interface (`ufuncobject.h`). Where it does not read as it should (`readable`), no loop has an
address, and ufuncs stay calls from Python.

Bits. `np.f(a, b, out)` over dense operands is one call of an inner loop; so is the entry. Over
other operands numpy decides how to cut the axes, and only functions of one IEEE operation per
element (`EXACT`) give the same bits however they are cut; the others have no entry then. The same
goes for numpy's copies where a result overlaps an operand: such an op stays a call
(`engine.tape.forms`).

What this module does not see: graphs, plans, which op a call belongs to.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from allocsim.model.layout import Int64s
from engine.kernels import blas, elementwise
from engine.kernels.binding import Array
from engine.tape import machine

EXACT: Final = frozenset(
    {np.add, np.subtract, np.multiply, np.divide, np.negative, np.absolute, np.sqrt, np.square, np.maximum, np.minimum}
)
"""Ufuncs whose every element is one correctly rounded operation."""

_UFUNCS: Final[dict[Callable[..., Any], np.ufunc]] = {
    elementwise.maximum: np.maximum,
    elementwise.minimum: np.minimum,
    np.clip: np._core.umath.clip,  # type: ignore[attr-defined] # noqa: SLF001 - np.clip is a function round it
}
"""Functions that do nothing but call a ufunc."""

APART: Final = 0
EXACTLY: Final = 1
ANYHOW: Final = 2
"""How the result may lie over an operand without numpy copying that first: not at all, exactly over
it, or in any way (no numpy in it)."""

Coded = tuple[int, list[int], list[Array], int]
"""Driver, shared words, arrays whose addresses are the own words, and which overlap gives the bits
of the call from Python."""


class _Ufunc(ctypes.Structure):
    """The head of `PyUFuncObject` (numpy 1.7 and later)."""

    _fields_ = (
        ("references", ctypes.c_ssize_t),
        ("type", ctypes.c_void_p),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.POINTER(ctypes.c_char)),
    )


@lru_cache(maxsize=1)
def readable() -> bool:
    """Return whether the struct of this numpy reads as its ufuncs describe themselves."""
    return all(
        (struct := _Ufunc.from_address(id(ufunc))).nin == ufunc.nin
        and struct.nargs == ufunc.nargs
        and struct.ntypes == ufunc.ntypes
        and struct.name == ufunc.__name__.encode()
        and [ord(struct.types[i]) for i in range(ufunc.nargs)]
        == [np.dtype(c).num for c in ufunc.types[0].replace("->", "")]
        for ufunc in (np.add, np.tanh, np.matmul, np.negative)
    )


def inner(ufunc: np.ufunc, char: str) -> tuple[int, int] | None:
    """Return (address, data) of the inner loop whose operands and results are all of one dtype.

    Returns None if there is none.
    """
    wanted = char * ufunc.nin + "->" + char * ufunc.nout
    if not readable() or wanted not in ufunc.types:
        return None
    struct, position = _Ufunc.from_address(id(ufunc)), ufunc.types.index(wanted)
    address = struct.functions[position]
    return (address, (struct.data[position] if struct.data else None) or 0) if address else None


_gather: Final = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(machine.gather.address)
_DATA: Final = 2 * ctypes.sizeof(ctypes.c_void_p)
"""Where `PyArrayObject` keeps the address of element 0 (numpy's C interface)."""


@lru_cache(maxsize=1)
def _arrays_readable() -> bool:
    array = np.arange(5)[2:]
    return bool(ctypes.c_void_p.from_address(id(array) + _DATA).value == array.__array_interface__["data"][0])


def addresses(arrays: Sequence[Array]) -> Int64s:
    """Return the address of element 0 of each array, ten times as fast as asking each."""
    if not _arrays_readable():
        return np.array([array.__array_interface__["data"][0] for array in arrays], np.int64)
    objects = np.fromiter(map(id, arrays), np.int64, len(arrays))
    found = np.empty(len(arrays), np.int64)
    _gather(objects.ctypes.data, len(arrays), _DATA, found.ctypes.data)
    return found


def elementwise_call(function: Callable[..., Any], args: tuple[Any, ...]) -> Coded | None:
    """Encode `ufunc(*operands, result)`."""
    ufunc = function if isinstance(function, np.ufunc) else _UFUNCS.get(function)
    if ufunc is None or ufunc.signature is not None or len(args) != ufunc.nargs or not isinstance(args[-1], np.ndarray):
        return None
    arrays = [arg if isinstance(arg, np.ndarray) else np.array(arg) for arg in args]
    out = arrays[-1]
    found = inner(ufunc, out.dtype.char)
    if found is None or any(a.dtype != out.dtype for a in arrays):
        return None
    if all(a.flags.c_contiguous and (a.shape == out.shape or a.ndim == 0) for a in arrays):
        steps = [0 if a.ndim == 0 else a.itemsize for a in arrays]
        return _flat(found, out.size, steps, arrays, EXACTLY)
    return _nested(found, arrays, EXACTLY) if ufunc in EXACT else None


def copy_call(target: Array, source: Any, *options: Any) -> Coded | None:
    """Encode `np.copyto(target, source)`: the source broadcasts."""
    if options or not isinstance(source, np.ndarray) or source.dtype != target.dtype or source.ndim > target.ndim:
        return None
    found = machine.copy.address, target.itemsize
    if source.shape == target.shape and source.flags.c_contiguous and target.flags.c_contiguous:
        return _flat(found, target.size, [target.itemsize] * 2, [source, target], EXACTLY)
    return _nested(found, [source, target], EXACTLY)


def sum_call(source: Array, target: Array) -> list[Coded] | None:
    """Encode `np.add.reduce(source, 0, None, target)` of one dense axis.

    The neutral element, then the inner loop onto it.
    """
    found = inner(np.add, target.dtype.char)
    neutral = np.add.reduce(np.full(min(source.size, 1), -0.0, target.dtype))  # numpy's own: -0.0, but 0.0 of nothing
    start = copy_call(target, np.array(neutral, target.dtype))
    if (
        found is None
        or start is None
        or source.dtype != target.dtype
        or not source.flags.c_contiguous
        or source.ndim != 1
    ):
        return None
    return [start, _flat(found, source.size, [0, source.itemsize, 0], [target, source, target], APART)]


def product_call(a: Array, b: Array, out: Array) -> Coded | None:
    """Encode `np.matmul(a, b, out)` over arrays of one rank: numpy's loop, which chooses BLAS."""
    found = inner(np.matmul, out.dtype.char)
    if found is None or a.ndim != out.ndim or b.ndim != out.ndim or not a.dtype == b.dtype == out.dtype:
        return None
    arrays = [a, b, out]
    (m, n), p = a.shape[-2:], b.shape[-1]
    core = [s for array in arrays for s in array.strides[-2:]]
    return _nested(found, arrays, APART, core_rank=2, dims=[m, n, p], core=core)


def accumulation_call(left: Array, right: Array, out: Array, how: blas.Product) -> Coded:
    """Encode `blas.add_product`: CBLAS itself, which copies nothing."""
    driver = machine.gemm_32 if out.itemsize == 4 else machine.gemm_64
    address = ctypes.cast(how.function, ctypes.c_void_p).value or 0
    return driver.address, [address, *how.turns, *how.sizes, *how.leads], [left, right, out], ANYHOW


def _flat(found: tuple[int, int], size: int, steps: list[int], arrays: list[Array], overlap: int) -> Coded:
    return machine.loop.address, [*found, len(arrays), *([0] * len(arrays)), size, *steps], arrays, overlap


def _nested(
    found: tuple[int, int],
    arrays: list[Array],
    overlap: int,
    *,
    core_rank: int = 0,
    dims: list[int] | None = None,
    core: list[int] | None = None,
) -> Coded:
    """Encode a call for each index of all axes but the last, which the inner loop runs through."""
    shape = arrays[-1].shape[: arrays[-1].ndim - core_rank]
    strides = [_strides(a, shape, core_rank) for a in arrays]
    last, outer = (shape[-1], shape[:-1]) if shape else (1, ())
    steps = [s[-1] if shape else 0 for s in strides] + (core or [])
    spread = [s[axis] for axis in range(len(outer)) for s in strides]
    sizes = [last, *(dims or [])]
    scratch = [0] * (len(outer) + 2 * len(arrays))
    words = [*found, len(arrays), len(outer), len(sizes), len(steps), *sizes, *steps, *outer, *spread, *scratch]
    return machine.nest.address, words, arrays, overlap


def _strides(array: Array, shape: tuple[int, ...], core_rank: int) -> list[int]:
    """Return the strides of an array broadcast to `shape`, its last `core_rank` axes left out."""
    rank = array.ndim - core_rank
    lengths, steps = array.shape[:rank], array.strides[:rank]
    own = [0 if n == 1 else s for n, s in zip(lengths, steps, strict=True)]
    return [0] * (len(shape) - rank) + own
