"""Which parts of a memory map are shown again, enlarged, because they are too small to be seen.

The first numbered conflict, where one of its parties is thinner than `LEAST` pixels, and the peak,
where a buffer alive there is. A view of a conflict has the steps round its end (the late read) and
the bytes of all that shares them; a view of the peak the highest buffers alive there.

What this module does not see: how a view is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocsim.model import Bools
from reports.figures.conflicts import READER, Conflict
from reports.figures.map_boxes import MapBoxes
from reports.figures.overplotting import Floats, Window
from reports.figures.scene import LiveCurve

PIXELS: Final = (1650.0, 700.0)
"""Width and height of the map, about."""

LEAST: Final = 4.0
"""Pixels below which a rectangle is shown again."""

STEPS: Final = 24
"""Steps of an enlarged part, at least."""

HIGHEST: Final = 9
"""Buffers of the peak that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A part of a map."""

    title: str
    window: Window


def views(boxes: MapBoxes, numbered: Sequence[Conflict], live: LiveCurve, reach: tuple[float, float]) -> list[View]:
    """Return the parts to show again, none where all can be seen. O(n log n) for n buffers."""
    found = [_conflict_view(boxes, numbered[0])] if numbered and _is_thin(boxes, numbered[0], reach) else []
    alive = boxes.shown.start[boxes.buffers] <= live.peak_at
    alive &= boxes.stop[boxes.buffers] > live.peak_at
    if alive.any() and _thinnest(boxes.corners[alive], boxes, reach) < LEAST:
        found.append(_peak_view(boxes, live, alive))
    return found


def _thinnest(corners: Floats, boxes: MapBoxes, reach: tuple[float, float]) -> float:
    if not len(corners):
        return float("inf")
    wide = (corners[:, 1] - corners[:, 0]) / max(boxes.shown.steps, 1) * PIXELS[0]
    tall = (corners[:, 3] - corners[:, 2]) / max(reach[1] - reach[0], 1.0) * PIXELS[1]
    return float(np.minimum(wide, tall).min())


def _is_thin(boxes: MapBoxes, conflict: Conflict, reach: tuple[float, float]) -> bool:
    parties = [buffer for _, buffer in conflict.parties]
    corners = boxes.corners[np.isin(boxes.buffers, parties)]
    return _thinnest(np.vstack([corners, np.array(conflict.boxes, dtype=float)]), boxes, reach) < LEAST


def _conflict_view(boxes: MapBoxes, conflict: Conflict) -> View:
    where = np.array(conflict.boxes, dtype=float)
    first, last = float(where[:, 0].min()), float(where[:, 1].max())
    if last - first < STEPS:
        first, last = (first + last - STEPS) / 2, (first + last + STEPS) / 2
    elif conflict.taken is not None and last - first > 4 * STEPS:
        first = last - 3 * STEPS  # the late read, and what lies before it
    room = max((last - first) * 0.12, 1.0)
    sharing = [buffer for role, buffer in conflict.parties if role != READER]
    corners = boxes.corners[np.isin(boxes.buffers, sharing)]
    low, high = (
        (float(corners[:, 2].min()), float(corners[:, 3].max()))
        if len(corners)
        else (where[:, 2].min(), where[:, 3].max())
    )
    margin = max((high - low) * 0.35, 1.0)
    start, stop = max(first - room, 0.0), min(last + room, float(max(boxes.shown.steps, 1)))
    return View(title=f"conflict {conflict.number}, enlarged", window=(start, stop, low - margin, high + margin))


def _peak_view(boxes: MapBoxes, live: LiveCurve, alive: Bools) -> View:
    middle = live.peak_at + 0.5
    corners = boxes.corners[alive]
    highest = corners[np.argsort(-corners[:, 3], kind="stable")[:HIGHEST]]
    high, low = float(highest[0, 3]), float(highest[:, 2].min())
    room = max((high - low) * 0.06, 1.0)
    start, stop = max(middle - STEPS / 2, 0.0), min(middle + STEPS / 2, float(max(boxes.shown.steps, 1)))
    title = f"the peak (step {live.peak_at:,}), enlarged" + (
        f": the highest {len(highest)} of {len(corners):,} buffers alive" if len(corners) > len(highest) else ""
    )
    return View(title=title, window=(start, stop, low - room, high + room))
