"""Provide screens, compiled passes that select the rows that the judge's checks must examine.

    reads        selects the reads of a whole session that may find wrong bytes
    rectangles   selects buffers that may share bytes while both live
    late         selects accesses of several streams that may race

A screen only selects: it may select too many rows, never too few, and it reports no defect. The
plain checks make every record, and `check(document, plain=True)` uses no screen. The judge gets
`COMPILED` and calls it in `selector`. Importing any of these modules imports numba, so each is
imported only when a large document needs it.

This package does not use kinds of violation, and makes no records.
"""

from collections.abc import Callable
from typing import Final

from allocsim.judge.fast.s_script import Runs
from allocsim.judge.fast.selector import Screens
from allocsim.model.layout import Int64s


class _Compiled:
    """The screens of this folder; the protocol `Screens` documents the methods."""

    def reads(self, runs: Runs) -> list[Int64s] | None:
        from allocsim.judge.fast.screens.reads import reads_to_look_at

        return reads_to_look_at(runs)

    def rectangles(
        self, start: Int64s, stop: Int64s, low: Int64s, high: Int64s, *, cap: int
    ) -> tuple[Int64s, Int64s, bool]:
        from allocsim.judge.fast.screens.rectangles import met

        return met(start, stop, low, high, cap=cap)

    def late(self) -> Callable[..., int]:
        from allocsim.judge.fast.screens.late import sweep

        return sweep


COMPILED: Final[Screens] = _Compiled()
