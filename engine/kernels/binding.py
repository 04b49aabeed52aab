"""What a kernel is to the runtime, and how its arrays are made ready once.

A `Kernel` is bound to its arrays before the first run: `bind(params, operands, results)` returns
`(function, args)`, and a run is `function(*args)`. All decisions (shape, dtype, contiguous or
strided, which compiled version) fall in `bind`; the call neither slices nor allocates, unless numpy
is handed operands that overlap a result in an undeclared way.

Invariants
----------
* The call reads operands and writes every element of every result; it keeps no state, so it may be
  repeated.
* `in_place` is a promise about placement: with a result exactly over the declared operand (equal
  address, equal layout) the call writes bit for bit what it writes apart. `engine.k_audit` measures
  it; nothing here enforces it.
* Arrays keep the addresses they had at `bind`.
* Memory of its own (`scratch`) is a call's only while it runs: calls that are bound in one
  `Workspace` share it.
* Shapes are numpy's, row-major. float32 and float64; indices are int32.

What this module does not see: graphs, plans, and what any kernel computes.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from allocsim.errors import EngineError

Array = NDArray[Any]
Arrays = tuple[Array, ...]
Call = tuple[Callable[..., object], tuple[Any, ...]]
Bind = Callable[[Mapping[str, Any], Arrays, Arrays], Call]
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One implementation of an op, with its alias contract as data."""

    bind: Bind
    """`bind(params, operands, results) -> (function, args)`; EngineError if it cannot be run."""
    in_place: Pairs = ()
    """Declared alias pairs (operand position, result position): what the author promises."""
    overlap: Literal["declared", "any", "unknown"] = "declared"
    """`declared`: no overlap but those pairs; `any`: every overlap of results and operands is
    right; `unknown`: the author says nothing."""
    note: str = ""
    """One line for people: where the contract or the formula comes from."""


def require(condition: bool, rule: str) -> None:  # noqa: FBT001 - reads as a sentence at every call
    """Raise EngineError with `rule` unless `condition` holds."""
    if not condition:
        raise EngineError(rule)


def same_shapes(kind: str, *arrays: Array) -> None:
    """Raise EngineError unless all arrays have one shape and one dtype."""
    first = arrays[0]
    for other in arrays[1:]:
        require(
            other.shape == first.shape and other.dtype == first.dtype,
            f"{kind}: {first.dtype}{list(first.shape)} and {other.dtype}{list(other.shape)} must agree in "
            "shape and dtype",
        )


def rows(array: Array) -> Array:
    """Return a C-contiguous array as (rows, last axis), no copy; a scalar is one row of one."""
    width = array.shape[-1] if array.ndim else 1
    return array.reshape((array.size // width if width else 0, width))


def flat(array: Array) -> Array:
    """Return a C-contiguous array as one axis without copying."""
    return array.reshape(-1)


def same_place(a: Array, b: Array) -> bool:
    """Return whether two arrays of one shape are the same bytes, in the same order."""
    return bool(a.__array_interface__["data"][0] == b.__array_interface__["data"][0] and a.strides == b.strides)


def overlaps(result: Array, *operands: Array) -> bool:
    """Return whether a result may share memory with an operand that is not exactly there.

    Parts of such a call would race; done whole it has the same bits in every run.
    """
    return any(np.may_share_memory(result, x) and not same_place(result, x) for x in operands)


def meets(result: Array, *operands: Array) -> bool:
    """Return whether a result may share memory with an operand, in whatever way."""
    return any(np.may_share_memory(result, x) for x in operands)


def strided(x: Array, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> Array:
    """Return a view of the memory from element 0 of x on.

    `as_strided` describes a dtype by a string, and numpy's for float8_e5m2 means nothing to it.
    """
    if x.itemsize == 1:
        return as_strided(x.view(np.uint8), shape, strides).view(x.dtype)
    return as_strided(x, shape, strides)


def on_dense(bind: Bind) -> Bind:
    """Let `bind` assume C-contiguous arrays.

    Others get scratch, made here once, copied into before and out of after each call.

    Operands in scratch are read before anything is written, so staging never weakens an alias
    contract.
    """

    @wraps(bind)
    def bound(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
        if all(a.flags.c_contiguous for a in (*operands, *results)):
            return bind(params, operands, results)
        sources = tuple(dense_like(a) for a in operands)
        targets = tuple(dense_like(a) for a in results)
        function, args = bind(params, sources, targets)
        before = ((np.copyto, (s, a)) for s, a in zip(sources, operands, strict=True) if s is not a)
        after = ((np.copyto, (a, t)) for t, a in zip(targets, results, strict=True) if t is not a)
        return in_turn, (*before, (function, args), *after)

    return bound


_natives: dict[Callable[..., object], Any] = {}


def remember(function: Callable[..., object], compiled: Any) -> None:
    """Keep numba's `CompileResult` of a function, for callers of machine code without Python."""
    _natives[function] = compiled


def native(function: Callable[..., object]) -> Any:
    """Return the `CompileResult` of a compiled function, None for any other."""
    return _natives.get(function)


def tiled(kind: str, large: Array, small: Array) -> tuple[Array, Array, tuple[int, ...]]:
    """Return views (large, small) of one rank for numpy, and the axes over which small repeats.

    A dimension n = r * d of `large` becomes (r, d) where `small` has d with 1 < d < n. Missing
    leading dimensions count as 1.
    """
    shape = (1,) * (large.ndim - small.ndim) + small.shape
    fits = len(shape) == large.ndim and all(d and n % d == 0 for n, d in zip(large.shape, shape, strict=True) if n != d)
    require(fits and large.dtype == small.dtype,
            f"{kind}: {small.dtype}{list(small.shape)} does not repeat over {large.dtype}{list(large.shape)}")  # fmt: skip
    outer: list[int] = []
    inner: list[int] = []
    axes: list[int] = []
    for n, d in zip(large.shape, shape, strict=True):
        if n != d:
            axes.append(len(outer))
        if n != d and d > 1:
            outer += [n // d, d]
            inner += [1, d]
        else:
            outer.append(n)
            inner.append(d)
    return large.reshape(outer, copy=False), small.reshape(inner, copy=False), tuple(axes)


def in_turn(*calls: Call) -> None:
    """Do several calls one after the other: a bound call that needs more than one function."""
    for function, args in calls:
        function(*args)


def one_call(*calls: Call) -> Call:
    """Return the call that does these in turn."""
    return calls[0] if len(calls) == 1 else (in_turn, calls)


class Workspace:
    """Scratch of calls that follow one another.

    Each may use all of it, since none keeps state. Of one runtime, as its memory is.

    Blocks are powers of two, so that calls of nearly equal needs share them.
    """

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, int], NDArray[np.uint8]] = {}
        self._taken: Counter[int] = Counter()

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(map(len, self._blocks.values()))

    def bind(self, kernel: Kernel, params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
        """Return `kernel.bind(params, operands, results)` with its scratch in here."""
        self._taken.clear()
        token = _workspace.set(self)
        try:
            return kernel.bind(params, operands, results)
        finally:
            _workspace.reset(token)

    def block(self, nbytes: int) -> NDArray[np.uint8]:
        """Return a block of at least so many bytes that the call being bound has not got yet."""
        size = 1 << (nbytes - 1).bit_length()
        key = size, self._taken[size]
        self._taken[size] += 1
        if key not in self._blocks:
            self._blocks[key] = np.empty(size, np.uint8)
        return self._blocks[key]


_workspace: ContextVar[Workspace | None] = ContextVar("workspace", default=None)


def scratch(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return uninitialised memory that begins at a multiple of 64 bytes.

    Thus no kernel's bits hang on where numpy put it.

    It is the call's that is being bound, while that runs: what is in it afterwards may be another
    call's (`Workspace`).
    """
    nbytes, workspace = prod(shape) * dtype.itemsize, _workspace.get()
    raw = np.empty(nbytes + 64, np.uint8) if workspace is None else workspace.block(nbytes + 64)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes].view(dtype).reshape(shape)


def dense_like(array: Array) -> Array:
    """Return the array itself if it is C-contiguous, else scratch of its shape and dtype."""
    return array if array.flags.c_contiguous else scratch(array.shape, array.dtype)
