"""The header of a GGUF file, walked before a library reads it.

    check_header(path)

Counts and lengths in a header are loops in a reader: a file of a kilobyte that says 2^60 entries
keeps it busy for ever. Here each count is held against the bytes that are left for it, before
anything is made of it. O(bytes of the header), nothing is kept.

Layout (ggml's docs/gguf.md, version 2 and 3, little-endian): magic, version u32, tensors u64,
entries u64; an entry is a string, a type u32 and its value; a tensor is a string, dimensions u32,
that many u64, a type u32, an offset u64. A string is a length u64 and its bytes.

What this module does not see: tensor data, and which entries a model needs.
"""

import mmap
from pathlib import Path
from struct import unpack_from
from typing import Final

from allocsim.errors import EngineError

SCALARS: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value, by its type."""
STRING: Final = 8
ARRAY: Final = 9
DIMENSIONS: Final = 4
NESTED: Final = 4
"""Arrays within arrays at most; none is known in files."""
TENSORS: Final = 1 << 20


class _Walk:
    """A place in the bytes; whoever asks for more than are left is refused."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data, self.path, self.at = data, path, 0

    def refuse(self, rule: str) -> EngineError:
        return EngineError(f"{self.path}: is no readable GGUF file: byte {self.at}: {rule}")

    def skip(self, count: int, what: str) -> None:
        if count > len(self.data) - self.at:
            raise self.refuse(f"{what} of {count} bytes; {len(self.data) - self.at} are left")
        self.at += count

    def number(self, nbytes: int, what: str) -> int:
        start = self.at
        self.skip(nbytes, what)
        return int(unpack_from("<I" if nbytes == 4 else "<Q", self.data, start)[0])

    def count(self, nbytes: int, least: int, what: str) -> int:
        """Return a number of things of at least `least` bytes each; refuse more than fit."""
        found = self.number(nbytes, what)
        if found * least > len(self.data) - self.at:
            raise self.refuse(f"says {found} {what}; {len(self.data) - self.at} bytes are left for them")
        return found

    def string(self) -> None:
        self.skip(self.number(8, "the length of a text"), "a text")

    def value(self, kind: int, depth: int) -> None:
        if kind in SCALARS:
            self.skip(SCALARS[kind], "a value")
        elif kind == STRING:
            self.string()
        elif kind == ARRAY and depth < NESTED:
            self.array(depth)
        else:
            raise self.refuse(f"a value of type {kind}")

    def array(self, depth: int) -> None:
        kind = self.number(4, "the type of a list")
        least = SCALARS.get(kind, 8 if kind == STRING else 12)
        length = self.count(8, least, "entries of a list")
        if kind in SCALARS:
            self.skip(length * least, "a list")
            return
        for _ in range(length):
            self.value(kind, depth + 1)


def check_header(path: Path) -> None:
    """Raise EngineError unless the header of a GGUF file is as long as it says."""
    with path.open("rb") as file:
        if path.stat().st_size < 24:
            raise EngineError(f"{path}: is no readable GGUF file: it has {path.stat().st_size} bytes")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _walk(_Walk(data, path))


def _walk(walk: _Walk) -> None:
    if walk.data[:4] != b"GGUF":
        raise walk.refuse("it does not begin with GGUF")
    walk.at = 4
    version = walk.number(4, "the version")
    if version not in (2, 3):
        raise walk.refuse(f"version {version}; 2 and 3 are read")
    tensors = walk.count(8, 8 + 4 + 4 + 8, "tensors")
    entries = walk.count(8, 8 + 4 + 1, "entries")
    if tensors > TENSORS:
        raise walk.refuse(f"says {tensors} tensors; {TENSORS} are the most that are read")
    for _ in range(entries):
        walk.string()
        walk.value(walk.number(4, "the type of a value"), 0)
    for _ in range(tensors):
        walk.string()
        dimensions = walk.number(4, "the dimensions of a tensor")
        if dimensions > DIMENSIONS:
            raise walk.refuse(f"a tensor of {dimensions} dimensions; {DIMENSIONS} are the most")
        walk.skip(8 * dimensions + 4 + 8, "a tensor")
