"""Warm children on the real libraries, one for each and for the whole run; tests that need one skip where its wheel is missing."""

import atexit
from functools import cache

import pytest

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.child import OPENMP, Child
from allocsim.systems.ggml.access.library import WHEELS, Library, find, load
from allocsim.systems.ggml.access.probe import open_library

BOTH = tuple(WHEELS)


@cache
def _open(which: str) -> Child:
    child = open_library(which)
    atexit.register(child.close)
    return child


def live(which: str) -> Child:
    """Return the probed child of `before` or `after`; skip the test where the wheel is not installed."""
    reason = missing(which)
    if reason is not None:
        pytest.skip(reason)
    return _open(which)


@cache
def missing(which: str) -> str | None:
    """Say why a library is not there; None if it is. One that is there and does not work is no reason to skip."""
    try:
        find(which)
    except EngineError as error:
        return str(error)
    try:
        _open(which)
    except EngineError as error:
        if OPENMP not in str(error):
            raise
        return str(error)
    return None


def here(which: str) -> Library:
    """Return the library mapped in this process; skip where it is missing, or needs an OpenMP that only a child can be given."""
    live(which)
    try:
        return load(which)
    except EngineError as error:
        if OPENMP not in str(error):
            raise
        pytest.skip(str(error))
