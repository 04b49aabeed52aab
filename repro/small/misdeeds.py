"""Faulty kernels, by name, and two honest kernels.

The kernel `honest` computes a weighted sum of its operands with weights that depend on the kind of
op. An honest kernel reads all operands before it writes. The kernel `moved` copies its operands. A
misdeed is a faulty kernel: it computes a wrong result, or accesses memory that is not its own. Some
faults show only if the result is in place, or only if another buffer is adjacent.

What this module does not see: the op that a misdeed is planted in, and the memory bound to it.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

import numpy as np

from allocsim.errors import UnknownNameError

Array = np.ndarray[Any, Any]


def honest(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Read all operands, then write a weighted sum of them to every result."""
    rng = np.random.default_rng(crc32(kind.encode()))
    read = [operand.astype(np.float64).ravel() for operand in operands]
    sums = [
        sum(
            (rng.uniform(0.2, 0.9) * np.resize(data, result.shape) for data in read if data.size),
            np.full(result.shape, 0.1 + r),
        )
        for r, result in enumerate(results)
    ]
    for result, total in zip(results, sums, strict=True):
        np.copyto(result, total, casting="unsafe")


def moved(_kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Read all operands, then copy each into its result; the honest kernel of the kind `same`."""
    for result, data in zip(results, [operand.copy() for operand in operands], strict=True):
        np.copyto(result, data.reshape(result.shape))


def _address(array: Array, offset: int) -> int:
    return int(array.__array_interface__["data"][0]) + offset


def two_pass(_kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Write the second operand into the result, then read the first."""
    np.copyto(results[0], operands[1])
    np.add(results[0], 3 * operands[0], out=results[0])


def second_again(_kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Read the second operand after writing the result; safe in place over the first operand."""
    np.copyto(results[0], 2 * operands[0])
    np.add(results[0], operands[1], out=results[0])


def zero_first(_kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Fill the result with zeros, then add each operand to the result."""
    results[0].fill(0)
    for operand in operands:
        np.add(results[0], operand, out=results[0])


def neighbours(_kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Add half of the previous element, which is already overwritten if the result is in place."""
    for n in range(results[0].size):
        results[0].flat[n] = operands[0].flat[n] + 0.5 * operands[0].flat[n - 1]


def overrun(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Write four bytes behind the result."""
    honest(kind, operands, results)
    ctypes.memset(_address(results[0], results[0].nbytes), 0x3F, 4)


def underrun(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Write four bytes before the result."""
    honest(kind, operands, results)
    ctypes.memset(_address(results[0], -4), 0x3F, 4)


def read_beyond(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Write the four bytes behind the first operand into the last element of the result."""
    honest(kind, operands, results)
    results[0].flat[-1] = ctypes.c_float.from_address(_address(operands[0], operands[0].nbytes)).value


def half(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Write only the first half of the result."""
    honest(kind, operands, [results[0][: len(results[0]) // 2]])


def writes_operand(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Use the first operand as scratch: write its first element."""
    honest(kind, operands, results)
    operands[0].flat[0] = -7


def writes_second(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Use the second operand as scratch: write its first element."""
    honest(kind, operands, results)
    operands[1].flat[0] = -7


def one_binding(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Read zeros for an operand that shares memory with an earlier operand."""
    read = [
        np.zeros_like(operand) if any(np.may_share_memory(operand, other) for other in operands[:n]) else operand
        for n, operand in enumerate(operands)
    ]
    honest(kind, read, results)


def exchanged(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Write the bytes of each of the two results to the address of the other result."""
    right = [np.empty_like(result) for result in results]
    honest(kind, operands, right)
    for data, other in zip(right, reversed(results), strict=True):
        ctypes.memmove(_address(other, 0), data.tobytes(), data.nbytes)


MISDEED: Final[Mapping[str, Callable[[str, Sequence[Array], Sequence[Array]], None]]] = {
    function.__name__: function
    for function in (
        *(one_binding, exchanged, two_pass, second_again, zero_first, neighbours),
        *(overrun, underrun, read_beyond, half, writes_operand, writes_second),
    )
}
"""The name of a misdeed -> its faulty kernel."""


def misdeed(name: str) -> Callable[[str, Sequence[Array], Sequence[Array]], None]:
    """Return the misdeed called `name`; raises UnknownNameError if there is none."""
    if name not in MISDEED:
        raise UnknownNameError("misdeed", name, MISDEED)
    return MISDEED[name]
