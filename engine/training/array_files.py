"""Arrays of `.npy` and `.npz` files: headers are read first, and nothing is taken that they, the
file's size and the ceilings do not agree on.

    read_npy("tokens.npy")          # one array
    read_npz("moons.npz")           # name -> array

A file is data of others: it holds numbers (no pickles), says how many, and is as long as it says.
What is compressed may grow to `GROWTH` times the file's size and `FREE` bytes, no further: 8 MB of
a file made to do harm reach 8 GB. Whatever the libraries raise becomes one EngineError.

What this module does not see: what the arrays mean.
"""

import zipfile
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.lib import format as npy

from allocsim.errors import EngineError
from allocsim.files.gate import refused_with, refusing
from engine.kernels.binding import Array

_refused: Final = refused_with(EngineError)

GROWTH: Final = 64
FREE: Final = 64 << 20
MEMBERS: Final = 4096
"""Arrays of one file."""

_HEADERS: Final[Mapping[tuple[int, int], Callable[[Any], Any]]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}


def read_npy(path: str | Path) -> Array:
    """Return the array of a file; EngineError for what is none. O(bytes)."""
    place = Path(path)
    with refusing(str(path), ".npy file of numbers", refusal=_refused), place.open("rb") as file:
        size = place.stat().st_size
        return _array(str(path), file, size, size)


def read_npz(path: str | Path) -> dict[str, Array]:
    """Return the arrays of a file; EngineError for what is none or beyond the ceiling. O(bytes)."""
    place = Path(path)
    found: dict[str, Array] = {}
    with refusing(str(path), ".npz file of arrays", refusal=_refused), zipfile.ZipFile(place) as archive:
        rows = archive.infolist()
        _check_members(str(path), rows, place.stat().st_size)
        for row in rows:
            with archive.open(row) as file:
                found[row.filename.removesuffix(".npy")] = _array(
                    f"{path}: {row.filename!r}", file, row.file_size, row.file_size
                )
    return found


def _check_members(path: str, rows: list[zipfile.ZipInfo], size: int) -> None:
    if not rows or len(rows) > MEMBERS:
        raise EngineError(f"{path}: holds {len(rows)} arrays; 1 to {MEMBERS} are read")
    names = [row.filename for row in rows]
    for name in names:
        if not name.endswith(".npy") or names.count(name) > 1:
            raise EngineError(f"{path}: {name!r} is no array, or stands there twice")
    grown, most = sum(row.file_size for row in rows), GROWTH * size + FREE
    if grown > most:
        raise EngineError(
            f"{path}: has {size} bytes and would grow to {grown}, beyond {most}; store it uncompressed (numpy.savez)"
        )


def _array(where: str, file: IO[bytes], length: int, ceiling: int) -> Array:
    """Read header and numbers of one array of a stream of `length` bytes.

    The numbers take what is left of it, no byte more or less.
    """
    with refusing(where, "array of numbers", refusal=_refused):
        version = npy.read_magic(file)
        if version not in _HEADERS:
            raise EngineError(f"{where}: is no readable array of numbers: version {version} of the format")
        shape, turned, dtype = _HEADERS[version](file)
    if dtype.kind not in "fiub" or dtype.hasobject or any(n < 0 for n in shape):
        raise EngineError(f"{where}: is no array of numbers: {dtype}{list(shape)}")
    count, rest = prod(shape), length - file.tell()
    nbytes = count * dtype.itemsize
    if nbytes != rest or nbytes > ceiling:
        raise EngineError(f"{where}: says {dtype}{list(shape)}, which is {nbytes} bytes; it has {rest}")
    data = bytearray(nbytes)
    if _filled(file, data) != nbytes or file.read(1):
        raise EngineError(f"{where}: says {dtype}{list(shape)} and ends early, or late")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if turned else "C")


def _filled(file: IO[bytes], data: bytearray) -> int:
    """Read into all of `data`, as far as there is anything."""
    view, done = memoryview(data), 0
    while done < len(data):
        piece = file.read(min(1 << 20, len(data) - done))
        if not piece:
            break
        view[done : done + len(piece)] = piece
        done += len(piece)
    return done
