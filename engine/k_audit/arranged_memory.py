"""Arrays laid as an arrangement says, the proof that they are, and the data they hold.

Conventions: blocks begin at multiples of 64 bytes. `alone` gives the arrangement to compare with:
every array in a block of its own, at the same address modulo 64, since kernels may sum in another
order from another address. Data are drawn anew for each operand:

    distinct    normal numbers times a scale of the operand's own. Equal operands, or zeros, can hide an alias: copy-then-add over its
                second operand is right where both are equal
    special     the same with NaN, infinities, zeros of both signs, subnormal and huge numbers strewn in

What this module does not see: kernels.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from engine.k_audit.arrangements import Arrangement, sizes
from engine.k_audit.audit_cases import DTYPES, AuditCase
from engine.kernels import Kernel
from engine.kernels.binding import strided
from engine.ops.shapes import STORED
from engine.runtime.plan_memory import BLOCK_ALIGNMENT, block

Array = NDArray[Any]
Draw = Callable[[AuditCase, int, np.random.Generator, str], Array]
LINE: Final = BLOCK_ALIGNMENT
SPECIAL: Final = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0)

REDS: Final = 2
"""Different contents a result may have before the run."""


def lay(arrangement: Arrangement) -> tuple[Array, ...]:
    """Return the arrays, operands first; raise EngineError unless they lie as arranged."""
    blocks = {number: block(size) for number, size in sizes(arrangement).items()}
    arrays = []
    for spec, number, at in zip(arrangement.specs, arrangement.blocks, arrangement.at, strict=True):
        dtype = DTYPES[spec.dtype]
        if 0 in spec.shape:
            arrays.append(np.empty(spec.shape, dtype))
            continue
        arrays.append(strided(blocks[number][at : at + dtype.itemsize].view(dtype), spec.shape, spec.strides))
    prove(arrangement, arrays)
    return tuple(arrays)


def prove(arrangement: Arrangement, arrays: list[Array]) -> None:
    """Raise EngineError unless just the arranged arrays share bytes, at the arranged distance."""
    wanted = [(operand, arrangement.operands + result) for operand, result in arrangement.over] + list(
        arrangement.twins
    )
    for one, other in wanted:
        distance = arrays[other].ctypes.data - arrays[one].ctypes.data
        meant = arrangement.at[other] - arrangement.at[one]
        if distance != meant or not np.may_share_memory(arrays[one], arrays[other]):
            raise EngineError(
                f"the alias did not happen: {arrangement.words}: distance {distance} bytes, wanted {meant}"
            )
    for one, other in combinations([n for n, array in enumerate(arrays) if array.size], 2):
        if arrangement.blocks[one] != arrangement.blocks[other] and np.may_share_memory(arrays[one], arrays[other]):
            raise EngineError(f"{arrangement.words}: arrays {one} and {other} share memory that they should not")


def alone(arrangement: Arrangement, *, twins: bool = False) -> Arrangement:
    """Return the arrangement with every result in memory of its own, at the same address modulo
    `LINE`.

    Operands that share bytes go on doing so if `twins`; else they, too, get memory of their own.
    """
    at, blocks = list(arrangement.at), list(range(len(arrangement.at)))
    kept = {n for pair in arrangement.twins for n in pair} if twins else set()
    for n, (spec, place) in enumerate(zip(arrangement.specs, arrangement.at, strict=True)):
        if n in kept:
            blocks[n] = min(kept)
        else:
            at[n] = -(-max(-spec.hull[0], 0) // LINE) * LINE + place % LINE
    return replace(
        arrangement,
        words="apart",
        blocks=tuple(blocks),
        at=tuple(at),
        over=(),
        twins=arrangement.twins if twins else (),
    )


def floats(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype holds fractions; numpy does not know it of those of ml_dtypes."""
    return dtype.kind == "f" or dtype in (DTYPES[name] for name in STORED)


def redden(result: Array, which: int) -> None:
    """Fill a result with one of `REDS` contents that no kernel may rely on.

    No draw gives such content to an operand that a result can lie over.
    """
    if floats(result.dtype):
        result.fill((np.nan, 1234.5)[which])
    elif result.dtype.kind == "b":
        result.fill(bool(which))
    else:
        result.fill((101, 121)[which])


def draw(case: AuditCase, position: int, rng: np.random.Generator, how: str) -> Array:
    """Return values for one operand: indices below the rows they index, else numbers by `how`."""
    spec = case.operands[position]
    dtype = DTYPES[spec.dtype]
    if dtype.kind == "b":
        return rng.random(spec.shape) < 0.5
    if not floats(dtype):
        first, result = case.operands[0].shape, case.results[0].shape
        rows: Mapping[str, int] = {
            "get_rows": first[0],
            "get_rows_back": result[0],
            "set_rows": result[0],
            "gather": first[-1],
            "scatter": result[-1],
        }
        return rng.integers(0, rows.get(case.kind, 100), spec.shape).astype(dtype)
    values = (rng.standard_normal(spec.shape) * rng.uniform(0.5, 2.0)).astype(dtype)
    if how == "special" and values.size:
        about: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        strewn = np.array([*SPECIAL, float(about.smallest_subnormal), float(about.max) / 2], dtype)
        where = rng.random(spec.shape) < 1 / 3
        where.flat[rng.integers(values.size)] = True
        values[where] = rng.choice(strewn, int(where.sum()))
    return values


def canary(operand: int) -> Kernel:
    """Return the kernel to be caught: it clears its results, then writes what an operand holds."""

    def bind(_: Any, operands: tuple[Array, ...], results: tuple[Array, ...]) -> Any:
        def run() -> None:
            for result in results:
                redden(result, 1)
            seen = np.array(operands[operand], order="C")
            for result in results:
                tell(result, seen)

        return run, ()

    return Kernel(bind=bind)


def tell(result: Array, operand: Array) -> None:
    """Fill a result with a number made of all bytes of an operand."""
    told = zlib.crc32(operand.tobytes())
    result.fill(told / 2**32 if floats(result.dtype) else told % 127 if result.dtype.kind != "b" else told % 2)
