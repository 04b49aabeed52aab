"""Tasks over processes: in order, one at a time each, or here where one process is asked for.

What this module does not see: what a task is. In other processes it must be made of names and data.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any


@contextmanager
def mapping(workers: int) -> Iterator[Callable[..., Any]]:
    """Give a `map` over so many processes; its results come in the order of its arguments."""
    if workers < 2:
        yield map
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield pool.map
