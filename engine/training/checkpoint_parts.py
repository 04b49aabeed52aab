"""The weights and moments of a checkpoint of many ranks: each rank writes its part of all of them.

| file | holds |
|---|---|
| `FILE.R-of-N.DIGEST` | part R, flat, of each weight and moment: of n elements ceil(n / N), the last fewer |
| `FILE` | all else (`engine.training.checkpoint`), with the names of the parts and the whole shapes |

A part is named by its content, so nothing that a checkpoint names is ever written over: as long as
`FILE` is the old one, its parts are there, and they go only once the new one has taken its place.
Any number of ranks goes on from the parts of any other.

What this module does not see: who holds what in memory, and when all have written.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from glob import escape
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from allocsim.errors import EngineError
from allocsim.files import write_atomic
from allocsim.files.gate import refused_with, refusing
from engine.kernels.binding import Array
from engine.training.digests import digest, ordered

MADE: Final = "allocsim.part"

_NAME: Final = re.compile(r"(?P<file>[^/\\]+)\.(?P<rank>\d{1,6})-of-(?P<ranks>\d{1,6})\.(?P<digest>[0-9a-f]{32})")
_refused: Final = refused_with(EngineError)


def write_part(path: Path, arrays: Mapping[str, Array], rank: int, ranks: int) -> str:
    """Write the part of one rank beside the checkpoint; return the name of its file. O(bytes).

    Raises OutputError where it cannot be written.
    """
    from safetensors.numpy import save as pack  # noqa: PLC0415 - only who saves needs it

    part = {name: _cut(np.ascontiguousarray(array).reshape(-1), rank, ranks) for name, array in arrays.items()}
    text = f"{rank} of {ranks}"
    name = f"{path.name}.{rank}-of-{ranks}.{digest(part, text)[:32]}"
    if not (path.parent / name).exists():  # what has this name has this content: it is looked at when it is read
        write_atomic(path.parent / name, ordered(pack(part, metadata={MADE: text})))
    return name


def _cut(flat: Array, rank: int, ranks: int) -> Array:
    length = -(-flat.size // ranks)
    return flat[rank * length : (rank + 1) * length].copy()


def read_parts(path: Path, names: Sequence[str], shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return whole arrays from all parts, by name. O(bytes).

    Raises EngineError, with file and rule, for a part that is not there, is another one's or is not
    as it was written, and for parts that do not make arrays of these shapes.
    """
    parts = [_read(path, name, rank, len(names)) for rank, name in enumerate(names)]
    found: dict[str, Any] = {}
    for name, shape in shapes.items():
        rows = [part[name] for part in parts if name in part]
        size = sum(row.size for row in rows)
        if len(rows) != len(names) or len({row.dtype for row in rows}) != 1 or size != prod(shape):
            raise EngineError(f"{path}: is no complete checkpoint: its parts do not make {name!r} of shape {[*shape]}")
        found[name] = np.concatenate(rows).reshape(shape)
    return found


def _read(path: Path, name: str, rank: int, ranks: int) -> dict[str, Any]:
    from safetensors import safe_open  # noqa: PLC0415 - only who resumes needs it

    told = _NAME.fullmatch(name)
    if told is None or (told["rank"], told["ranks"]) != (str(rank), str(ranks)):
        raise EngineError(f"{path}: is no complete checkpoint: {name[:80]!r} is no name of its part {rank} of {ranks}")
    place = path.parent / name
    if not place.is_file():
        raise EngineError(f"{path}: part {rank} of {ranks} is not there: {place}; the files of all parts lie beside it")
    with refusing(str(place), "part of a checkpoint", refusal=_refused), safe_open(place, framework="numpy") as file:
        text = (file.metadata() or {}).get(MADE, "")
        part = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
    if digest(part, text)[:32] != told["digest"]:
        raise EngineError(f"{place}: is not as it was written: its digest differs; take an earlier copy, or train anew")
    return part


def forget(path: Path, kept: Sequence[str]) -> None:
    """Throw away the parts of earlier checkpoints of this file; what cannot go stays."""
    for place in path.parent.glob(f"{escape(path.name)}.*-of-*.*"):
        told = _NAME.fullmatch(place.name)
        if told is not None and told["file"] == path.name and place.name not in kept:
            with suppress(OSError):
                place.unlink()
