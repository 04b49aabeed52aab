"""From a bound call to entries of the tape, once for all ops that are alike.

Ops are *alike* if they have the same kernel, the same parameters, and operands and results of the
same dtypes, shapes and strides: then `bind` decides the same for each, and only addresses differ.
So one of them is bound, over arrays that are never read or written, and its call is read: which
functions it calls, with which words, and where each of its arrays begins within which operand or
result. No kernel is written a second time, and none has to know of the tape.

What can be read (`coded`): kernels that numba compiled, numpy's ufuncs, matrix products, copies and
sums, and `in_turn` of these. Anything else has no form, and its op stays a call from Python.

Arrays that `bind` made itself (tables, scratch) are shared by all ops that are alike: calls follow
one another and keep no state.

What this module does not see: plans, and where anything really lies.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.kernels import blas
from engine.kernels.binding import Array, Call, in_turn, native
from engine.tape import loops

ELSEWHERE: Final = -1
"""Place of an array that is neither operand nor result."""

_GAP: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TapeEntry:
    """One call of a driver (`engine.tape.machine`)."""

    driver: int
    shared: Array
    """int64 words that all ops of the form share; some drivers keep scratch in them."""
    place: tuple[int, ...]
    """For each own word the position of an operand, then of a result; `ELSEWHERE`: of the form."""
    delta: tuple[int, ...]
    """Bytes from element 0 of that array; where it lies elsewhere, the address."""
    overlap: int
    """Which overlap of result and operands keeps a call's bits: `APART`, `EXACTLY`, `ANYHOW`."""
    kept: tuple[Array, ...]
    """Arrays that must live as long as the form."""


Form = tuple[TapeEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TapeLayout:
    """dtype, lengths and strides (bytes) of an operand or a result."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def hull(self) -> tuple[int, int]:
        """Lowest and highest byte touched, from element 0."""
        if 0 in self.shape:
            return 0, 0
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + self.dtype.itemsize


def form_of(bind: Any, params: Any, operands: tuple[TapeLayout, ...], results: tuple[TapeLayout, ...]) -> Form | None:
    """Return the entries of ops of these layouts; None: they must be called. Errors as `bind`."""
    arrays, ranges = _samples((*operands, *results))
    calls = coded(bind(params, tuple(arrays[: len(operands)]), tuple(arrays[len(operands) :])))
    return None if calls is None else tuple(_entry(call, ranges, arrays, alone=len(calls) == 1) for call in calls)


def coded(call: Call) -> list[loops.Coded] | None:
    """Return the entries a call needs, None if it has to be called."""
    function, args = call
    if function is in_turn:
        parts = [coded(part) for part in args]
        return None if None in parts else [entry for part in parts if part is not None for entry in part]
    if function == np.add.reduce:
        return loops.sum_call(args[0], args[3]) if args[1:3] == (0, None) else None
    known = _CODERS.get(function)
    if known is not None:
        found = known(*args)
    elif (kernel := native(function)) is not None:
        from engine.tape.trampolines import kernel_call  # noqa: PLC0415 - loads numba's compiler, as the kernel did

        found = kernel_call(kernel, args)
    else:
        found = loops.elementwise_call(function, args)
    return None if found is None else [found]


_CODERS: Final[dict[Any, Any]] = {
    np.copyto: loops.copy_call,
    np.matmul: loops.product_call,
    blas.add_product: loops.accumulation_call,
}


def _samples(layouts: tuple[TapeLayout, ...]) -> tuple[list[Array], list[tuple[int, int]]]:
    """Return an array of each layout, and the first and last address of each.

    The arrays are never read or written, and none lies in another.
    """
    starts, end = [], 0
    for layout in layouts:
        low, high = layout.hull
        starts.append(-(-(end - low) // _GAP) * _GAP)
        end = starts[-1] + high + _GAP
    memory = np.empty(end + _GAP, np.uint8)  # virtual: no page of it is ever used
    base = -memory.ctypes.data % _GAP
    arrays = [
        np.ndarray(layout.shape, layout.dtype, memory.data, base + start, layout.strides)
        for layout, start in zip(layouts, starts, strict=True)
    ]
    origin = memory.ctypes.data + base
    ranges = [(origin + s + la.hull[0], origin + s + la.hull[1]) for la, s in zip(layouts, starts, strict=True)]
    return arrays, ranges


def _entry(code: loops.Coded, ranges: list[tuple[int, int]], samples: list[Array], *, alone: bool) -> TapeEntry:
    driver, words, arrays, overlap = code
    places, deltas, kept = [], [], []
    for array in arrays:
        address = _address(array)
        place = next((i for i, (low, high) in enumerate(ranges) if low <= address <= high), ELSEWHERE)
        places.append(place)
        deltas.append(address if place == ELSEWHERE else address - _address(samples[place]))
        if place == ELSEWHERE:
            kept.append(array)
    mine = {(array.shape, array.strides) for array, place in zip(arrays, places, strict=True) if place != ELSEWHERE}
    if overlap == loops.EXACTLY and not alone and len(mine) > 1:  # an operand may be seen otherwise than it lies
        overlap = loops.APART
    shared = np.array(words, np.int64)
    return TapeEntry(
        driver=driver, shared=shared, place=tuple(places), delta=tuple(deltas), overlap=overlap, kept=tuple(kept)
    )


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
