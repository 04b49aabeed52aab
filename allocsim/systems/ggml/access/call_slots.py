"""The slots in which a mapped library keeps the addresses of the functions that it calls by name,
and a way to redirect them for a while.

    with redirected(paths, {"ggml_graph_compute": address}): ...

Contract
--------
* A shared library calls functions that it or another library exports through slots that the loader
  has filled (ELF: relocations JUMP_SLOT and GLOB_DAT; System V ABI, AMD64 supplement, 4.4).
  `slots_of(path, names)` finds them in the mapped library by its dynamic section.
* Inside `redirected`, each slot of these names holds the given address; afterwards it holds its old
  one again. Two blocks must be nested: otherwise the block that ends last restores an address of
  the other block. A page that is not writable is made writable for that moment.
* Calls that use no slot are not redirected: those in static code, in a library linked with
  -Bsymbolic, and through ctypes, which asks the loader itself.

O(relocations). Linux x86-64 only. What this module does not see: the effect of a function.
"""

import ctypes
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.readable_memory import mappings

PROGRAM_HEADER: Final = np.dtype(
    [("type", "<u4"), ("flags", "<u4"), ("offset", "<u8"), ("vaddr", "<u8"), ("paddr", "<u8"), ("filesz", "<u8"), ("memsz", "<u8"), ("align", "<u8")]
)  # fmt: skip
ENTRY: Final = np.dtype([("tag", "<i8"), ("value", "<u8")])
"""Of the dynamic section."""

RELOCATION: Final = np.dtype([("at", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
SYMBOL_NBYTES: Final = 24

DYNAMIC_SEGMENT, LOAD_SEGMENT = 2, 1
STRINGS, SYMBOLS, CALLS, CALLS_NBYTES, OTHERS, OTHERS_NBYTES = 5, 6, 23, 2, 7, 8
"""Tags: names, symbols, and the two tables of relocations with their sizes."""

FUNCTION_SLOTS: Final = (7, 6)
"""R_X86_64_JUMP_SLOT and R_X86_64_GLOB_DAT."""

READ_WRITE: Final = 3


def slots_of(path: Path, names: Iterable[str]) -> dict[str, list[int]]:
    """Return for each name the addresses of the slots through which the library at `path` calls it.

    Raises EngineError where this process has not mapped it.
    """
    base = _base_of(path)
    wanted = {name.encode(): name for name in names}
    found: dict[str, list[int]] = {name: [] for name in wanted.values()}
    headers = _segments(base)
    dynamic = headers[headers["type"] == DYNAMIC_SEGMENT]
    if not len(dynamic):
        return found
    base -= int(headers[headers["type"] == LOAD_SEGMENT]["vaddr"].min(initial=0))
    entries = _table(base + int(dynamic[0]["vaddr"]), int(dynamic[0]["memsz"]), ENTRY)
    tags = {int(tag): int(value) for tag, value in entries.tolist()}

    def place(tag: int) -> int:
        return tags[tag] if tags[tag] >= base else base + tags[tag]

    for table, nbytes in ((CALLS, CALLS_NBYTES), (OTHERS, OTHERS_NBYTES)):
        if table not in tags or nbytes not in tags:
            continue
        rows = _table(place(table), tags[nbytes], RELOCATION)
        for row in rows[np.isin(rows["kind"], FUNCTION_SLOTS)]:
            symbol = place(SYMBOLS) + SYMBOL_NBYTES * int(row["symbol"])
            name = ctypes.string_at(place(STRINGS) + ctypes.c_uint32.from_address(symbol).value)
            if name in wanted:
                found[wanted[name]].append(base + int(row["at"]))
    return found


@contextmanager
def redirected(paths: Sequence[Path], to: Mapping[str, int]) -> Iterator[int]:
    """Let these libraries call the given addresses instead, by name, while the block runs.

    Gives the number of slots that were changed. Raises EngineError as `slots_of` does.
    """
    slots = [(slot, to[name]) for path in paths for name, found in slots_of(path, to).items() for slot in found]
    before = [ctypes.c_uint64.from_address(slot).value for slot, _ in slots]
    try:
        for slot, address in slots:
            _write(slot, address)
        yield len(slots)
    finally:
        for (slot, _), address in zip(slots, before, strict=True):
            _write(slot, address)


def _base_of(path: Path) -> int:
    for span, _, offset, name in mappings():
        if name and not offset and Path(name).resolve() == path.resolve():
            return span.start
    raise EngineError(f"{path.name} is not mapped in this process")


def _segments(base: int) -> Any:
    start = ctypes.c_uint64.from_address(base + 32).value
    size, count = (ctypes.c_uint16.from_address(base + at).value for at in (54, 56))
    return _table(base + start, size * count, PROGRAM_HEADER)


def _table(address: int, nbytes: int, row: np.dtype[Any]) -> Any:
    return np.frombuffer(ctypes.string_at(address, nbytes // row.itemsize * row.itemsize), dtype=row)


def _write(slot: int, address: int) -> None:
    rights = _rights(slot)
    page = slot & -mmap.PAGESIZE
    if not rights & mmap.PROT_WRITE:
        _protect(page, READ_WRITE)
    ctypes.c_uint64.from_address(slot).value = address
    if not rights & mmap.PROT_WRITE:
        _protect(page, rights)


def _rights(address: int) -> int:
    for span, rights, _, _ in mappings():
        if address in span:
            return sum(bit for letter, bit in (("r", 1), ("w", 2), ("x", 4)) if letter in rights)
    raise EngineError(f"{address:#x} is not mapped in this process")


def _protect(page: int, rights: int) -> None:
    done = ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), rights)
    if done:
        raise EngineError(f"the page at {page:#x} cannot be made writable (errno {ctypes.get_errno()})")
