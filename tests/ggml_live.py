"""Warm children on the real libraries, one for each and for the whole run; tests that need one skip where its wheel is missing."""

import atexit
from functools import cache

import pytest

from allocsim.errors import EngineError
from engine.ggml.child import Child
from engine.ggml.library import WHEELS, find
from engine.ggml.probe import open_library

BOTH = tuple(WHEELS)


@cache
def _open(which: str) -> Child:
    child = open_library(which)
    atexit.register(child.close)
    return child


def live(which: str) -> Child:
    """Return the probed child of `before` or `after`; skip the test where the wheel is not installed."""
    try:
        find(which)
    except EngineError as error:
        pytest.skip(str(error))
    return _open(which)
