"""Loss by training step, one curve a mode, with the first and the last value said beside each.

Curves that lie on one another all stay visible: the reference is a wide pale band at the back, the
others are thinner towards the front, with dashes of their own and markers that stand at different
steps. Steps count from 1, as people count training steps. A value that is not a finite number is a
gap. The axis is logarithmic where the values span more than three decades.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, MultipleLocator, NullFormatter

from reports.figures import style
from reports.number_format import figures, short

Losses = Mapping[str, Sequence[float | None]]

_KNOWN: Final[dict[str, tuple[str, str]]] = {
    "default": (style.ORANGE, "o"),
    "pinned": (style.BLUE, "s"),
    "reference": (style.GREEN, "D"),
}
"""Colour and marker of the modes every scenario has; further modes take the next of `_OTHERS`."""

_OTHERS: Final = ((style.PURPLE, "^"), (style.SKY, "v"), (style.OLIVE, "P"), (style.NAVY, "X"))
_BACK: Final = ("reference", "pinned")
"""Modes drawn behind the rest, in this order."""

_DASHES: Final = ("solid", "solid", (0, (4, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
_SAME: Final = 1e-3
"""Largest difference, as a share of the range of values, at which curves coincide."""


@style.styled
def loss_curves(modes: Losses) -> Figure:
    """Draw the loss of each mode by training step; a figure without one says so."""
    curves = {name: _finite(losses) for name, losses in modes.items() if len(losses)}
    values = np.concatenate(list(curves.values()) or [np.empty(0)])
    values = values[np.isfinite(values)]
    if not len(values):
        why = ["No mode was trained, or no loss is a finite number."]
        return style.nothing("No losses", why, "nothing to draw", (10.0, 5.4))
    figure = style.canvas(10.0, 5.4)
    axes = figure.add_subplot()
    steps = max(len(curve) for curve in curves.values())
    order = sorted(
        curves, key=lambda name: (_BACK.index(name) if name in _BACK else len(_BACK), list(curves).index(name))
    )
    looks = _looks(list(curves))
    for layer, name in enumerate(order):
        _curve(axes, name, curves[name], looks[name], layer=layer, layers=len(order))
    _axes(axes, values, steps)
    _labels(axes, curves, looks)
    style.heading(axes, *_heading(curves, float(np.ptp(values))))
    return figure


def _finite(losses: Sequence[float | None]) -> Any:
    """Return float64 (n,), NaN where there is no finite value."""
    curve = np.array([np.nan if loss is None else float(loss) for loss in losses], dtype=np.float64)
    curve[~np.isfinite(curve)] = np.nan
    return curve


def _looks(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    others = [name for name in names if name not in _KNOWN]
    return {name: _KNOWN[name] if name in _KNOWN else _OTHERS[others.index(name) % len(_OTHERS)] for name in names}


def _curve(axes: Axes, name: str, curve: Any, look: tuple[str, str], *, layer: int, layers: int) -> None:
    colour, marker = look
    back = layer == 0 and layers > 1
    every = max(len(curve) // 10, 1)
    axes.plot(
        np.arange(1, len(curve) + 1), curve, label=name, gid=f"loss {short(name)}", zorder=3 + layer,
        color=style.pale(colour, 0.55) if back else colour, linewidth=6.0 if back else max(2.4 - 0.5 * layer, 1.2),
        linestyle=_DASHES[min(layer, len(_DASHES) - 1)], solid_capstyle="round", marker=marker,
        markersize=8 if back else max(7.5 - 1.3 * layer, 4.0), markerfacecolor="white" if layer == 1 else colour,
        markeredgecolor=colour, markeredgewidth=1.1, markevery=(min(layer * max(every // 2, 1), max(len(curve) - 1, 0)), every),
    )  # fmt: skip


def _axes(axes: Axes, values: Any, steps: int) -> None:
    low, high = float(values.min()), float(values.max())
    margin = max((steps - 1) * 0.02, 0.3)
    axes.set_xlim(1 - margin, steps + margin)
    every = 1 if steps <= 24 else None
    axes.xaxis.set_major_locator(
        MultipleLocator(every) if every else MaxNLocator(nbins=10, integer=True, min_n_ticks=1)
    )
    axes.set_xlabel("training step")
    if low > 0 and high / low > 1000:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=10))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}" if 1e-4 <= y < 1e5 else f"{y:.0e}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(low / 1.6, high * 1.6)
        axes.set_ylabel("loss (log scale)")
        return
    pad = (high - low) * 0.06 or abs(high) * 0.06 or 1.0
    near_zero = low >= 0 and low < high * 0.5
    axes.set_ylim(-pad / 2 if near_zero else low - pad, high + pad)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=8))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.6g}"))
    axes.set_ylabel("loss")


def _labels(axes: Axes, curves: Mapping[str, Any], looks: Mapping[str, tuple[str, str]]) -> None:
    """Write name, first and last value at the right end of each curve, without overlap."""
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = []
    for name, curve in curves.items():
        known = np.flatnonzero(np.isfinite(curve))
        if len(known):
            ends.append((name, int(known[-1]) + 1, float(curve[known[-1]]), float(curve[known[0]])))
    heights = [float(to_axes.transform((step, last))[1]) for _, step, last, _ in ends]
    for (name, step, last, first), place in zip(ends, style.spread(heights, 0.105, 0.02, 0.98), strict=True):
        axes.annotate(
            f"{short(name, 24)}\n{_number(first)}" + (f" → {_number(last)}" if step > 1 else ""), (step, last), (1.04, place), textcoords="axes fraction",
            va="center", ha="left", fontsize=9, color=style.INK, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": looks[name][0], "linewidth": 1.4, "shrinkA": 2, "shrinkB": 5, "relpos": (0, 0.5)},
        )  # fmt: skip


def _number(value: float) -> str:
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.3e}"


def _heading(curves: Mapping[str, Any], extent: float) -> tuple[str, list[str]]:
    steps = max(len(curve) for curve in curves.values())
    said: dict[str, list[str]] = {}
    for name, curve in curves.items():
        if np.isfinite(curve).sum() > 1:
            said.setdefault(_change(curve), []).append(short(name, 24))
    shown = list(said.items())[:4]
    verbs = ["", *(words.split()[0] for words, _ in shown)]
    changes = ", ".join(
        f"{words.removeprefix(f'{before} ')} ({', '.join(names)})"
        for before, (words, names) in zip(verbs, shown, strict=False)
    )
    finding = f"In {steps} steps the loss {changes}" if said else "One loss: nothing to compare yet"
    details = []
    for index, (name, curve) in enumerate(curves.items()):
        for other in list(curves)[index + 1 :]:
            match = curves[other]
            if len(match) == len(curve) and np.isfinite(match).any():
                apart = np.abs(match - curve)
                if np.array_equal(match, curve, equal_nan=True):
                    details.append(f"{short(name)} and {short(other)} are equal at every step.")
                elif np.nanmax(apart, initial=0) <= _SAME * extent:
                    details.append(
                        f"{short(name)} and {short(other)} differ by at most {np.nanmax(apart, initial=0):.2g}."
                    )
    broken = [short(name) for name, curve in curves.items() if np.isnan(curve).any()]
    if broken:
        details.append(f"Not a finite number at some step (a gap): {', '.join(broken)}.")
    return finding, details


def _change(curve: Any) -> str:
    known = curve[np.isfinite(curve)]
    first, last = float(known[0]), float(known[-1])
    if first <= 0:
        return f"goes from {_number(first)} to {_number(last)}"
    if last >= 10 * first:
        return f"grows {figures(last / first)}-fold"
    share = abs(1 - last / first) * 100
    words = f"{share:.1g}" if 0 < share < 1 else f"{share:.4g}" if 99.95 <= share < 100 else f"{share:.1f}"
    return f"{'falls' if last <= first else 'rises'} by {words} %"
