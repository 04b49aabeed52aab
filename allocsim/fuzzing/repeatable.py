"""Repeatable drawing: Hypothesis draws the same from a seed, whatever else is loaded.

    with repeatable():
        one()                     # a function under `given` and `seed`

Left to itself Hypothesis now and then draws a constant that it found in the source of some module
of the project that is loaded just then, so one seed means other programs in a notebook, in a test
and on another machine. A chunk of a campaign has to be the same everywhere: so in this block, in
this thread, no such constants are drawn. Small numbers, which are all that the strategies here
draw, lose nothing by that.

What this module does not see: what is drawn.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

DRAWS: Final = "_maybe_draw_constant"
"""The method by which Hypothesis draws one."""

_here = threading.local()


@contextmanager
def repeatable() -> Iterator[None]:
    """Keep Hypothesis from drawing constants of modules, in this thread."""
    _teach()
    before = getattr(_here, "repeatable", False)
    _here.repeatable = True
    try:
        yield
    finally:
        _here.repeatable = before


@cache
def _teach() -> None:
    """Make Hypothesis ask whether it may; there is no setting for that."""
    from hypothesis.internal.conjecture.providers import HypothesisProvider  # noqa: PLC0415 - where Hypothesis is used

    draw = getattr(HypothesisProvider, DRAWS, None)
    if draw is None:
        return  # a Hypothesis that draws none

    def may(provider: Any, *arguments: Any, **keywords: Any) -> Any:
        return None if getattr(_here, "repeatable", False) else draw(provider, *arguments, **keywords)

    setattr(HypothesisProvider, DRAWS, may)
