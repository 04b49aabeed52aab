"""Names of signals, how a process ended, and how what a process began ends with it.

A process that dies with its parent, and one that adopts whoever loses his parent below it, are
Linux's; elsewhere these do nothing, and the end of standard input has to do.

What this module does not see: who sent a signal.
"""

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable, Collection
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number where it has none (real-time signals)."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how_ended(code: int) -> str:
    """Return how a process ended, from its exit status: negative for a signal."""
    return signal_name(-code) if code < 0 else f"exit status {code}"


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Ask the system to send this process a signal when the thread that began it ends."""
    _control()(_PR_SET_PDEATHSIG, int(by))


def dying_with_this() -> Callable[[], None]:
    """Return what a child is to do first, between fork and exec: it ends with this process."""
    parent = os.getpid()
    _control()

    def begin() -> None:
        die_with_parent()
        if os.getppid() != parent:
            os._exit(1)

    return begin


def adopt_orphans() -> None:
    """Become the parent of whoever loses his below this process. It says with this that all of its
    children may be ended by `end_orphans`.
    """
    global _adopter  # noqa: PLW0603 - what the system knows of this process
    _control()(_PR_SET_CHILD_SUBREAPER, 1)
    _adopter = os.getpid()


_adopter = 0
"""The process that called `adopt_orphans`: a fork of it has not."""


def adopts_orphans() -> bool:
    """Return whether this process has called `adopt_orphans`."""
    return _adopter == os.getpid()


@functools.cache
def _control() -> Callable[..., Any]:
    """Return the system's `prctl`, or what does nothing."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - only here

        with contextlib.suppress(OSError, AttributeError):
            found: Callable[..., Any] = ctypes.CDLL(None, use_errno=True).prctl
            return found
    return lambda *_: None


def words_of(path: str) -> list[bytes]:
    """Return the words of a file of the system's, in a third of the time of `Path.read_text`."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as it says
        return file.read().split()


def children_of(process: int) -> list[int]:
    """Return the processes whose parent a process is, none where the system does not say."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it may end at any moment
        for task in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208 - asked after every answer of a target
            with contextlib.suppress(OSError, ValueError):
                found += map(int, words_of(f"/proc/{process}/task/{task}/children"))
    return found


def end_all(process: int) -> None:
    """End all that a process has begun, and what these have."""
    begun = [process]
    for one in begun:
        begun += children_of(one)
    for child in reversed(begun[1:]):
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)


def end_orphans(kept: Collection[int] = ()) -> int:
    """End and reap this process's children, but those that are kept; return how many there were.

    Where orphans are adopted these are what is left of one that ended.
    """
    ended = 0
    while left := [child for child in children_of(os.getpid()) if child not in kept]:
        for child in left:
            end_all(child)
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)
        ended += len(left)
    return ended


__all__ = [
    "adopt_orphans",
    "adopts_orphans",
    "children_of",
    "die_with_parent",
    "dying_with_this",
    "end_all",
    "end_orphans",
    "how_ended",
    "signal_name",
]
