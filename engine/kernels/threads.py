"""Independent parts of one call, done at once.

One knob for all arithmetic of a process: as many threads as `engine.Runtime(threads=)` set
(`limit`), else as many as numpy's BLAS may use (`OPENBLAS_NUM_THREADS`, `threadpoolctl`), and one
where that cannot be asked. While a limit holds BLAS has one thread, and its large products are cut
as all others are: its own threads go on looking for work for a while after each product, on
processors that the parts of the next call need.

Contract
--------
* `parts` says, when a call is bound, into how many it is worth cutting; small calls stay whole.
* The parts of a call write apart from each other and read nothing that another writes, each with
  scratch of its own. So bits do not depend on the number of threads, if a part has the bits that
  its elements have in the whole; the kernels that are cut see to that.
* When `at_once` returns or raises, no part runs. The caller takes parts as the others do, until
  none is left: several callers cannot wait for each other, and a pool that takes no more work, or
  a thread that gets no processor, costs time alone.
* Threads are made at the first use, and anew in a forked child, where those of the parent are not.

What this module does not see: what the parts compute.
"""

import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache, partial
from itertools import pairwise
from threading import Lock
from typing import Any, Final

import numpy as np

from engine.kernels.binding import Array, Arrays, Call, in_turn, meets

SHARE: Final = 1 << 20
"""Fewest multiplications of a part where threads wait for work (`engine.tape.team`): some ten
microseconds, several times what it takes them to see it."""

WOKEN: Final = 4
"""How much longer a part must be where a thread has to be woken for it."""

_TELLS: Final = "scipy_openblas_get_num_threads64_"


@lru_cache(maxsize=1)
def _asked() -> Callable[[], int] | None:
    """Return the function of numpy's BLAS that tells how many threads it may use, None without.

    It is looked for in what numpy's core was linked with.
    """
    core = sys.modules.get("numpy._core._multiarray_umath")
    path = getattr(core, "__file__", None)
    function: Callable[[], int] | None = getattr(ctypes.PyDLL(path), _TELLS, None) if path else None
    return function  # ctypes takes it for one of no words that returns an int, which it is


@lru_cache(maxsize=1)
def _libraries(_modules: int) -> Any:
    """Return what sets threads of the libraries loaded when there were so many modules."""
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - scans the loaded libraries

    return ThreadpoolController()


class _Limits:
    """What was asked of `limit` and not given back, the latest last."""

    def __init__(self) -> None:
        self.counts: dict[object, int] = {}
        self.now = 0
        """The latest, 0 where there is none."""
        self._lock = Lock()
        self._ended: deque[object] = deque()
        """What is to be given back, by who holds the lock: a collector may ask while it is held."""
        self._blas: Any = None
        """What gives BLAS its threads back."""

    def take(self, key: object, count: int) -> None:
        """Let `count` threads be used, and one by BLAS."""
        with self._lock:
            before = _libraries(len(sys.modules)).limit(limits=1, user_api="blas")
            self._blas = self._blas if self.counts else before
            self.counts[key] = self.now = count
        self._settle()

    def give(self, key: object) -> None:
        """Give it back; nothing where that was done."""
        self._ended.append(key)
        self._settle()

    def _settle(self) -> None:
        while self._ended and self._lock.acquire(blocking=False):
            try:
                self.counts.pop(self._ended.popleft(), None)
                self.now = next(reversed(self.counts.values()), 0)
                if not self.counts and self._blas is not None:
                    self._blas.restore_original_limits()
                    self._blas = None
            finally:
                self._lock.release()


_limits: Final = _Limits()


def limit(count: int) -> Callable[[], None]:
    """Let calls use `count` threads, and BLAS one; return what gives that back, in any order.

    The latest limit that is not given back holds. BLAS gets its threads with the last.
    """
    key, held = object(), _limits
    held.take(key, max(count, 1))
    return partial(held.give, key)


def allowed() -> int:
    """Return how many threads a call may use now, at least 1."""
    if _limits.now:
        return _limits.now
    asked = _asked()
    return 1 if asked is None else max(asked(), 1)


def parts(work: int, units: int, *, out: Array | None = None, reads: Arrays = (), by_blas: bool = False) -> int:
    """Return into how many parts to cut a call of `work` multiplications in `units` pieces.

    At least 1, also of no pieces; and 1 where a BLAS does them that has threads of its own, or
    where `out` meets what all parts read: they would race.
    """
    most = min(units, work // (SHARE if _limits.now else WOKEN * SHARE))
    if most < 2 or (by_blas and not _limits.now) or (out is not None and meets(out, *reads)):
        return 1
    return min(most, allowed())


def cut(length: int, count: int, unit: int = 1) -> list[slice]:
    """Return `count` nearly equal slices that make up `length`, cut at multiples of `unit`."""
    ends = [length // unit * i // count * unit for i in range(count)]
    return [slice(start, stop) for start, stop in pairwise([*ends, length])]


def together(calls: list[Call]) -> Call:
    """Return the call that does all of these, which are independent, at once."""
    return calls[0] if len(calls) == 1 else (at_once, tuple(calls))


def at_once(*calls: Call) -> None:
    """Do independent calls, by as many threads as are allowed; each takes the next that is left.

    Raises what a call raises, after all that have begun are done.
    """
    left, state = deque(calls), np.geterr()  # which numpy keeps for each thread
    helpers = [_begun(left, state) for _ in range(min(allowed(), len(calls)) - 1)]
    try:
        _take(left)
    finally:
        running = [helper for helper in helpers if helper is not None and not helper.cancel()]
        wait(running)
    for helper in running:
        helper.result()


def _take(left: deque[Call]) -> None:
    """Do calls until none is left."""
    while left:
        try:
            call = left.popleft()
        except IndexError:  # another thread has taken it meanwhile
            return
        in_turn(call)


def _begun(left: deque[Call], state: Any) -> Future[None] | None:
    """Let the pool help; None where it takes no more work, as at the end of a process."""
    try:
        return _pool().submit(_help, left, state)
    except RuntimeError:
        return None


def _help(left: deque[Call], state: Any) -> None:
    with np.errstate(**state):
        _take(left)


class _Shared:
    """The pool of this process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.pool: ThreadPoolExecutor | None = None


_shared: Final = [_Shared()]
"""The last is this process's; those of its ancestors are kept, since to end them would be to wait
for threads that are not here."""

os.register_at_fork(after_in_child=lambda: _shared.append(_Shared()))


def _pool() -> ThreadPoolExecutor:
    shared = _shared[-1]
    with shared.lock:
        if shared.pool is None:
            shared.pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="engine")
        return shared.pool
