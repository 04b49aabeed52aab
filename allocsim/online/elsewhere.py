"""Calls that are made elsewhere: on another thread, and in a child that was forked.

A target says by `threads = True` that any thread may call it, and by `forks = True` that a child
may go on with its copy of it. Calls on other threads come one after the other: each is done before
the next is made. A child asks for as much as is held, frees all, and ends; what is wrong there
breaks the promise `forked`. The parent goes on with its own copy, whatever the child did.

What this module does not see: calls that race each other, and what they mean.
"""

import json
import os
import select
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from allocsim.files.patience import Limit
from allocsim.online.held_memory import Broken

SECONDS: Final = 5.0
"""Time that a child may take, what a busy machine lets it wait apart."""

IN_CHILD: Final = "in a child that was forked"


class Threads:
    """Threads by number; each begins when it is first asked, and lives as long as this object."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: dict[int, ThreadPoolExecutor] = {}

    def call(self, number: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Return what a function answers on that thread, or raise what it raises there."""
        if number not in self._running:
            self._running[number] = ThreadPoolExecutor(1)
        return self._running[number].submit(function, *arguments).result()

    def forked(self) -> None:
        """Forget all: a child has the thread that forked, and no other."""
        self._running = {}


def in_child(work: Callable[[], Broken | None]) -> Broken | None:
    """Fork, do the work in the child, and return what it returned: a broken promise, or None.

    A child that raises, hangs for `SECONDS` or ends by itself breaks the promise, too.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        _answer(work, write)
    os.close(write)
    try:
        said = _said(read, child)
    finally:  # of one that hangs, or where this process is interrupted
        os.close(read)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if said is None:
        return Broken("forked", f"a hang {IN_CHILD}", f"no answer in {SECONDS} s {IN_CHILD}")
    if not said:
        return Broken("forked", f"an end {IN_CHILD}", f"the process ended {IN_CHILD}")
    cause, sentence = json.loads(said)
    return Broken("forked", f"{cause} {IN_CHILD}", f"{IN_CHILD}: {sentence}") if cause else None


def _answer(work: Callable[[], Broken | None], write: int) -> None:
    """Do the work, say what came of it, and end this process."""
    try:
        broken = work()
        told = ("", "") if broken is None else (broken.cause, broken.sentence)
    except BaseException as error:  # noqa: BLE001 - a child comes back to nobody
        told = f"{type(error).__name__}", f"{type(error).__name__}: {error}"[:200]
    os.write(write, json.dumps(told).encode())
    os._exit(0)


def _said(read: int, child: int) -> bytes | None:
    """Return all that a child writes until it ends; None where it does not end."""
    found, limit = b"", Limit(seconds=SECONDS, process=child)
    while left := limit.left():
        if not select.select([read], [], [], left)[0]:
            continue
        part = os.read(read, 65536)
        if not part:
            return found
        found += part
    return None


__all__ = ["IN_CHILD", "Threads", "in_child"]
