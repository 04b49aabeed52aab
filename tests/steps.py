"""Steps counted: the lines of some modules that are run while something is done, the same on any machine."""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def lines_run(module: ModuleType, do: Callable[[], Any]) -> int:
    """Return how many lines of a module are run."""
    count, before = 0, sys.gettrace()

    def line(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, _: str, __: Any) -> Any:
        return line if frame.f_code.co_filename == module.__file__ else None

    sys.settrace(call)
    try:
        do()
    finally:
        sys.settrace(before)
    return count
