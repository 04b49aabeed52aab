"""Pages mapped twice, and a guard over the kernel's view of them: each access that an op does not
declare is a fault, with address, instruction and thread.

    memory, view = twice(nbytes)                 # the checker's bytes and the kernel's, the same memory
    guard = Guard(view, spans)                   # spans[step]: (low, high, may write), what the op declares, in bytes of the view
    guard.arm(); guard.enter(0); <op 0>; guard.leave(); ...; guard.release()

Within an op its operands' pages may be read, and its results' pages written and, once that was
done, read; no other page of the view has any right, between two ops none at all. The handler
(`guard.c`) is compiled at first use by the system's C compiler into the user's cache folder. It
logs a fault, allows that page until the op ends, and hands faults elsewhere on to whoever handled
them before. Rights are back after `release`, and in a fork at once.

A thread that lived before an op and faults at a page that its own op declares is charged to that
op; else to the op that runs, with the thread's.

What this module does not see: a second access to a page by one op; what shares a page with declared
bytes; a read of a result once the op has written near (no page can be written and not be read);
what the system reads and writes for a kernel, which is refused (EFAULT) where the kernel itself
would have faulted. A thread that begins and ends within an op is known by its number alone. Linux
on x86_64 and aarch64 (`why_not`).
"""

import ctypes
import mmap
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import ModelError
from allocsim.files import cache_folder

Bytes = NDArray[np.uint8]
Span = tuple[int, int, bool]
"""Half-open range of the view, and whether it may be written."""

ROOM: Final = 1024
"""Faults of one op that are told; others are counted."""
HEAD: Final = ("low", "high", "page", "op", "within", "count", "room", "closed", "starts", "spans")
FAULT: Final = ("op", "within", "address", "instruction", "write", "thread")
"""Of guard.c, each 8 bytes."""
FIRST: Final = 8
"""Of guard.c: the right to write, and to read what was written."""
SOURCE: Final = Path(__file__).with_name("guard.c")
TASKS: Final = "/proc/self/task"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFault:
    """One access beyond what an op declares."""

    step: int
    """The op that is charged."""
    during: int | None
    """The op that ran, where a thread did it that the op had left behind."""
    position: int
    """Of the byte in the view."""
    write: bool
    instruction: str
    """Its address, and its place in a library where the system knows one."""
    thread: str
    """Words where it is not the thread that called the op, or where that op had ended."""


def twice(nbytes: int) -> tuple[Bytes, Bytes]:
    """Return two views of the same zeroed bytes, whole pages.

    Raises ModelError with a line that says why not, OSError where there is no memory.
    """
    if why := why_not():
        raise ModelError("", f"pages cannot be guarded here: {why}")
    file = os.memfd_create("allocsim")
    try:
        os.ftruncate(file, nbytes)
        maps = [mmap.mmap(file, nbytes) for _ in range(2)]
    finally:
        os.close(file)
    one, two = (np.frombuffer(made, dtype=np.uint8) for made in maps)
    return one, two


@cache
def why_not() -> str:
    """Return why pages cannot be guarded on this system; empty where they can."""
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "aarch64"):
        return f"faults are read on Linux, x86_64 and aarch64, not on {platform.system()} {platform.machine()}"
    try:
        _library()
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error).encode()).decode(errors="replace").split("\n")[0]
        return f"no C compiler made the handler ({said})"
    return ""


@cache
def _library() -> Any:
    """Return the compiled handler; raise OSError or CalledProcessError where it cannot be made."""
    source = SOURCE.read_bytes()
    name = f"guard-{blake2b(source, digest_size=8).hexdigest()}-{platform.machine()}.so"
    kept = cache_folder()
    made = kept / name
    if not made.exists():
        compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise OSError("there is none")
        try:
            kept.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder = tempfile.mkdtemp(prefix="guard-", dir=kept)
        except OSError:  # no cache can be kept
            folder = tempfile.mkdtemp(prefix="allocsim-guard-")
        part = Path(folder) / name
        subprocess.run(  # noqa: S603 - our own source, by the compiler of whoever runs this
            [compiler, "-O2", "-shared", "-fPIC", "-o", part, SOURCE], check=True, capture_output=True
        )
        if part.is_relative_to(kept):
            made = part.replace(made)
            Path(folder).rmdir()
        else:
            library = ctypes.CDLL(str(part))
            shutil.rmtree(folder)
            return library
    return ctypes.CDLL(str(made))


_armed: Final[WeakSet["Guard"]] = WeakSet()


def _disarmed() -> None:
    """Give all rights back in a fork: it has other work than the op that began it."""
    for guard in tuple(_armed):
        guard.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disarmed)


class Guard:
    """The rights of one view."""

    def __init__(self, view: Bytes, spans: Sequence[Sequence[Span]]) -> None:
        """Take a view of `twice`, and what each op declares, in order of steps."""
        self._base, self._view, self._spans = int(view.ctypes.data), view, spans
        rows, starts = [], [0]
        for declared in spans:
            rows += _pages(declared, self._base)
            starts.append(len(rows))
        self._rows = np.array(rows, np.int64).reshape(-1, 3)
        self._starts = np.array(starts, np.int64)
        self._state = np.zeros(len(HEAD) + ROOM * len(FAULT), np.int64)
        self._state[: len(HEAD)] = (
            self._base,
            self._base + len(view),
            mmap.PAGESIZE,
            0,
            0,
            0,
            ROOM,
            0,
            self._starts.ctypes.data,
            self._rows.ctypes.data,
        )
        library = _library()
        place, step = ctypes.c_void_p, ctypes.c_int64
        library.guard_enter.argtypes = (place, step)
        library.guard_leave.argtypes = library.guard_arm.argtypes = library.guard_release.argtypes = (place,)
        self._library, self._where = library, int(self._state.ctypes.data)
        self._threads: dict[int, int] = {}
        self._alive: list[str] = []
        self._caller = 0

    def arm(self) -> None:
        """Take all rights; raise ModelError where that cannot be done."""
        _armed.add(self)
        self._alive, self._caller = [], threading.get_native_id()
        self._threads = {}
        self._census(-1)
        self._held(self._library.guard_arm(self._where))

    def enter(self, step: int) -> None:
        """Give the rights of an op."""
        self._held(self._library.guard_enter(self._where, step))

    def leave(self) -> tuple[PageFault, ...]:
        """Take all rights; return the faults since the last call, one for each op, thread, kind of
        access and span of pages that touch.
        """
        self._held(self._library.guard_leave(self._where))
        count = int(self._state[HEAD.index("count")])
        found = self._faults(min(count, ROOM)) if count else ()
        if count:
            self._state[HEAD.index("count")] = self._state[HEAD.index("closed")] = 0
            self._state[len(HEAD) :] = 0
        self._census(int(self._state[HEAD.index("op")]))
        return found

    def release(self) -> None:
        """Give all rights back."""
        _armed.discard(self)
        self._library.guard_release(self._where)

    def _held(self, bad: int) -> None:
        if bad:
            self.release()
            raise ModelError("", "the system refused rights of pages (mprotect)")

    def _census(self, step: int) -> None:
        """Note which op began the threads that are new."""
        alive = os.listdir(TASKS)  # noqa: PTH208 - names alone, after each op
        if alive != self._alive:
            self._alive = alive
            self._threads = {thread: self._threads.get(thread, step) for thread in map(int, alive)}

    def _faults(self, count: int) -> tuple[PageFault, ...]:
        told: list[PageFault] = []
        seen: dict[tuple[int, int, int], int] = {}
        rows = self._state[len(HEAD) :].reshape(ROOM, len(FAULT))[:count].tolist()
        for step, within, address, instruction, write, thread in sorted(rows, key=lambda row: (row[0], row[4], row[2])):
            key, page = (step, write, thread), address // mmap.PAGESIZE
            if thread and page - seen.get(key, -2) > 1:  # a span of pages is told by its first
                charged, words = self._charged(step, address - self._base, thread, within=bool(within))
                told.append(
                    PageFault(
                        step=charged,
                        during=step if charged != step else None,
                        position=address - self._base,
                        write=bool(write),
                        instruction=_instruction(instruction),
                        thread=words,
                    )
                )
            seen[key] = page
        return tuple(told)

    def _charged(self, step: int, position: int, thread: int, *, within: bool) -> tuple[int, str]:
        """Return the op that a fault is charged to, and words of its thread."""
        if thread == self._caller:
            return step, "" if within else "after the op had ended"
        began = self._threads.get(thread, step)
        if began < 0:
            return step, f"in thread {thread}"
        if began < step and any(
            low // mmap.PAGESIZE <= (self._base + position) // mmap.PAGESIZE < -(-high // mmap.PAGESIZE)
            for low, high, _ in _pages(self._spans[began], self._base)
        ):
            return began, f"in thread {thread}, which op {began} had begun and left behind, while op {step} ran"
        late = f", which op {began} had begun" if began < step else ""
        return step, f"in thread {thread}{late}{'' if within else ', after the op had ended'}"


def _pages(declared: Sequence[Span], base: int) -> list[tuple[int, int, int]]:
    """Return the pages of spans with their rights, disjoint and in order; what is written alone is
    to be written first.
    """
    size, both = mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE
    edges: dict[int, list[int]] = {}
    for low, high, write in declared:
        if low < high:
            edges.setdefault((base + low) // size * size, [0, 0])[write] += 1
            edges.setdefault(-(-(base + high) // size) * size, [0, 0])[write] -= 1
    found: list[tuple[int, int, int]] = []
    depth, since = [0, 0], 0
    for edge in sorted(edges):
        if any(depth):
            right = mmap.PROT_READ if not depth[1] else both if depth[0] else FIRST
            if found and found[-1][1:] == (since, right):
                found[-1] = (found[-1][0], edge, right)
            else:
                found.append((since, edge, right))
        depth = [depth[0] + edges[edge][0], depth[1] + edges[edge][1]]
        since = edge
    return found


class _Place(ctypes.Structure):
    """Dl_info of Linux's C libraries."""

    _fields_ = (
        ("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p),
    )  # fmt: skip


def _instruction(address: int) -> str:
    """Return an instruction's address, with library and function where the loader knows them."""
    place = _Place()
    known = ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(place))
    if not known or not place.file or not place.base:
        return f"{address:#x}"
    function = f" {place.name.decode(errors='replace')}" if place.name else ""
    return f"{address:#x} ({os.path.basename(place.file.decode(errors='replace'))}+{address - place.base:#x}{function})"  # noqa: PTH119


__all__ = ["Guard", "PageFault", "twice", "why_not"]
