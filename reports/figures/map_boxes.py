"""What a memory map consists of, drawn onto axes that show a part of it or all of it.

Buffers are rectangles, handovers bars, conflicts red rectangles. The parties of the numbered
conflicts are told apart by hatching and outline, not by colour alone: `PARTY_LOOKS`. A late read is
a cross and the taking of bytes a triangle, of one size at any scale, as in the picture of
lifetimes.

Complexity: O(rectangles).

What this module does not see: which part is shown, and why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from allocsim.model.layout import Int64s
from reports.figures.conflicts import RACING, READER, SHARING, TAKER, VICTIM, Conflict
from reports.figures.families import Families
from reports.figures.overplotting import Window, paint, topmost
from reports.figures.scene import Scene
from reports.figures.style import GREY, INK, MARKS, RASTER_ABOVE, RED, pale
from reports.number_format import nbytes, short

NAMED_BUFFERS: Final = 120
"""Rectangles that carry their buffer's name, where it fits: the parties first, then the largest."""

PLACES: Final = (0.5, 0.25, 0.75, 0.1, 0.9)
"""Where along a rectangle its name goes: the first place where no other stands."""

PARTY_PLACES: Final = {VICTIM: (0.2, 0.1, *PLACES), TAKER: (0.7, 0.85, *PLACES)}
"""The same for parties: a victim where it is not taken yet."""

PARTY_HEIGHTS: Final = (0.5, 0.2, 0.8, 0.35, 0.65)
"""How high in a party's rectangle its name goes: parties lie over each other."""

PARTY_ROOM: Final = 44
"""Characters of a party's name and size, which may be wider than its rectangle."""

LEAST_LINES: Final = 0.8
"""Lines of text that a rectangle is high at least where a name stands in it."""

FADED: Final = 0.55
"""Share of white in colours beneath a conflict."""

PARTY_LOOKS: Final[Mapping[str, dict[str, Any]]] = {
    VICTIM: {"hatch": "////", "edgecolor": RED, "linewidth": 1.6, "linestyle": "solid"},
    TAKER: {"hatch": "\\\\\\\\", "edgecolor": INK, "linewidth": 1.6, "linestyle": "solid"},
    READER: {"hatch": "....", "edgecolor": INK, "linewidth": 1.2, "linestyle": (0, (4, 2))},
    SHARING: {"hatch": "xxxx", "edgecolor": RED, "linewidth": 1.2, "linestyle": (0, (4, 2))},
    RACING: {"hatch": "----", "edgecolor": RED, "linewidth": 1.2, "linestyle": (0, (4, 2))},
}
"""Role of a party -> how its rectangle looks."""

PARTY_WORDS: Final[Mapping[str, str]] = {
    VICTIM: "victim", TAKER: "took its bytes", READER: "made by the late reader", SHARING: "share bytes",
    RACING: "accessed in no order",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class MapBoxes:
    """The rectangles of one arena of one run, and how they look."""

    shown: Scene
    buffers: Int64s
    """Those that have a rectangle, in order of birth."""
    stop: Int64s
    """Where each buffer's rectangle ends, by buffer."""
    colours: Families
    faded: bool
    """Whether something lies over them that must be seen."""

    @property
    def corners(self) -> Any:
        """(n, 4): first step, last step, low byte, high byte of each rectangle, float64."""
        assert self.shown.plan is not None
        low = self.shown.plan.offset[self.buffers].astype(float)
        first, last = self.shown.start[self.buffers].astype(float), self.stop[self.buffers].astype(float)
        return np.stack([first, last, low, low + self.shown.nbytes[self.buffers]], axis=1)

    def within(self, window: Window) -> "MapBoxes":
        """Return those that can be seen in a window."""
        first, last, low, high = window
        box = self.corners
        seen = (box[:, 0] < last) & (box[:, 1] > first) & (box[:, 2] < high) & (box[:, 3] > low)
        return MapBoxes(
            shown=self.shown, buffers=self.buffers[seen], stop=self.stop, colours=self.colours, faded=self.faded
        )


def draw_buffers(axes: Axes, boxes: MapBoxes, window: Window) -> int:
    """Draw the buffers, later over earlier; return how many lie too deep to be drawn alone."""
    found = boxes.corners
    top = topmost(found, window)
    white = FADED if boxes.faded else 0.0
    paint(axes, found[~top], window, pale(GREY, white), alpha=1.0, zorder=1.9, gid="hidden")
    order = boxes.buffers[top]
    faces = [pale(boxes.colours.colours[index], white) for index in order.tolist()]
    few = len(order) <= RASTER_ABOVE // 4
    collection = PolyCollection(
        _rectangles(found[top]), facecolors=faces, edgecolors="white" if few else "none", linewidths=0.5 if few else 0.0,
        antialiaseds=few, rasterized=len(order) > RASTER_ABOVE, zorder=2, gid="buffers",
    )  # fmt: skip
    axes.add_collection(collection, autolim=False)
    return int((~top).sum())


def draw_handovers(axes: Axes, shown: Scene, handed: Int64s) -> None:
    """Draw a bar for each row of `Scene.handovers` given, where the donor's place is taken."""
    if not len(handed):
        return
    assert shown.plan is not None
    x, donor, recipient = handed.T
    low = shown.plan.offset[recipient]
    high = low + np.minimum(shown.nbytes[donor], shown.nbytes[recipient])
    bars = np.stack([np.stack([x, low], 1), np.stack([x, high], 1)], axis=1).astype(float)
    crowd = min(1.0, 60 / len(handed))
    axes.add_collection(
        LineCollection(
            list(bars), colors=INK, linewidths=0.5 + 1.1 * crowd, rasterized=len(handed) > RASTER_ABOVE, capstyle="butt",
            zorder=3, gid="handovers",
        ),
        autolim=False,
    )  # fmt: skip


def draw_names(
    axes: Axes, boxes: MapBoxes, window: Window, inches: tuple[float, float], roles: Mapping[int, str]
) -> None:
    """Write the names into the rectangles that are large enough for them, the parties' first.

    Where rectangles overlap, names stand beside each other.

    Args:
        axes: shows the window.
        boxes: the rectangles.
        window: what the axes show.
        inches: width and height of the axes, about.
        roles: buffer -> role, of those whose names matter most.
    """
    across, up = inches[0] * 11.5, inches[1] * 6.2  # characters and lines of 8.5 points
    left, right, low, high = window
    seen = boxes.within(window)
    box = np.clip(seen.corners, (left, left, low, low), (right, right, high, high))
    wide, tall = (box[:, 1] - box[:, 0]) / (right - left) * across, (box[:, 3] - box[:, 2]) / (high - low) * up
    fits = np.flatnonzero((wide >= 4) & (tall >= LEAST_LINES))
    before = {buffer: len(roles) - place for place, buffer in enumerate(roles)}
    first = np.array([before.get(buffer, 0) for buffer in seen.buffers[fits].tolist()], dtype=np.float64)
    rank = first * across * up + wide[fits] * tall[fits]
    written: list[tuple[float, float, float]] = []
    for row in fits[np.argsort(-rank, kind="stable")][:NAMED_BUFFERS].tolist():
        buffer, (x0, x1, y0, y1) = int(seen.buffers[row]), box[row].tolist()
        name = seen.shown.program.buffers.names[buffer]
        if not name:
            continue
        role = roles.get(buffer, "")
        label = _label(name, seen.shown.nbytes[buffer], PARTY_ROOM if role else int(wide[row]))
        half = (len(label) + 1) / across * (right - left) / 2
        ends = (
            (max(x0, left + half), min(x1, right - half)) if role and len(label) > wide[row] else (x0 + half, x1 - half)
        )
        places = [max(min(x0 + part * (x1 - x0), ends[1]), min(ends)) for part in PARTY_PLACES.get(role, PLACES)]
        heights = [y0 + part * (y1 - y0) for part in (PARTY_HEIGHTS if role and tall[row] >= 2 else (0.5,))]
        at = _free([(x, y) for y in heights for x in places], half, (high - low) / up, written)
        if at is None:
            continue
        x, y = at
        written.append((x, half, y))
        dark = np.dot(mpl.colors.to_rgb(boxes.colours.colours[buffer]), (0.299, 0.587, 0.114)) <= 0.5
        axes.text(
            x, y, label, ha="center", va="center", fontsize=8.5, clip_on=True, zorder=6.5, gid="name",
            color="white" if dark and not boxes.faded else INK,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8} if role else None,
        )  # fmt: skip


def _free(
    places: Sequence[tuple[float, float]], half: float, apart: float, written: Sequence[tuple[float, float, float]]
) -> tuple[float, float] | None:
    """Return the first place at which a label of that half width touches no label written."""
    return next(
        ((x, y) for x, y in places if all(abs(x - a) >= half + b or abs(y - c) >= apart for a, b, c in written)), None
    )


def draw_conflicts(axes: Axes, drawn: Sequence[Conflict], window: Window) -> None:
    """Draw the rectangles of conflicts, the first of the report on top."""
    rows = np.array([box for conflict in drawn for box in conflict.boxes][::-1], dtype=np.float64)
    if not len(rows):
        return
    top = topmost(rows, window)
    paint(axes, rows[~top], window, RED, alpha=0.45, zorder=4.9, gid="more conflicts")
    collection = PolyCollection(
        _rectangles(rows[top]), facecolors=mpl.colors.to_rgba(RED, 0.4), edgecolors=RED, linewidths=1.3,
        rasterized=len(rows) > RASTER_ABOVE, zorder=5, gid="conflicts",
    )  # fmt: skip
    axes.add_collection(collection, autolim=False)


def roles_in(numbered: Sequence[Conflict]) -> dict[int, str]:
    """Return the role of each party; one that is several things is what it was first."""
    roles: dict[int, str] = {}
    for role, buffer in (party for conflict in numbered for party in conflict.parties):
        roles.setdefault(buffer, role)
    return roles


def draw_parties(axes: Axes, boxes: MapBoxes, numbered: Sequence[Conflict]) -> tuple[str, ...]:
    """Draw the parties of the numbered conflicts and mark what they do; return the roles drawn."""
    roles = roles_in(numbered)
    present = {int(buffer): row for row, buffer in enumerate(boxes.buffers.tolist()) if buffer in roles}
    corners = boxes.corners
    for role, look in PARTY_LOOKS.items():
        rows = [present[buffer] for buffer, of in roles.items() if of == role and buffer in present]
        if rows:
            collection = PolyCollection(_rectangles(corners[rows]), facecolors="none", zorder=5.5, gid=role, **look)
            axes.add_collection(collection, autolim=False)
    for conflict in numbered:
        low, high = conflict.boxes[0][2:]
        for late, step in ((False, conflict.taken), (True, conflict.read)):
            if step is not None:
                at, deed = (step + 0.5, low + 0.8 * (high - low)), "late read" if late else "taken"
                axes.plot(*at, linestyle="none", zorder=6, gid=deed, **MARKS[late])
    return tuple(role for role in PARTY_LOOKS if any(roles.get(buffer) == role for buffer in present))


def _label(name: str, size: int, room: int) -> str:
    full = f"{short(name, 60)}  {nbytes(size)}"
    return full if len(full) <= room else short(name, room)


def _rectangles(boxes: Any) -> Any:
    x0, x1, y0, y1 = boxes.T
    return np.stack([np.stack([x0, y0], 1), np.stack([x0, y1], 1), np.stack([x1, y1], 1), np.stack([x1, y0], 1)], 1)
