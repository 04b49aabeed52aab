"""Sorts an arena's bytes by the views that use them; returns each view's runs (contiguous ranges).

    runs_of([(0, 0)], [4096], views)[view]     # ((0, 1024),): offset in its allocation, size

A column of a tile has one run of bytes for each of its rows, and the judge's cost grows with the
number of runs. A permutation of an arena's bytes inside each allocation changes neither which views
overlap, nor which views contain other views. The bytes between two adjacent ends of allocations are
therefore sorted by the set of views that use them. The sets are in the order of their first bytes.
After this, a column, or half of a column, is one run. If no view has gaps, no byte is moved.

What this module does not see: the element that each byte holds (`shared_views` does).
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model.layout import Int64s
from allocsim.systems.triton.shared_views import SharedView

Runs = tuple[tuple[int, int], ...]
"""(offset in the allocation, size in bytes) of each run."""

Box = tuple[int, tuple[int, ...], tuple[int, ...]]
"""First byte, shape, and strides in bytes; the last dimension has the stride 1."""

MOST_BYTES: Final = 1 << 20
"""The most bytes of an arena; no GPU has more shared memory for a block."""
MOST_BITS: Final = 40
"""After this many views the classes of bytes are renumbered. Until then each view adds a bit."""


def runs_of(
    slots: Sequence[tuple[int, int]], nbytes: Sequence[int], views: Iterable[SharedView]
) -> dict[SharedView, Runs]:
    """Return the runs of each view. Allocation i has `nbytes[i]` bytes at (arena, offset)
    `slots[i]`. O(views x places of the arena), for places of equal size: the greatest common
    divisor of all starts, ends and strides.
    """
    layouts = {view: view.layout for view in views}
    found: dict[SharedView, Runs] = {
        view: ((offset, shape[0]),) for view, (offset, shape, _) in layouts.items() if len(shape) == 1
    }
    for arena in {slots[view.home][0] for view in layouts if view not in found}:
        inside = [view for view in layouts if slots[view.home][0] == arena]
        spans = [(at, at + size) for (home, at), size in zip(slots, nbytes, strict=True) if home == arena]
        boxes = [(slots[view.home][1] + layouts[view][0], *layouts[view][1:]) for view in inside]
        for view, runs in zip(inside, _sorted_runs(spans, boxes), strict=True):
            found[view] = tuple((low - slots[view.home][1], high - low) for low, high in runs)
    return found


def _sorted_runs(spans: list[tuple[int, int]], boxes: list[Box]) -> list[list[tuple[int, int]]]:
    """Sort the bytes between the ends of spans; return the half-open runs of each box."""
    step = math.gcd(
        *(end for span in spans for end in span),
        *(number for at, shape, strides in boxes for number in (at, shape[-1], *strides[:-1])),
    )
    places = [_places(box, step) for box in boxes]
    count = max(high for _, high in spans) // step
    count = max(count, *(int(taken.max(initial=-1)) + 1 for taken in places))
    kind = np.zeros(count + 1, dtype=np.int64)
    kind[[end // step for span in spans for end in span]] = 1
    kind = np.cumsum(kind)[:count]
    for number, taken in enumerate(places):
        if number % MOST_BITS == 0:
            kind = np.unique(kind, return_inverse=True)[1].astype(np.int64)
        kind *= 2
        kind[taken] += 1
    _, first, kind = np.unique(kind, return_index=True, return_inverse=True)
    moved = np.empty(count, dtype=np.int64)
    moved[np.argsort(first[kind], kind="stable")] = np.arange(count)
    return [_runs(np.sort(moved[taken]), step) for taken in places]


def _places(box: Box, step: int) -> Int64s:
    """Return the numbers of the places in a box, for places of `step` bytes."""
    at, shape, strides = box
    if at + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) >= MOST_BYTES:
        raise ModelError("shared memory", f"extends beyond {MOST_BYTES} bytes, more than a block has")
    found = at // step + np.arange(shape[-1] // step)
    for size, stride in zip(shape[:-1], strides[:-1], strict=True):
        found = (found + np.arange(size)[:, None] * (stride // step)).ravel()
    return found


def _runs(places: Int64s, step: int) -> list[tuple[int, int]]:
    ends = np.flatnonzero(np.diff(places) != 1) + 1
    return [(int(run[0]) * step, (int(run[-1]) + 1) * step) for run in np.split(places, ends) if run.size]


__all__ = ["Runs", "runs_of"]
