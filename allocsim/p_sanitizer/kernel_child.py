"""A task in a process of its own: whatever it does, there is an answer.

    def task(child):
        for step in range(3):
            child.at(0, step)                          # where it is, for whoever hears of its death
            child.say(kernel(step))                    # anything that can be pickled

    told = in_child(task, seconds=60, memory=1 << 31)
    told.messages, told.whole, told.how                # what was said; "" or "ended its process by SIGSEGV", ...

The task runs in a fork, so it sees all that its parent had, and nothing that it changes comes back
but what it says and writes into shared memory. It may raise, crash, abort, leave by `exit`, hang or
take memory without end: `Told` says which, where it was, and the address of a fault. What it began
and left behind ends with it. What C libraries write of their own death (`malloc(): ...`) is a part
of the answer.

What this module does not see: what the task does to its own memory (`guard`). Threads that the
parent had do not run in a fork. Where the system cannot fork ModelError is raised.
"""

import contextlib
import os
import pickle
import select
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from allocsim.errors import ModelError
from allocsim.files.patience import Limit
from allocsim.files.signals import signal_name
from allocsim.p_sanitizer.crashes import Page, catch, prepare

LOOK: Final = 0.05
"""Seconds between two looks whether a child that is silent has ended."""


class KernelChild:
    """What a task has of its process."""

    def __init__(self, page: Page, writing: int) -> None:
        self.at = page.at
        self._pipe = os.fdopen(
            writing, "wb"
        )  # closed by the exit alone: who hears the end of it kills what still lives

    def say(self, *messages: Any) -> None:
        """Send what can be pickled."""
        for message in messages:
            pickle.dump(message, self._pipe)
        self._pipe.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What came of a task."""

    messages: tuple[Any, ...]
    raised: str
    """What it raised, in a line."""
    how: str
    """How its process ended, where it did not come to its end: `ended its process by SIGSEGV`."""
    place: tuple[int, int]
    """Run and op at which it was last, -1 before the first."""
    address: int | None
    """Of the fault that ended it."""

    @property
    def whole(self) -> bool:
        """Whether it came to its end."""
        return not (self.raised or self.how)


def in_child(task: Callable[[KernelChild], None], *, seconds: float | None = None, memory: int | None = None) -> Told:
    """Do a task in a fork of this process.

    Args:
        task: called there with what it has of its process.
        seconds: it is killed after so many; those in which a busy machine let it wait do not count.
        memory: bytes of addresses that it may take beyond those it has; more is a MemoryError, or
            what its code makes of that.

    Raises:
        ModelError: the system cannot fork.
    """
    if not hasattr(os, "fork"):
        raise ModelError("", "this system cannot fork a process to watch kernels in")
    prepare()
    page = Page()
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as errors:
        sys.stderr.flush()
        process = os.fork()
        if process == 0:
            os.close(reading)
            os.dup2(errors.fileno(), 2)
            _live(task, KernelChild(page, writing), page, memory)
        os.close(writing)
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(process, process)  # here too: it may be killed with its group before it has run at all
        said, code = _heard(reading, seconds, process)
        errors.seek(0)
        words = errors.read(1 << 20).decode(errors="replace")
    *messages, last = said or [None]
    ended = isinstance(last, _End)
    if not ended and said:
        messages.append(last)
    sys.stderr.write(words)
    return Told(
        messages=tuple(messages),
        raised=last.raised if isinstance(last, _End) else "",
        how="" if ended else _how(code, seconds, words),
        place=page.place,
        address=page.address if code is not None and code < 0 else None,
    )


@dataclass(frozen=True, slots=True)
class _End:
    """The last word of a child that came to its end, or raised."""

    raised: str


def _live(task: Callable[[KernelChild], None], child: KernelChild, page: Page, memory: int | None) -> None:
    """Be the child; never return."""
    try:
        os.setpgid(0, 0)
        catch(page)
        raised = ""
        try:
            if memory is not None:
                _limit(memory)
            task(child)
        except Exception as error:  # noqa: BLE001 - whatever a user's kernel raises
            raised = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        child.say(_End(raised))
    finally:
        os._exit(1)  # who says its last message is believed; the status is that of a child that did not


def _limit(memory: int) -> None:
    import resource  # noqa: PLC0415 - not on every system

    with open("/proc/self/statm", encoding="ascii") as numbers:  # noqa: PTH123 - the kernel's numbers of this process
        taken = int(numbers.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + memory, resource.RLIM_INFINITY))


def _how(code: int | None, seconds: float | None, words: str) -> str:
    if code is None:
        return f"did not end within {seconds:g} s and was killed"
    last = next((line.strip() for line in reversed(words.splitlines()) if line.strip()), "")
    how = f"ended its process {f'by {signal_name(-code)}' if code < 0 else f'with exit status {code}'}"
    return f"{how} ({last[:200]})" if code == -signal.SIGABRT and last else how


def _heard(reading: int, seconds: float | None, process: int) -> tuple[list[Any], int | None]:
    """Return the messages of a child, and how it ended: an exit status, a signal below 0, or None
    where it was killed because its time was over.

    What it began and left behind, which may hold the pipe open, ends with it.
    """
    limit = None if seconds is None else Limit(seconds=seconds, process=process)
    data, code, late = bytearray(), None, False
    try:
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            while True:
                ready = bool(select.select([pipe], [], [], 0 if code is not None else LOOK)[0])
                piece = pipe.read(1 << 16) if ready else None
                if piece:
                    data += piece
                if piece == b"" or (code is not None and not ready):
                    break
                if code is None and not ready:
                    code = _ended(process, os.WNOHANG)
                if code is None and limit is not None and not limit.left():
                    late = True
                    _end_all(process)
                    code = _ended(process, 0)
    finally:
        _end_all(process)
        if code is None:
            code = _ended(process, 0)
    return _unpacked(bytes(data)), None if late else code


def _ended(process: int, how: int) -> int | None:
    """Return how a child ended, None where it has not."""
    found, status = os.waitpid(process, how)
    return os.waitstatus_to_exitcode(status) if found else None


def _end_all(process: int) -> None:
    """Kill a child with all of its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def _unpacked(data: bytes) -> list[Any]:
    """Return the whole messages of a stream; one that the child's death cut short is none."""
    stream, found = BytesIO(data), []
    while stream.tell() < len(data):
        try:
            found.append(pickle.load(stream))  # noqa: S301 - our own fork wrote it
        except (EOFError, pickle.UnpicklingError):
            break
    return found


__all__ = ["KernelChild", "Told", "in_child"]
