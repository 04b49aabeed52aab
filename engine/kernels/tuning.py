"""What products by tiles measure of a machine once, and keep.

Which of two tiles is quicker, how many columns a block should have, whether it pays to ask for the
next line of memory: these hang on caches and memory, not on the width of vectors. They are measured
at the first product of the first process that finds nothing kept (some 0.3 to 1 s), and kept in the
user's cache, by the processor's name, its flags, the code of the kernels and what is tried. Where
that folder cannot be written, each process measures for itself.

No bit of a result hangs on what is measured: it moves the order in which tiles are computed and
where they read, never the order of a sum; and a result that meets an operand is computed by the
defaults (`engine.kernels.tiles.call`). So what chooses between tiles and a BLAS, and how deep a
block is, is not measured here: two machines of one kind of vectors give equal bits.

What this module does not see: how a product is computed.
"""

import json
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from allocsim import processor
from allocsim.errors import DocumentError, OutputError
from allocsim.files import cache_folder, write_atomic
from allocsim.files.gate import CEILINGS, content, record_of

Multiply = Callable[..., object]
"""`engine.kernels.compiled.products.multiply`, as machine code."""


class Tuning(NamedTuple):
    """How products go through memory; the defaults stand where nothing is quicker by `WORTH`."""

    in_place: int = 128
    """Rows of left up to which a panel of plain right is read where it lies, however far apart its
    rows are: to pack it costs more than the lines that push each other out of the first cache, as
    those do whose distance is a multiple of eight lines."""
    block: int = 1536
    """Columns in a block over plain right: what is read of it and written stays in the second
    cache. A multiple of `UNIT`."""
    narrow: int = 108
    """Time of a column in a narrow tile, in hundredths of one in a wide tile."""
    ahead: int = 1
    """Whether the next block of right is asked for while one is computed; else 0."""


UNIT: Final = 96
"""Columns that are whole tiles of every width."""
WORTH: Final = 0.97
"""Most time, against the default's, at which another value is taken: below it lies noise."""
ROUNDS: Final = 5

_TERMS: Final = 576
CANDIDATES: Final[dict[str, tuple[tuple[int, ...], tuple[tuple[int, int], ...]]]] = {
    "ahead": ((1, 0), ((64, 1536),) * 4),
    "block": ((1536, 768, 3072), ((64, 3072), (192, 3072))),
    "in_place": ((128, 0, 64, 256, 1 << 30), ((48, 1536), (96, 1536), (192, 1536), (384, 1536))),
    "narrow": ((108, 100, 104, 116, 125), ((64, 224), (64, 256), (64, 300), (64, 416))),
}
"""Field -> the values that are tried, the default first, and at which rows and columns."""


def measure(multiply: Multiply, room: Callable[[int, int], int]) -> Tuning:
    """Return what is quickest here, one field after the other; values take turns, the least counts.

    `room`: how many numbers of scratch a product of some rows and terms needs.
    """
    found = Tuning()
    for field, (values, sizes) in CANDIDATES.items():
        tried = [found._replace(**{field: value}) for value in values]
        arrays = [_arrays(rows, columns, room) for rows, columns in sizes]
        calls = [[(*some, each, False) for some in arrays] for each in tried]
        times = [min(took) for took in zip(*(_round(multiply, calls) for _ in range(ROUNDS)), strict=True)]
        best = min(range(len(values)), key=times.__getitem__)
        found = tried[best] if times[best] < WORTH * times[0] else found
    return found


def _arrays(rows: int, columns: int, room: Callable[[int, int], int]) -> tuple[Any, ...]:
    """Return left, right, out and room of a product."""
    shapes = (rows, _TERMS), (_TERMS, columns), (rows, columns)
    return *(np.ones((1, 1, *shape), np.float32) for shape in shapes), np.empty(room(rows, _TERMS), np.float32)


def _round(multiply: Multiply, calls: list[list[tuple[Any, ...]]]) -> list[float]:
    """Return the CPU seconds that the products of each value take."""
    found = []
    for products in calls:
        start = time.thread_time()
        for args in products:
            multiply(*args)
        found.append(time.thread_time() - start)
    return found


def kept(multiply: Multiply, room: Callable[[int, int], int], code: bytes) -> Tuning:
    """Return what was measured here with this code; measured and kept where nothing was."""
    name = f"products-{_digest(code)}.json"
    folder = cache_folder()
    found = _read(folder / name)
    if found is None:
        found = measure(multiply, room)
        _keep(folder, name, found)
    return found


def _digest(code: bytes) -> str:
    machine = "\n".join([processor.name(), *sorted(processor.flags())]).encode()
    return blake2b(machine + code + repr(CANDIDATES).encode(), digest_size=8).hexdigest()


def _read(path: Path) -> Tuning | None:
    """Return what a file holds; None where it holds no values that were ever tried."""
    try:
        held: dict[str, int] = record_of(content(path, CEILINGS["settings"]), dict[str, int], str(path))
    except DocumentError:
        return None
    right = held.keys() == CANDIDATES.keys() and all(value in CANDIDATES[field][0] for field, value in held.items())
    return Tuning(**held) if right else None


def _keep(folder: Path, name: str, found: Tuning) -> None:
    """Write it where possible; without a cache to write, each process measures."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(folder / name, json.dumps(found._asdict()).encode() + b"\n")
    except (OSError, OutputError):
        return
