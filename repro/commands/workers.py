"""Map a function over arguments in several processes, each of which takes one task at a time.

What this module does not see: the work of a task. Tasks for other processes must be picklable.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any


@contextmanager
def mapping(workers: int) -> Iterator[Callable[..., Any]]:
    """Yield a `map` over `workers` processes, or in this process if `workers` is less than 2.

    The results of this `map` are in the order of its arguments.
    """
    if workers < 2:
        yield map
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield pool.map
