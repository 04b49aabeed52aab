"""Ranks by time: a lane for each stream, its ops as bars; below, what is alive of each rank.

Time. An op takes one unit, a view none. It begins when the op before it on its stream and those
that it waits for have ended: the longest path over `after` and the order of each stream. So bars
side by side may run at once, and a gap is a wait; how long an op takes is not told.

Ranks are told by names: `rankR/STREAM` and `rankR/ARENA`, as `allocsim join` gives them; of other
documents all streams are one group. Of more ranks than `MOST` the first is drawn. A document of one
rank whose `meta` says of how many it is one (`allocsim.programs.rank_meetings`) says so.

Alive is a buffer from the first to the last op that touches it, in this time; what is alive before
the first op, or behind the last, by its lifetime, is so here. Those of a pair count once where one
takes the place of the other. Causes that a judge found are lines with their numbers.

Complexity: O(ops + waits + buffers log buffers). What this module does not see: what an op costs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from allocsim.model import VIEW, Document, Program
from allocsim.model.layout import Int64s
from allocsim.programs.joined_ranks import GIVE
from allocsim.programs.rank_meetings import collectives
from reports.figures import style
from reports.figures.conflicts import Judgement, faults, left_out, room, told
from reports.figures.fault_marks import mark_steps
from reports.figures.scene import LiveCurve, Scene, scene, step_curve
from reports.number_format import count, nbytes, short

MOST: Final = 8
"""Ranks that are drawn; of more, the first alone."""

LANES: Final = 24
"""Streams of a group that get a lane; further ones are counted."""

_RANK: Final = re.compile(r"(rank\d+)/")
_ALL: Final = ""
"""The group of what names no rank."""

HOST: Final = "host"
COMPUTE: Final = "compute"
OTHER: Final = "other collectives"
LOOKS: Final = {COMPUTE: (style.pale(style.GREY, 0.45), ""), HOST: (style.NAVY, "")}
_LOOKS: Final = (
    (style.BLUE, "////"), (style.ORANGE, "\\\\\\\\"), (style.GREEN, "xxxx"), (style.PURPLE, "...."), (style.SKY, "----"),
    (style.OLIVE, "||||"),
)  # fmt: skip
"""Of collectives in the order of their names; those beyond are `OTHER`."""
_OTHERS: Final = {OTHER: (style.pale(style.INK, 0.3), "++++")}


@dataclass(frozen=True, kw_only=True, eq=False)
class Timed:
    """When each op runs."""

    start: Int64s
    stop: Int64s
    end: int


@style.styled
def streams(document: Document, *, run: int = 0, **judged: Unpack[Judgement]) -> Figure:
    """Draw the streams of one run; ModelError for a run that does not exist."""
    shown = scene(document, run)
    if shown is None or not len(shown.program.ops):
        why = "The document has no program." if shown is None else "The program has no ops."
        return style.nothing("No streams", [why], "nothing runs here")
    program = shown.program
    timed = in_time(program)
    wrong = faults(document, shown, run, **judged)
    groups = groups_of(program.streams)
    drawn = list(groups) if len(groups) <= MOST else list(groups)[:1]
    lanes = [stream for name in drawn for stream in groups[name][:LANES]]
    curves = {name: alive(shown, timed, name) for name in drawn}
    top = max([1, *(curve.peak for curve in curves.values())])
    heights = [max(1.0, 0.3 * len(lanes)), *(0.75 if len(drawn) > 1 else 1.8 for _ in drawn)]
    figure = style.canvas(11.5, 1.9 + sum(heights) + room(wrong))
    axes, *below = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    families = bars(axes, program, timed, lanes)
    _name_lanes(axes, program, {name: groups[name][:LANES] for name in drawn})
    for place, (name, curve) in zip(below, curves.items(), strict=True):
        _area(place, name, curve, top, alone=len(drawn) == 1)
    mark_steps(axes, wrong, timed.end, at=timed.start)
    style.step_axis(below[-1], timed.end, "time (one unit an op, by the longest path over streams and waits)")
    handles = [
        Patch(facecolor=look[0], edgecolor=style.INK, hatch=look[1], linewidth=0.4, label=name)
        for name, look in families.items()
    ]
    figure.legend(handles=handles, loc="outside right upper", title="ops", alignment="left", handlelength=2.0)
    ranks = _ranks(program, groups)
    idle = 1 - sum(int((timed.stop - timed.start)[program.ops.stream == lane].sum()) for lane in lanes) / (
        max(timed.end, 1) * len(lanes)
    )
    of_ranks = "" if drawn == [_ALL] else f" of {count(len(drawn), 'rank')}"
    style.heading(
        axes,
        f"{count(len(lanes), 'stream')}{of_ranks}, {count(timed.end, 'unit')} of time, lanes idle for {idle * 100:.0f} % of it",
        [
            f"{short(program.name, 60)}: {count(len(program.ops), 'op')}; a bar is an op, a gap a wait; below, bytes alive in arenas",
            *([f"one of {ranks:,} ranks is drawn"] if ranks > len(drawn) else []),
            *(
                [f"{len(lanes)} of {sum(len(groups[name]) for name in drawn)} streams are drawn"]
                if any(len(groups[name]) > LANES for name in drawn)
                else []
            ),
            *told(wrong),
            *left_out(wrong, **judged),
        ],
    )
    return figure


def in_time(program: Program) -> Timed:
    """Return when each op begins and ends. O(ops + waits)."""
    ops = program.ops
    views = np.array([kind == VIEW for kind in ops.kinds], bool)
    takes = np.where(views[ops.kind], 0, 1)
    free = [0] * max(len(program.streams), 1)
    stop: list[int] = []
    waits, starts = ops.after.tolist(), ops.after_starts.tolist()
    for step, (stream, units) in enumerate(zip(ops.stream.tolist(), takes.tolist(), strict=True)):
        ready = max((stop[before] for before in waits[starts[step] : starts[step + 1]]), default=0)
        free[stream] = max(free[stream], ready) + units
        stop.append(free[stream])
    ends = np.array(stop, np.int64)
    return Timed(start=ends - takes, stop=ends, end=int(ends.max(initial=0)))


def groups_of(streams: Sequence[str]) -> dict[str, list[int]]:
    """Return the streams of each rank, in the order of the ranks."""
    found: dict[str, list[int]] = {}
    for index, name in enumerate(streams or ("",)):
        found.setdefault(_rank_of(name), []).append(index)
    return found


def _rank_of(name: str) -> str:
    match = _RANK.match(name)
    return match[1] if match else _ALL


def alive(shown: Scene, timed: Timed, group: str) -> LiveCurve:
    """Return the bytes alive in the arenas of a group, over time. O(buffers log buffers)."""
    program, last = shown.program, max(timed.end, 1)
    ops, values = program.ops, program.values
    first, until = np.full(len(shown.nbytes), last, np.int64), np.zeros(len(shown.nbytes), np.int64)
    for starts, told_values in ((ops.operand_starts, ops.operands), (ops.result_starts, ops.results)):
        step = np.repeat(np.arange(len(ops)), np.diff(starts))
        touches = timed.stop[step] > timed.start[step]  # a view touches nothing
        buffer, step = values.buffer[told_values[touches]], step[touches]
        np.minimum.at(first, buffer, timed.start[step])
        np.maximum.at(until, buffer, timed.stop[step])
    first[shown.start == 0] = 0
    until[shown.stop == shown.steps] = last
    here = np.array([_rank_of(arena.name) == group for arena in program.arenas], bool)
    chosen = shown.placed & shown.used & (until > first) & here[program.buffers.arena]
    index = np.flatnonzero(chosen)
    both = shown.pairs[chosen[shown.pairs[:, 1]] & chosen[shown.pairs[:, 2]]]
    shared = np.minimum(shown.nbytes[both[:, 1]], shown.nbytes[both[:, 2]])
    when = np.concatenate([[0, last], first[index], until[index], timed.start[both[:, 0]], timed.stop[both[:, 0]]])
    size = shown.nbytes[index]
    return step_curve(when, np.concatenate([[0, 0], size, -size, -shared, shared]))


def bars(axes: Axes, program: Program, timed: Timed, lanes: Sequence[int]) -> dict[str, tuple[Any, str]]:
    """Draw the ops of some streams as bars; return how each kind looks that occurs."""
    ops = program.ops
    meet = _kinds_that_meet(program)
    looks: dict[str, tuple[Any, str]] = LOOKS | dict(zip(meet, _LOOKS, strict=False)) | _OTHERS
    of_kind = [_family(kind, looks, meet) for kind in ops.kinds]
    family = np.array([list(looks).index(name) for name in of_kind])[ops.kind]
    row = np.full(max(len(program.streams), 1), -1)
    row[list(lanes)] = np.arange(len(lanes))
    edge = 0.3 if timed.end <= 400 else 0.0
    for number, (name, (colour, hatch)) in enumerate(looks.items()):
        chosen = np.flatnonzero((family == number) & (row[ops.stream] >= 0) & (timed.stop > timed.start))
        low, high, at = timed.start[chosen], timed.stop[chosen], row[ops.stream[chosen]].astype(np.float64)
        corners = np.stack([low, at - 0.4, low, at + 0.4, high, at + 0.4, high, at - 0.4], axis=1).reshape(-1, 4, 2)
        if len(chosen):
            axes.add_collection(PolyCollection(
                list(corners), facecolor=colour, edgecolor=style.INK, hatch=hatch, linewidth=edge, zorder=2, gid=name,
                rasterized=len(chosen) > style.RASTER_ABOVE,
            ), autolim=False)  # fmt: skip
    seen = set(family[np.isin(ops.stream, lanes) & (timed.stop > timed.start)].tolist())
    return {name: look for number, (name, look) in enumerate(looks.items()) if number in seen}


def _kinds_that_meet(program: Program) -> list[str]:
    """Return the kinds of collectives in a program, by name."""
    ops = program.ops
    named = {ops.kinds[ops.kind[step]] for step, _ in collectives(program)}
    return sorted(named | {kind.removesuffix(GIVE) for kind in ops.kinds if kind.endswith(GIVE)})


def _family(kind: str, looks: Mapping[str, Any], meet: Sequence[str]) -> str:
    bare = kind.removesuffix(GIVE)
    if bare in looks and bare not in LOOKS:
        return bare
    if bare in meet:
        return OTHER
    return HOST if kind.startswith("host.") else COMPUTE


def _name_lanes(axes: Axes, program: Program, groups: Mapping[str, Sequence[int]]) -> None:
    """Write the name of each lane, the first on top, and part the ranks by a line."""
    names = [short(program.streams[lane] if program.streams else "", 24) for lanes in groups.values() for lane in lanes]
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), [name.replace("/", "  ", 1) for name in names])
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelbottom=False)
    for border in np.cumsum([len(lanes) for lanes in groups.values()])[:-1].tolist():
        axes.axhline(border - 0.5, color=style.FAINT, linewidth=0.6, zorder=1)


def _area(axes: Axes, name: str, curve: LiveCurve, top: int, *, alone: bool) -> None:
    """Draw what is alive of a rank; all ranks have one scale."""
    colour = style.BLUE
    axes.fill_between(
        curve.edges, np.append(curve.height, curve.height[-1]), step="post", facecolor=style.pale(colour, 0.6),
        edgecolor=colour, linewidth=0.8, zorder=2, gid="alive", rasterized=len(curve.edges) > style.RASTER_ABOVE,
    )  # fmt: skip
    axes.set_ylim(0, top * 1.12)
    if alone:
        style.bytes_axis(axes.yaxis, top, f"{name} alive".strip())
    else:
        axes.set_yticks([0, top], ["0", nbytes(top)])
        axes.set_ylabel(name or "alive", rotation=0, ha="right", va="center")
    words = f"at most {nbytes(curve.peak)}"
    axes.text(1.01, 0.5, words, transform=axes.transAxes, va="center", color=style.FAINT, fontsize=9)


def _ranks(program: Program, groups: Mapping[str, Any]) -> int:
    """Return how many ranks a document speaks of: those it has, or those its `meta` counts."""
    said = program.meta.get("ranks")
    counted = said.get("count", 0) if isinstance(said, Mapping) else 0
    return max(len(groups), counted if isinstance(counted, int) else 0)
