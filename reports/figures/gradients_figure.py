"""Gradients of one mode against the reference, by layer and tensor: size ratio above, cosine below.

A row is `{"step", "layer", "tensor", "ratio", "cosine"}`: `ratio` is |g| / |g_ref|, 1 where right;
`cosine` the angle between them, 1 where right. None is a gap (the reference is zero there). Ratios
are drawn on a logarithmic axis; a ratio of zero, which has no logarithm, stands on the lower edge
as a downward triangle, one that is not finite on the upper edge as an upward triangle.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from reports.figures.style import FAINT, GREY, INK, PALETTE, canvas, heading, nothing, styled
from reports.gradient_rows import GradientRow, rows_at, telling_step
from reports.number_format import count, figures, short

MARKERS: Final = ("o", "s", "D", "^", "v", "P", "X")
NAMED: Final = len(PALETTE)
"""Tensors with a colour of their own; the rest share grey."""


@styled
def gradient_ratio(gradients: Sequence[Mapping[str, Any]], step: int | None = None) -> Figure:
    """Draw ratio and cosine of every gradient at `step` (None: the first that is wrong)."""
    step = telling_step(gradients) if step is None else step
    rows = rows_at(gradients, step)
    if not rows:
        why = f"None was recorded at step {step}." if step is not None else "None was recorded."
        return nothing("No gradients", [why], "nothing to draw", (11.0, 6.6))
    figure = canvas(11.0, 6.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    tensors = list(dict.fromkeys(row.tensor for row in rows))
    places = _places(rows)
    _ratios(upper, rows, tensors, places)
    _cosines(lower, rows, tensors, places)
    _layers(lower, places)
    handles = [
        Line2D([], [], linestyle="none", marker=_look(i)[1], color=_look(i)[0], markersize=6, label=short(tensor, 24))
        for i, tensor in enumerate(tensors[:NAMED])
    ]
    if len(tensors) > NAMED:
        handles.append(
            Line2D(
                [], [], linestyle="none", marker=".", color=GREY, markersize=9, label=f"{len(tensors) - NAMED} others"
            )
        )
    figure.legend(handles=handles, loc="outside right upper", title="gradient of", alignment="left")
    heading(upper, *_heading(rows, step))
    return figure


def _places(rows: Sequence[GradientRow]) -> dict[int | None, int]:
    """Return where on the axis each layer stands: layers by number, then what is in none."""
    numbers = sorted({row.layer for row in rows if row.layer is not None})
    places: dict[int | None, int] = {number: number - numbers[0] if numbers[-1] - numbers[0] < 4 * len(numbers) else index
                                     for index, number in enumerate(numbers)}  # fmt: skip
    if any(row.layer is None for row in rows):
        places[None] = max(places.values(), default=-1) + 1
    return places


def _look(index: int) -> tuple[str, str]:
    return (PALETTE[index], MARKERS[index]) if index < NAMED else (GREY, ".")


def _points(
    rows: Sequence[GradientRow], tensors: Sequence[str], places: Mapping[int | None, int], what: str
) -> Iterable[tuple[int, Any, Any]]:
    """Yield (tensor index, x, y) float64 arrays by layer, NaN for a gap, tensors side by side."""
    for index, tensor in enumerate(tensors):
        mine = sorted((row for row in rows if row.tensor == tensor), key=lambda row: places[row.layer])
        shift = (index - (len(tensors) - 1) / 2) * min(0.6 / len(tensors), 0.14)
        x = np.array([places[row.layer] for row in mine], dtype=np.float64) + shift
        y = np.array(
            [np.nan if getattr(row, what) is None else float(getattr(row, what)) for row in mine], dtype=np.float64
        )
        yield index, x, y


def _ratios(axes: Axes, rows: Sequence[GradientRow], tensors: Sequence[str], places: Mapping[int | None, int]) -> None:
    proper = [row.ratio for row in rows if row.ratio is not None and isfinite(row.ratio) and row.ratio > 0]
    low, high = min([*proper, 1.0]), max([*proper, 1.0])
    room = max((high / low) ** 0.08, 2.1)
    floor, ceiling = low / room, high * room
    axes.set_yscale("log")
    axes.set_ylim(floor, ceiling)
    axes.axhline(1, color=INK, linewidth=1.0, zorder=1)
    for index, x, y in _points(rows, tensors, places, "ratio"):
        colour, marker = _look(index)
        inside = np.where(np.isfinite(y) & (y > 0), y, np.nan)
        axes.plot(x, inside, linestyle="none", marker=marker, markersize=5.5, color=colour, markeredgecolor="white", markeredgewidth=0.4,
                  zorder=3, gid=f"ratio {short(tensors[index])}")  # fmt: skip
        for edge, symbol, there in ((floor, "v", y <= 0), (ceiling, "^", np.isposinf(y))):
            if there.any():
                axes.plot(x[there], np.full(int(there.sum()), edge), linestyle="none", marker=symbol, markersize=8, color=colour,
                          clip_on=False, zorder=4)  # fmt: skip
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1,) if ceiling / floor > 100 else (1, 2, 5), numticks=9))
    if ceiling / floor <= 100:
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}" if 1e-4 <= y < 1e5 else f"{y:.0e}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("|g| / |g reference|  (log)")


def _cosines(axes: Axes, rows: Sequence[GradientRow], tensors: Sequence[str], places: Mapping[int | None, int]) -> None:
    axes.axhline(1, color=INK, linewidth=1.0, zorder=1)
    axes.axhline(0, color=FAINT, linewidth=0.7, zorder=1)
    lowest = min([row.cosine for row in rows if row.cosine is not None and isfinite(row.cosine)] or [0.0])
    for index, x, y in _points(rows, tensors, places, "cosine"):
        colour, marker = _look(index)
        axes.plot(x, y, linestyle="none", marker=marker, markersize=5.5, color=colour, markeredgecolor="white", markeredgewidth=0.4,
                  zorder=3, gid=f"cosine {short(tensors[index])}")  # fmt: skip
    axes.set_ylim(-1.1 if lowest < -0.05 else -0.08, 1.1)
    axes.set_ylabel("cosine (g, g reference)")


def _layers(axes: Axes, places: Mapping[int | None, int]) -> None:
    last = max(places.values())
    axes.set_xlim(-0.6, last + 0.6)
    axes.set_xlabel("layer")
    names = {place: "none" if layer is None else f"{layer}" for layer, place in places.items()}
    axes.xaxis.set_major_locator(MaxNLocator(nbins=16, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: names.get(round(x), "") if abs(x - round(x)) < 1e-6 else "")
    )


def _heading(rows: Sequence[GradientRow], step: int | None) -> tuple[str, list[str]]:
    wrong = [row for row in rows if row.wrong]
    gaps = sum(row.ratio is None and row.cosine is None for row in rows)
    details = [f"{count(len(rows), 'gradient')} compared at step {step}; right is 1 in both panels"]
    if gaps:
        details[0] += f"; {count(gaps, 'gap')} where the reference is zero"
    edge = sum(row.ratio is not None and not (isfinite(row.ratio) and row.ratio > 0) for row in rows)
    if edge:
        details.append(f"{count(edge, 'ratio')} of zero (▼ on the lower edge) or not finite (▲ on the upper)")
    if gaps == len(rows):
        return f"At step {step} no gradient can be compared", details
    if not wrong:
        return f"At step {step} every gradient equals the reference's", details
    finding = (
        f"At step {step}, {len(wrong):,} of {count(len(rows), 'gradient')} {'is' if len(wrong) == 1 else 'are'} wrong"
    )
    sized = [row for row in wrong if row.ratio is not None and isfinite(row.ratio) and row.ratio > 0]
    if sized:
        worst = max(sized, key=lambda row: abs(np.log(row.ratio or 1.0)))
        at = "" if worst.layer is None else f", layer {worst.layer}"
        factor = float(np.exp(abs(np.log(worst.ratio or 1.0))))
        finding += f": size off by up to a factor of {figures(factor)} ({short(worst.tensor, 24)}{at})"
    cosines = [row.cosine for row in wrong if row.cosine is not None and isfinite(row.cosine)]
    if cosines:
        finding += f", cosine down to {figures(min(cosines))}"
    return finding, details
