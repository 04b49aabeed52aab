"""Find and redirect call slots: the words in which a mapped library keeps the addresses of the
functions that it calls by name.

    with redirected(paths, {"ggml_graph_compute": address}): ...

Contract
--------
* A shared library calls an exported function, its own or another library's, through a slot that the
  loader has filled (ELF: relocations JUMP_SLOT and GLOB_DAT; System V ABI, AMD64 supplement, 4.4).
  `slots_of(path, names)` finds these slots through the dynamic section of the mapped library.
* Inside a `redirected` block, each slot of the given names holds the given address. After the
  block, the slot holds its old address again. Two blocks must be nested: otherwise the block that
  ends last restores an address of the other block. A slot in a read-only page is written after the
  page is made writable; then the page gets its old rights back.
* A call that uses no slot is not redirected. Examples are calls in static code, calls in a library
  linked with -Bsymbolic, and calls through ctypes, which looks up the address in the loader.

The cost is O(relocations). The module works on Linux x86-64 only. This module does not examine what
the functions do.
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
"""One entry of the dynamic section."""

RELOCATION: Final = np.dtype([("at", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
SYMBOL_NBYTES: Final = 24

DYNAMIC_SEGMENT, LOAD_SEGMENT = 2, 1
STRINGS, SYMBOLS, CALLS, CALLS_NBYTES, OTHERS, OTHERS_NBYTES = 5, 6, 23, 2, 7, 8
"""Tags of the dynamic section: names, symbols, and the two relocation tables with their sizes."""

FUNCTION_SLOTS: Final = (7, 6)
"""Relocation kinds of a call slot: R_X86_64_JUMP_SLOT and R_X86_64_GLOB_DAT."""

READ_WRITE: Final = 3


def slots_of(path: Path, names: Iterable[str]) -> dict[str, list[int]]:
    """Return, for each function name, the addresses of the slots through which the library at
    `path` calls that function. Raises EngineError if this process has not mapped the library.
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
    """Redirect the calls of these libraries while the block runs: a call of the function `name`
    goes to the address `to[name]`. Yields the number of slots that were changed. Raises EngineError
    if a library is not mapped, or if the rights of a slot's page cannot be changed.
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
        raise EngineError(f"the rights of the page at {page:#x} cannot be changed (errno {ctypes.get_errno()})")
