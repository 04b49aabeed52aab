"""Pausing Python's collector of cycles while much is built that stays.

The collector belongs to the process, and several threads may pause it at once: it runs again when
the last of them is done, if it ran when the first began. Each thread asking for itself whether it
runs would not do: one that asks while another has paused it, and pauses it once more after the
other has ended, would leave it off for ever.

What this module does not see: what is built.
"""

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Pauses:
    """How many pause it now, and whether it ran before."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.lock = threading.Lock()
        self.begun = 0
        self.ran = False


_pauses = _Pauses()


@contextmanager
def paused() -> Iterator[None]:
    """Keep the collector of cycles from running; may be nested, and used by several threads."""
    with _pauses.lock:
        if not _pauses.begun:
            _pauses.ran = gc.isenabled()
            gc.disable()
        _pauses.begun += 1
    try:
        yield
    finally:
        with _pauses.lock:
            if _pauses.begun == 1 and _pauses.ran:
                gc.enable()
            _pauses.begun = max(_pauses.begun - 1, 0)  # a fork within a pause begins at nought


def _after_fork() -> None:
    """A forked process has one thread: what others were about is not its business."""
    runs = bool(_pauses.begun) and _pauses.ran
    _pauses.forget()
    if runs:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
