"""Where a process was when it died: a page it shares with its parent, and what fills it.

`Page` holds the run and op a child is at. `catch` has the operating system put the address of a
fault there before the process dies of it: a handler of a few instructions in machine code, for
Python's own handlers run only after the instruction that faulted, which is never. It is reset when
it is called, so that the instruction faults once more and the process ends by the signal. A signal
that was sent (`kill`, `raise`) is no fault and comes only once: it is raised again, and has no
address. Neither has a fault of which the system tells none: one of arithmetic, an illegal
instruction, or an address that no memory can have.

What this module does not see: what the address belongs to.
"""

import ctypes
import mmap
import signal
import sys
from functools import cache
from typing import Any, Final

import numpy as np

SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE") if hasattr(signal, name)
)
"""Faults of one instruction."""
ONCE: Final = 0x80000000
INFORMED: Final = 4
"""SA_RESETHAND and SA_SIGINFO of Linux."""
CODE_AT: Final = 8
ADDRESS_AT: Final = 16
"""Of the code and the address in what the handler is told (siginfo_t of 64-bit Linux)."""
BY_KERNEL: Final = 0x80
"""SI_KERNEL: of a fault without an address. Codes up to 0 are of signals that were sent."""
NOWHERE: Final = -1


class Page:
    """Four numbers that parent and child see: run, op, address of the fault, and 1 where there is
    one.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self.numbers = np.frombuffer(self._memory, dtype=np.int64, count=4)
        self.numbers[:] = NOWHERE

    def at(self, run: int, step: int) -> None:
        """Say where the child is."""
        self.numbers[0], self.numbers[1] = run, step

    @property
    def place(self) -> tuple[int, int]:
        """Run and op at which it was last."""
        return int(self.numbers[0]), int(self.numbers[1])

    @property
    def address(self) -> int | None:
        """Of the fault; None where none is known."""
        return int(self.numbers[2]) & (1 << 64) - 1 if self.numbers[3] == 1 else None


def prepare() -> None:
    """Compile the handler, so that forks of this process need not."""
    if SUPPORTED:
        _handler()


def catch(page: Page) -> bool:
    """Have faults of this process put their address into the page; return whether that can be."""
    if not SUPPORTED:
        return False
    _page[0] = page.numbers.ctypes.data
    action = _Action(handler=_handler().address, flags=ONCE | INFORMED)
    set_action = ctypes.CDLL(None, use_errno=True).sigaction
    set_action.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    return all(set_action(int(number), ctypes.byref(action), None) == 0 for number in SIGNALS)


SUPPORTED: Final = sys.platform.startswith("linux") and sys.maxsize > 1 << 32
"""Whether the layouts below are this system's."""

_page: Final = np.zeros(1, dtype=np.int64)
"""Address of this process's page; a fork has a copy of its own."""


class _Action(ctypes.Structure):
    """struct sigaction of Linux's C libraries on 64 bits."""

    _fields_ = (
        ("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p),
    )  # fmt: skip


@cache
def _handler() -> Any:
    """Return machine code `(signal, information, context)` that writes the address to the page."""
    import numba  # noqa: PLC0415 - compiles
    from numba import types  # noqa: PLC0415 - as above

    from allocsim.p_sanitizer.compiled_executor import _at, _carray  # noqa: PLC0415 - as above

    place = _page.ctypes.data
    fault, bus = int(signal.SIGSEGV), int(signal.SIGBUS)
    again = ctypes.CDLL(None)["raise"]
    again.argtypes, again.restype = (ctypes.c_int,), ctypes.c_int

    @numba.cfunc(types.void(types.int32, types.intp, types.intp))
    def handler(number: int, information: int, _context: int) -> None:
        code = _carray(_at(information + CODE_AT), 1, np.int32)[0]
        if code <= 0:
            again(number)
            return
        if code == BY_KERNEL or number not in (fault, bus):
            return
        told = _carray(_at(information + ADDRESS_AT), 1, np.int64)
        page = _carray(_at(place), 1, np.int64)
        seen = _carray(_at(page[0]), 4, np.int64)
        seen[2] = told[0]
        seen[3] = 1

    return handler


__all__ = ["NOWHERE", "Page", "catch", "prepare"]
