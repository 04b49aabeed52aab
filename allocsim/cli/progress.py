"""Progress on standard error: a bar where that is a terminal, a line every ten seconds elsewhere,
nothing where `--quiet` is asked for.

The bar goes when the work is done.

What this module does not see: the work.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from allocsim.printable import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

OnStep = Callable[[str, int, int], None]
"""Called with what is being done, how many steps of it are done, and of how many."""

EVERY_SECONDS: Final = 10
"""Between two lines where standard error is no terminal."""

_hushed = False


def hush(*, asked: bool) -> None:
    """Say nothing of progress from here on, or do so again: of the command that begins."""
    global _hushed  # noqa: PLW0603 - one command runs in a process at a time
    _hushed = asked


class ProgressLines:
    """What a bar of rich is asked for, as lines: no more than one every `EVERY_SECONDS`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._said = clock()
        self._description = ""
        self._done: float = 0
        self._total: float | None = None

    def add_task(self, description: str, *, total: float | None) -> "TaskID":
        """Begin with something else; its number is always 0."""
        self._description, self._done, self._total = description, 0, total
        return cast("TaskID", 0)

    def update(self, _task: "TaskID", *, description: str, completed: float, total: float | None) -> None:
        """Take what is being done, how much of it, and of how much."""
        self._description, self._done, self._total = description, completed, total
        self._say()

    def advance(self, _task: "TaskID", count: float) -> None:
        """Take how much more is done."""
        self._done += count
        self._say()

    def _say(self) -> None:
        now = self._clock()
        if now - self._said < EVERY_SECONDS:
            return
        self._said = now
        of = "" if self._total is None else f" of {self._total:,.0f}"
        text = f"{self._description} {self._done:,.0f}{of}, {now - self._began:.0f} s".strip()
        sys.stderr.write(f"{one_line(text)}\n")
        sys.stderr.flush()


@contextmanager
def stepping(name: str) -> Iterator[OnStep]:
    """Show what is being done, one stretch of steps after another."""
    with bar(counted=True) as shown:
        if shown is None:
            yield lambda _what, _done, _total: None
            return
        task = shown.add_task(name, total=None)
        yield lambda what, done, total: shown.update(task, description=f"{name}: {what}", completed=done, total=total)


@contextmanager
def counting(name: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show how many of `total` are done, of an unknown number if None.

    The function that is given is called with how many more.
    """
    with bar() as shown:
        if shown is None:
            yield lambda _: None
            return
        task = shown.add_task(name, total=total)
        yield lambda count: shown.advance(task, count)


@contextmanager
def bar(*, counted: bool = False, quiet: bool = False) -> "Iterator[Progress | ProgressLines | None]":
    """Give a bar on standard error, lines where that is no terminal, None where nobody is to look.

    `counted` shows how many of how many.
    """
    if quiet or _hushed:
        yield None
        return
    if not sys.stderr.isatty():
        yield ProgressLines()
        return
    from rich.console import Console  # only on a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # as above

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns if counted else (), console=Console(stderr=True), transient=True) as shown:
        yield shown
