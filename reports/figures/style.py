"""How every figure looks, and how one becomes bytes: colours, units, headings, rendering.

Convention: figures are `matplotlib.figure.Figure` objects drawn on Agg or SVG without pyplot, so
nothing global is left behind. Whatever the user's matplotlib configuration says is set aside while
drawing (`styled`) and while rendering (`render`): the same input gives the same bytes. SVG ids come
from a fixed salt, no file carries a date. Sizes in bytes are written in binary units (KiB = 1024
bytes). Colours are those of Okabe and Ito (2008), distinguishable with any common colour blindness;
red is kept for conflicts and nothing else.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from textwrap import wrap
from typing import Any, Final, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.number_format import UNITS

BLUE: Final = "#0072B2"
ORANGE: Final = "#E69F00"
GREEN: Final = "#009E73"
PURPLE: Final = "#AA4499"
SKY: Final = "#56B4E9"
OLIVE: Final = "#999933"
NAVY: Final = "#332288"
GREY: Final = "#9AA0A6"
INK: Final = "#1A1A1A"
FAINT: Final = "#5F6368"
RED: Final = "#C8102E"
"""Conflicts only."""

PALETTE: Final = (BLUE, ORANGE, GREEN, PURPLE, SKY, OLIVE, NAVY)
"""Categories in this order; whatever comes after them is grey."""

MARKS: Final[dict[bool, dict[str, Any]]] = {
    True: {"marker": "X", "markersize": 8, "markerfacecolor": RED, "markeredgecolor": "white", "markeredgewidth": 1.0},
    False: {"marker": "v", "markersize": 7, "markerfacecolor": "white", "markeredgecolor": RED, "markeredgewidth": 1.5},
}
"""Whether it is a late read, else the taking of bytes -> how it looks, in every picture."""

RASTER_ABOVE: Final = 1500
"""Shapes in one collection beyond which an SVG holds them as an image."""

DPI: Final = 160
FORMATS: Final = {".png": "png", ".svg": "svg", ".pdf": "pdf"}
"""Suffix -> what is written."""

METADATA: Final[dict[str, dict[str, None]]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""What a file must not say: equal figures are equal files."""

_STYLE: Final[dict[Any, Any]] = {
    "axes.axisbelow": True,
    "axes.edgecolor": FAINT,
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.dpi": DPI,
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "grid.color": "#E4E6E8",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "path.simplify": True,
    "savefig.dpi": DPI,
    "svg.fonttype": "path",
    "svg.hashsalt": "allocsim",
    "text.color": INK,
    "text.parse_math": False,  # names come from files; a dollar sign in one is a dollar sign
    "xtick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.color": FAINT,
    "ytick.labelcolor": INK,
}

Drawn = ParamSpec("Drawn")


def styled(draw: Callable[Drawn, Figure]) -> Callable[Drawn, Figure]:
    """Decorate a function that draws: only the project's style applies, then layout is settled."""

    @wraps(draw)
    def drawing(*args: Drawn.args, **kwargs: Drawn.kwargs) -> Figure:
        with _style():
            figure = draw(*args, **kwargs)
            _settle(figure)
            return figure

    return drawing


def render(figure: Figure, suffix: str, *, dpi: int = DPI) -> bytes:
    """Return the figure as a file of the kind `suffix` names (a key of `FORMATS`).

    `dpi` are the pixels an inch of what is not drawn as lines. Equal figures give equal bytes.
    """
    out = io.BytesIO()
    kind = FORMATS[suffix]
    with _style():
        figure.savefig(out, format=kind, metadata=METADATA[kind], dpi=dpi)
    return out.getvalue()


def canvas(width: float, height: float) -> Figure:
    """Return an empty figure of that many inches, laid out so that no part covers another."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def heading(axes: Axes, finding: str, details: Sequence[str] = (), *, room: float = 0.0) -> None:
    """Write the finding in bold above the axes with the details in grey below it.

    `room` points stay free above the axes.

    To be called last: lines are as long as the axes are wide once everything beside them has its
    place.
    """
    figure = axes.get_figure(root=True)
    assert isinstance(figure, Figure)
    _lay_out(figure)
    width = axes.get_window_extent().width / figure.dpi  # inches
    lines = [line for detail in details for line in wrap(detail, max(int(width * 14.5), 20))]
    below = room + 7
    if lines:
        axes.annotate(
            "\n".join(lines), (0, 1), (0, below), xycoords="axes fraction", textcoords="offset points",
            fontsize=9, color=FAINT, va="bottom", linespacing=1.25, annotation_clip=False,
        )  # fmt: skip
    axes.set_title(
        "\n".join(wrap(finding, max(int(width * 10.2), 16))),
        loc="left", fontsize=12, fontweight="bold", pad=below + 3 + 13.5 * len(lines), linespacing=1.2,
    )  # fmt: skip


def nothing(finding: str, details: Sequence[str], words: str, size: tuple[float, float] = (9.0, 3.2)) -> Figure:
    """Return a figure that says that there is nothing to draw, and why."""
    figure = canvas(*size)
    axes = figure.add_subplot()
    heading(axes, finding, details)
    blank(axes, words)
    return figure


def blank(axes: Axes, words: str) -> None:
    """Say in the middle of empty axes why there is nothing to see."""
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=FAINT, fontsize=11)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def bytes_axis(axis: Axis, top: float, label: str) -> None:
    """Make an axis one of bytes from 0 to `top`: round binary steps, one unit, in the label."""
    unit, name = next(((u, n) for u, n in UNITS if top >= 2 * u), (1, "bytes"))
    locator = MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10], integer=unit == 1, min_n_ticks=1)
    ticks = [tick for tick in locator.tick_values(0, max(top, 1) / unit) if 0 <= tick <= max(top, 1) / unit * 1.0001]
    decimals = max((len(f"{tick:.6f}".rstrip("0").partition(".")[2]) for tick in ticks), default=0)
    axis.set_ticks([tick * unit for tick in ticks], [f"{tick:,.{decimals}f}" for tick in ticks])
    axis.set_label_text(f"{label} ({name})")


def step_axis(axes: Axes, steps: int, label: str = "step (op index in execution order)") -> None:
    """Make the horizontal axis one of steps from 0 to `steps`, with whole numbers only."""
    axes.set_xlim(0, max(steps, 1))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.set_xlabel(label)


def pale(colour: Any, share: float) -> tuple[float, float, float]:
    """Return the colour mixed with `share` of white."""
    red, green, blue = (float(part + (1.0 - part) * share) for part in to_rgb(colour))
    return red, green, blue


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places near `wanted`, in order, at least `gap` apart, in `[low, high]` if they fit."""
    if not wanted:
        return []
    order = np.argsort(np.asarray(wanted, dtype=np.float64), kind="stable")
    gap = min(gap, (high - low) / max(len(order) - 1, 1))
    places = np.clip(np.asarray(wanted, dtype=np.float64)[order], low, high)
    for index in range(1, len(places)):
        places[index] = max(places[index], places[index - 1] + gap)
    places[-1] = min(places[-1], high)
    for index in range(len(places) - 2, -1, -1):
        places[index] = min(places[index], places[index + 1] - gap)
    back = np.empty(len(places))
    back[order] = places
    return [float(place) for place in back]


def _settle(figure: Figure) -> None:
    """Lay the figure out once and for all, on a grid of a ten-thousandth of its size.

    The solver behind constrained layout adds in the order of addresses in memory, so its last
    digits vary from run to run, and laying out again starts from where it is: without this, equal
    figures would not give equal bytes. The engine goes too: matplotlib draws a figure that has one
    twice for each file.
    """
    _lay_out(figure)
    figure.set_layout_engine(None)
    for axes in figure.axes:
        left, bottom, width, height = axes.get_position(original=True).bounds
        axes.set_position((round(left, 4), round(bottom, 4), round(width, 4), round(height, 4)))


def _lay_out(figure: Figure) -> None:
    """Give each part of the figure its place; nothing is drawn, which takes as long again."""
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)


@contextmanager
def _style() -> Iterator[None]:
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield
