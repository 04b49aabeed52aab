"""A program as a row of ops over its time axis, with an arc from each op to those that read it.

The axis is that of a memory map, so the two can stand one below the other. Ops of other streams
stand in rows of their own below the first; waits are dotted, with a dot at the op that is waited
for: an arrow may cross others. What ops are called is written while
there is room (`NAMED_OPS`); beyond, an op is a tick. Of many arcs some are drawn, evenly chosen
from the strong ones, else from the longer half.

What this module does not see: which arcs and ops deserve a look; it is told.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from textwrap import wrap
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection, PolyCollection
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from allocsim.model import Program
from allocsim.model.layout import Int64s
from reports.figures.style import FAINT, INK, RASTER_ABOVE, RED, pale
from reports.number_format import short

NAMED_OPS: Final = 48
"""Ops up to which each has a box with words."""

ARCS: Final = {True: 400, False: 100}
"""Whether ops have boxes -> arcs that are drawn. Of long rows a hundred can still be told apart."""

LEAST_RISE: Final = 0.06
"""Of the shortest arc, in rows: none hangs down."""

HEIGHT: Final = 1.6
"""Of the longest arc, in rows."""

WORDS: Final = 0.12
"""Part of the axis of steps within which the words of two marked ops would cover one another."""

LINE: Final = 0.2
"""Of a line of words below a box, in rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLooks:
    """What deserves a look in a row of ops."""

    face: Callable[[int], Any] = lambda _step: "white"
    """Step -> colour of its box."""
    says: Mapping[int, str] = field(default_factory=dict)
    """Step -> a further line in its box."""
    marked: Mapping[int, str] = field(default_factory=dict)
    """Step -> what it did, of ops that have a red frame."""
    late: frozenset[tuple[int, int]] = frozenset()
    """(maker, reader) of arcs that are red: what is read is not there any more."""
    bold: frozenset[tuple[int, int]] = frozenset()
    """(maker, reader) of arcs that are drawn strong."""


def edges(program: Program) -> Int64s:
    """Return (n, 2): the op that makes a value and one that reads it. O(operands log operands)."""
    ops = program.ops
    readers = np.repeat(np.arange(len(ops)), np.diff(ops.operand_starts))
    makers = program.producer[ops.operands].astype(np.int64)
    known = makers >= 0
    return np.unique(np.stack([makers[known], readers[known]], axis=1), axis=0).reshape(-1, 2)


def draw_graph(
    axes: Axes,
    program: Program,
    looks: GraphLooks,
    arcs: Int64s | None = None,
    window: tuple[float, float] | None = None,
) -> int:
    """Draw ops and arcs (None: all of `edges`); return how many arcs are left out.

    Of the steps only those of `window` are shown. The axes get its limits and those of the rows.
    O(ops + arcs log arcs).
    """
    first, last = window or (0.0, float(len(program.ops)))
    steps = max(int(last - first), 1)
    found = edges(program) if arcs is None else arcs
    if window is not None:
        found = found[(found[:, 0] < last) & (found[:, 1] >= first) & (found[:, 1] < last)]
    named = steps <= NAMED_OPS
    rows = -program.ops.stream.astype(float) if len(program.streams) > 1 else np.zeros(len(program.ops))
    rows *= 1.1
    chosen = _chosen(found, looks, ARCS[named])
    lines = _boxes(axes, program, looks, rows, (first, last)) if named else _ticks(axes, program, looks, rows)
    drawn = np.concatenate([chosen, np.array(sorted(looks.late), dtype=np.int64).reshape(-1, 2)])
    inside = np.clip(drawn, first, last)
    top = HEIGHT * float(np.sqrt((inside[:, 1] - inside[:, 0]).max(initial=0) / max(steps, 1)))
    pairs = [(int(maker), int(reader)) for maker, reader in chosen.tolist()]
    bold = [pair for pair in pairs if pair in looks.bold and pair not in looks.late]
    plain = [pair for pair in pairs if pair not in looks.bold and pair not in looks.late]
    _arcs(axes, plain, rows, steps, gid="arcs", edgecolor=FAINT, linewidth=0.9 if named else 0.4)
    _arcs(axes, bold, rows, steps, gid="bold arcs", edgecolor=INK, linewidth=1.4 if named else 0.5)
    _arcs(axes, sorted(looks.late), rows, steps, gid="late arcs", edgecolor=RED, linewidth=2.2, linestyle=(0, (4, 2)))
    _waits(axes, program, rows)
    axes.set_xlim(first, max(last, first + 1))
    axes.set_ylim(float(rows.min(initial=0.0)) - 0.55 - LINE * lines, max(top, 0.4) + 0.55)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    return len(found) - len(chosen)


def _chosen(found: Int64s, looks: GraphLooks, most: int) -> Int64s:
    """Return at most `most` arcs, evenly taken from the strong ones, else from the longer half."""
    if len(found) <= most:
        return found
    strong = np.array([pair in looks.bold for pair in map(tuple, found.tolist())])
    span = found[:, 1] - found[:, 0]
    pool = found[strong] if strong.any() else found[span >= np.median(span)]
    chosen: Int64s = pool[np.unique(np.linspace(0, len(pool) - 1, most).astype(np.int64))]
    return chosen


def _boxes(axes: Axes, program: Program, looks: GraphLooks, rows: Any, window: tuple[float, float]) -> int:
    """Draw the ops of a window; return the most lines of words below one of them."""
    values, grid = program.values, axes.get_gridspec()
    room = max(int(150 / (grid.ncols if grid is not None else 1) / max(window[1] - window[0], 1)), 3)
    upright = room >= 6
    inside = range(int(window[0]), min(int(np.ceil(window[1])), len(program.ops)))
    most = 0
    for op in (program.ops[step] for step in inside):
        y = float(rows[op.step])
        corners = [
            (op.step + 0.06, y - 0.38),
            (op.step + 0.94, y - 0.38),
            (op.step + 0.94, y + 0.38),
            (op.step + 0.06, y + 0.38),
        ]
        marked = op.step in looks.marked
        axes.add_collection(
            PolyCollection(
                [corners], facecolors=[looks.face(op.step)], edgecolors=RED if marked else FAINT, linewidths=2.2 if marked else 0.7,
                zorder=3, gid="marked op" if marked else "op",
            ),
            autolim=False,
        )  # fmt: skip
        results = ", ".join(values.names[value] for value in op.results)
        lines = [short(op.kind, room if upright else 9), *([short(results, room)] if results and upright else [])]
        says = looks.says.get(op.step)
        lines += [short(says, room + 4)] if says and upright else []
        axes.text(
            op.step + 0.5, y, ("\n" if upright else "  ").join(lines), ha="center", va="center", zorder=4, gid="op words",
            fontsize=8.5 if room >= 12 else 7, rotation=0 if upright else 90, color=RED if marked else INK, linespacing=1.15,
        )  # fmt: skip
        if marked:
            beside = {op.step - 1, op.step + 1} & looks.marked.keys()
            deed = wrap(looks.marked[op.step], max(int(1.3 * room), 6) if beside else max(room + 4, 9))
            most = max(most, len(deed))
            axes.text(
                op.step + 0.5, y - 0.44, "\n".join(deed), ha="center", va="top", zorder=4,
                fontsize=8, color=RED, fontweight="bold", gid="deed", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
            )  # fmt: skip
    return most


def _ticks(axes: Axes, program: Program, looks: GraphLooks, rows: Any) -> int:
    """Draw runs of ops alike as bars, and marked ops; return the most lines of words below one."""
    faces = [str(looks.face(step)) for step in range(len(program.ops))]
    cuts = [0, *(k for k in range(1, len(faces)) if faces[k] != faces[k - 1] or rows[k] != rows[k - 1]), len(faces)]
    bars = [(first, last, float(rows[first])) for first, last in pairwise(cuts)]
    corners = [[(first, y - 0.2), (last, y - 0.2), (last, y + 0.1), (first, y + 0.1)] for first, last, y in bars]
    axes.add_collection(
        PolyCollection(
            corners, facecolors=[looks.face(first) for first, _, _ in bars], edgecolors="none", zorder=3, gid="op",
            rasterized=len(bars) > RASTER_ABOVE,
        ),
        autolim=False,
    )  # fmt: skip
    for step in looks.marked:
        axes.plot(
            [step + 0.5], [float(rows[step]) - 0.05], marker="|", markersize=16, color=RED, markeredgewidth=2, zorder=4,
            gid="marked op",
        )  # fmt: skip
    most = 0
    for group in _beside_each_other(sorted(looks.marked), len(program.ops) * WORDS):
        words = "\n".join(looks.marked[step] for step in group)
        most = max(most, words.count("\n") + 1)
        middle, y = (group[0] + group[-1] + 1) / 2, min(float(rows[step]) for step in group)
        side = (
            "left"
            if middle < len(program.ops) * WORDS
            else "right"
            if middle > len(program.ops) * (1 - WORDS)
            else "center"
        )
        axes.annotate(
            words, (middle, y - 0.2), (0, -4), textcoords="offset points", ha=side, va="top", color=RED, fontsize=8.5, gid="deed",
        )  # fmt: skip
    return most


def _beside_each_other(steps: Sequence[int], near: float) -> list[list[int]]:
    """Return sorted steps in groups: those nearer than `near` to the one before join its group."""
    groups: list[list[int]] = []
    for step in steps:
        if groups and step - groups[-1][-1] < near:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _arcs(axes: Axes, pairs: Sequence[tuple[int, int]], rows: Any, steps: int, *, gid: str, **look: Any) -> None:
    patches = []
    for maker, reader in pairs:
        low, high = float(rows[maker]) + 0.38, float(rows[reader]) + 0.38
        rise = 2 * HEIGHT * float(np.sqrt(abs(reader - maker) / max(steps, 1))) - 0.38
        up = max(low, high) + max(rise, LEAST_RISE)
        curve = [(maker + 0.5, low), ((maker + reader + 1) / 2, up), (reader + 0.5, high)]
        patches.append(PathPatch(Path(curve, [Path.MOVETO, Path.CURVE3, Path.CURVE3])))
    if pairs:
        axes.add_collection(
            PatchCollection(
                patches, facecolors="none", zorder=2.5 if "late" in gid else 2, gid=gid, rasterized=len(patches) > RASTER_ABOVE,
                edgecolors=look["edgecolor"], linewidths=look["linewidth"], linestyles=[look.get("linestyle", "solid")],
            ),
            autolim=False,
        )  # fmt: skip
        if steps <= NAMED_OPS:
            ends = [(reader + 0.5, float(rows[reader]) + 0.42) for _, reader in pairs]
            axes.plot(
                *np.array(ends).T, linestyle="none", marker="v", markersize=4, zorder=2.6,
                color=RED if "late" in gid else INK, markeredgewidth=0,
            )  # fmt: skip


def _waits(axes: Axes, program: Program, rows: Any) -> None:
    if len(program.streams) < 2 or len(program.ops) > NAMED_OPS:
        return
    for op in program.ops:
        for before in op.after:
            start = (before + 0.94, float(rows[before]))
            axes.annotate(
                "", (op.step + 0.06, float(rows[op.step])), start, zorder=3.5, gid="wait",
                arrowprops={"arrowstyle": "->", "linestyle": ":", "color": pale(INK, 0.2), "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0},
            )  # fmt: skip
            axes.plot(*start, marker="o", markersize=3.5, color=pale(INK, 0.2), zorder=3.6, gid="waited for")
