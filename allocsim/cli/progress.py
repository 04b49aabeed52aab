"""Progress on standard error: a bar where that is a terminal, silence elsewhere.

The bar goes when the work is done.

What this module does not see: the work.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

OnStep = Callable[[str, int, int], None]
"""Called with what is being done, how many steps of it are done, and of how many."""


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
def bar(*, counted: bool = False, quiet: bool = False) -> "Iterator[Bar | None]":
    """Give a bar on standard error, None where that is no terminal or nobody is to look.

    `counted` shows how many of how many.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # only on a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # as above
    from rich.progress import Progress as Bar  # as above

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns if counted else (), console=Console(stderr=True), transient=True) as shown:
        yield shown
