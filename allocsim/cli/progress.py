"""Progress on standard error: a bar where that is a terminal, silence elsewhere. The bar goes when the work is done.

What this module does not see: the work.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from engine.training.loop import OnBatch, Progress

Steps = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""


@contextmanager
def stepping(name: str) -> Iterator[Steps]:
    """Show what is being done, one stretch of steps after another."""
    with _bar(counted=True) as bar:
        if bar is None:
            yield lambda _what, _done, _total: None
            return
        task = bar.add_task(name, total=None)
        yield lambda what, done, total: bar.update(task, description=f"{name}: {what}", completed=done, total=total)


@contextmanager
def counting(name: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show how many there have been of `total`, or of nobody knows how many; what is given is called with how many more."""
    with _bar() as bar:
        if bar is None:
            yield lambda _: None
            return
        task = bar.add_task(name, total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def training(*, quiet: bool) -> "Iterator[OnBatch | None]":
    """Show epochs, batches and the loss; None where nobody looks."""
    with _bar(quiet=quiet) as bar:
        if bar is None:
            yield None
            return
        task = bar.add_task("", total=1)

        def shown(progress: "Progress") -> None:
            part = "train" if progress.training else "validate"
            text = f"epoch {progress.epoch + 1}/{progress.epochs} {part} loss {progress.result.loss:.4g}"
            bar.update(task, description=text, completed=progress.batch, total=progress.batches)

        yield shown


@contextmanager
def _bar(*, counted: bool = False, quiet: bool = False) -> "Iterator[Bar | None]":
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415  # only on a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415  # as above
    from rich.progress import Progress as Bar  # noqa: PLC0415  # as above

    columns: tuple[Any, ...] = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns if counted else (), console=Console(stderr=True), transient=True) as bar:
        yield bar
