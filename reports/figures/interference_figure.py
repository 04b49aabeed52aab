"""Who lives together with whom, round a fault: the interference graph of its neighbourhood.

A node is a buffer, with its size, its steps and its slot. Each cause has a block of its own, one
below the other, by its number. In the middle of it stand its parties, told apart as in the memory
map (`map_boxes.PARTY_LOOKS`); to the left what lives together with the first of them alone, to the
right with the second alone, and what lives with both on the side that is shorter. A line joins a
party with a buffer of its arena that lives at one step with it. It is thin where the plan keeps
them apart, red and doubled where they share bytes, dashed where one takes the other's place with
the op's permission. No line passes behind a node: all run between the columns, and round the middle
where a party stands between two others.

Without a cause there is one block; its middle is the largest buffer alive at the peak, its
neighbours on both sides. Of each of the three groups at most `GROUP` neighbours have a node (`FEW`
where there are several causes), those that share bytes first, then the largest; the others are
counted.

Complexity: O(n log n) for n buffers.

What this module does not see: lifetimes with gaps; here a buffer lives from its first access to its
last.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any, Final, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch

from allocsim.model import Bools, Document
from reports.figures import style
from reports.figures.conflicts import Conflict, Judgement, faults, left_out, not_drawn, told
from reports.figures.map_boxes import PARTY_LOOKS, PARTY_WORDS, roles_in
from reports.figures.scene import Scene, scene
from reports.number_format import count, nbytes, short

GROUP: Final = 7
"""Neighbours shown of those that live with the first party alone, with the second, with both."""

FEW: Final = 3
"""The same where several causes are drawn."""

APART: Final = 1.3
"""Room between two blocks, in inches, for the words of the lower."""

WORDS: Final = 125
"""Characters of a line above a block."""

LEFT, MIDDLE, RIGHT = 0.0, 4.3, 8.6
"""Where the columns stand, in inches."""

WIDTH: Final = 2.5
"""Of a node, in inches."""


LINES: Final[dict[str, dict[str, Any]]] = {
    "apart": {"color": style.pale(style.GREY, 0.35), "linewidth": 0.7},
    "in place": {"color": style.INK, "linewidth": 1.4, "dashes": (4, 3)},
    "shared": {"color": style.RED, "linewidth": 2.2},
}
"""How two buffers live together -> how the line between them looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A buffer and where it stands, in inches."""

    buffer: int
    x: float
    y: float
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrounding:
    """What is drawn of one cause, or of the largest buffer."""

    nodes: tuple[Neighbour, ...]
    """The parties first."""
    parties: int
    left_out: int
    """Neighbours without a node."""
    words: str = ""

    @property
    def low(self) -> float:
        """The lowest place of a node; the highest is below 0."""
        return min(node.y for node in self.nodes)


@style.styled
def interference(document: Document, *, run: int = 0, **judged: Unpack[Judgement]) -> Figure:
    """Draw the neighbourhood of each cause in one run; ModelError for a run that does not exist."""
    shown = scene(document, run)
    candidates = np.flatnonzero(shown.used & (shown.nbytes > 0)) if shown is not None else np.empty(0, dtype=np.int64)
    if shown is None or not len(candidates):
        why = "The document has no program." if shown is None else "No buffer is used."
        return style.nothing("No interference", [why, *not_drawn(judged.get("report"), 0)], "nothing lives here")
    found = faults(document, shown, run, **judged)
    blocks = _blocks(shown, found)
    height = sum(APART - block.low for block in blocks)
    figure = style.canvas(12.0, 1.9 + height)
    axes = figure.add_subplot()
    style.blank(axes, "")
    drawn, low = set[str](), 0.0
    everything: list[Neighbour] = []
    for block in blocks:
        nodes = [replace(node, y=node.y + low) for node in block.nodes]
        drawn |= _lines(axes, shown, nodes, block.parties)
        for node in nodes:
            _node(axes, shown, node)
        if len(blocks) > 1:
            axes.text(LEFT - WIDTH / 2, max(node.y for node in nodes) + 0.38, "\n".join(wrap(block.words, WORDS)), va="bottom", color=style.RED, fontweight="bold", fontsize=9, gid="cause")  # fmt: skip
        everything += nodes
        low = min(node.y for node in nodes) - APART
    axes.set_xlim(-1.5, 10.1)
    axes.set_ylim(
        min(node.y for node in everything) - 0.45,
        max(node.y for node in everything) + (0.95 if len(blocks) > 1 else 0.55),
    )
    _legend(figure, everything, drawn, "" if shown.plan is None else ", in slots apart")
    words, details = _heading(shown, found, blocks, **judged)
    style.heading(axes, words, [*details, *left_out(found, **judged)])
    return figure


def _blocks(shown: Scene, found: Sequence[Conflict]) -> list[Surrounding]:
    group = GROUP if len(found) < 2 else FEW
    if not found:
        middle = [_largest(shown)]
        nodes, left_out = _nodes(shown, middle, {}, group)
        return [Surrounding(nodes=tuple(nodes), parties=1, left_out=left_out)]
    blocks = []
    for conflict, words in zip(found, told(found), strict=True):
        parties = [buffer for _, buffer in conflict.parties if shown.used[buffer]]
        middle = list(dict.fromkeys([conflict.buffer, *parties]))[:3]
        nodes, left_out = _nodes(shown, middle, roles_in([conflict]), group)
        blocks.append(Surrounding(nodes=tuple(nodes), parties=len(middle), left_out=left_out, words=words))
    return blocks


def _largest(shown: Scene) -> int:
    """Return the largest buffer alive at the peak."""
    live = shown.live_bytes(shown.placed)
    alive = (shown.start <= live.peak_at) & (shown.stop > live.peak_at) & (shown.nbytes > 0)
    pool = np.flatnonzero(alive & shown.placed) if (alive & shown.placed).any() else np.flatnonzero(shown.used)
    return int(pool[np.argmax(shown.nbytes[pool])])


def together(shown: Scene, buffer: int) -> Bools:
    """Return which buffers of one arena with `buffer` live at a step at which it does.

    Without a plan, which temporaries and inputs.
    """
    mask: Bools = shown.used & (shown.start < shown.stop[buffer]) & (shown.stop > shown.start[buffer])
    mask &= shown.nbytes > 0
    mask &= shown.placed if shown.plan is None else shown.plan.arena == shown.plan.arena[buffer]
    mask[buffer] = False
    return mask


def sharing(shown: Scene, buffer: int) -> Bools:
    """Return which buffers have bytes of their slot in the slot of `buffer`, in one arena."""
    if shown.plan is None or shown.plan.arena[buffer] < 0:
        return np.zeros(len(shown.nbytes), dtype=np.bool_)
    offset, size = shown.plan.offset, shown.nbytes
    mask: Bools = (shown.plan.arena == shown.plan.arena[buffer]) & (size > 0)
    mask &= (offset < offset[buffer] + size[buffer]) & (offset + size > offset[buffer])
    mask[buffer] = False
    return mask


def _nodes(shown: Scene, middle: list[int], roles: dict[int, str], most: int) -> tuple[list[Neighbour], int]:
    """Return the nodes, and how many neighbours have none."""
    one, two = middle[0], middle[1] if len(middle) > 1 else None
    with_one = together(shown, one)
    with_two = together(shown, two) if two is not None else np.zeros_like(with_one)
    for buffer in middle:
        with_one[buffer] = with_two[buffer] = False
    near = sharing(shown, one) | (sharing(shown, two) if two is not None else False)

    def ranked(mask: Bools) -> list[int]:
        chosen = np.flatnonzero(mask)
        order = np.lexsort((chosen, shown.start[chosen], -shown.nbytes[chosen], ~near[chosen]))
        return [int(buffer) for buffer in chosen[order]]

    groups = ranked(with_one & ~with_two), ranked(with_two & ~with_one), ranked(with_one & with_two)
    left, right, both = (group[:most] for group in groups)
    if two is None:
        left, right = left[::2], left[1::2]
    for buffer in both:
        min(left, right, key=len).append(buffer)
    tallest = max(0.8 * (len(middle) - 1), *(0.62 * (len(column) - 1) for column in (left, right)))
    nodes = [
        Neighbour(
            buffer=buffer, x=x, y=-tallest / 2 + apart * ((len(column) - 1) / 2 - place), role=roles.get(buffer, "")
        )
        for x, column, apart in (
            (MIDDLE, middle, max(0.8, 0.6 * tallest / max(len(middle) - 1, 1))),
            (LEFT, left, 0.62),
            (RIGHT, right, 0.62),
        )
        for place, buffer in enumerate(column)
    ]
    return nodes, sum(max(len(group) - most, 0) for group in groups)


def _way(nodes: Sequence[Neighbour], one: int, other: int) -> tuple[list[float], list[float]]:
    """Return the points of the line between two nodes, from edge to edge."""
    a, b = nodes[one], nodes[other]
    if a.x != b.x:
        side = WIDTH / 2 if b.x > a.x else -WIDTH / 2
        return [a.x + side, b.x - side], [a.y, b.y]
    if other == one + 1:
        return [a.x, b.x], [a.y - 0.25, b.y + 0.25]
    edge, out = a.x + WIDTH / 2, a.x + WIDTH / 2 + 0.25
    return [edge, out, out, edge], [a.y + 0.12, a.y + 0.12, b.y - 0.12, b.y - 0.12]


def _lines(axes: Axes, shown: Scene, nodes: Sequence[Neighbour], parties: int) -> set[str]:
    """Draw a line for each living pair with a party (`parties` nodes); return the sorts drawn."""
    handed = {frozenset(pair) for _, *pair in shown.handovers.tolist()}
    drawn = set()
    for place, one in enumerate(nodes[:parties]):
        lives, shares = together(shown, one.buffer), sharing(shown, one.buffer)
        for next_, other in enumerate(nodes[place + 1 :], start=place + 1):
            if not lives[other.buffer]:
                continue
            pair = frozenset((one.buffer, other.buffer))
            sort = "apart" if not shares[other.buffer] else "in place" if pair in handed else "shared"
            way = _way(nodes, place, next_)
            axes.plot(*way, zorder=2 if sort == "shared" else 1, gid=f"lives {sort}", **LINES[sort])
            if sort == "shared":
                axes.plot(*way, color="white", linewidth=0.7, zorder=2.1)
            drawn.add(sort)
    return drawn


def _node(axes: Axes, shown: Scene, node: Neighbour) -> None:
    look = PARTY_LOOKS.get(node.role, {"edgecolor": style.FAINT, "linewidth": 0.8})
    half = WIDTH / 2
    box: dict[str, Any] = {"boxstyle": "round,pad=0.02", "zorder": 3}
    axes.add_patch(
        FancyBboxPatch((node.x - half, node.y - 0.25), WIDTH, 0.5, facecolor="white", gid="node", **box, **look)
    )
    if node.role:  # the words stay legible on the hatching
        axes.add_patch(
            FancyBboxPatch(
                (node.x - half + 0.06, node.y - 0.19), WIDTH - 0.12, 0.38, facecolor="white", edgecolor="none", **box
            )
        )
    plan = shown.plan
    slot = "" if plan is None or plan.arena[node.buffer] < 0 else f", at {int(plan.offset[node.buffer]):,}"
    name = short(shown.program.buffers.names[node.buffer], 30) or f"buffer {node.buffer}"
    axes.text(
        node.x, node.y, f"{name}\n{nbytes(shown.nbytes[node.buffer])}{slot}, steps {shown.start[node.buffer]:,} to {shown.stop[node.buffer]:,}",
        ha="center", va="center", fontsize=8, zorder=4, linespacing=1.3, gid="node words",
    )  # fmt: skip


def _legend(figure: Figure, nodes: Sequence[Neighbour], drawn: set[str], apart: str) -> None:
    roles = dict.fromkeys(node.role for node in nodes if node.role)
    handles: list[Patch | Line2D] = [
        Patch(facecolor="none", label=PARTY_WORDS[role], **PARTY_LOOKS[role]) for role in roles
    ]
    words = {
        "apart": f"live together{apart}",
        "in place": "one takes the other's place",
        "shared": "live together and share bytes",
    }
    looks = LINES | {"apart": {"color": style.GREY, "linewidth": 0.9}}
    handles += [Line2D([], [], label=words[sort], **looks[sort]) for sort in LINES if sort in drawn]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), handlelength=2.2)


def _heading(
    shown: Scene, found: Sequence[Conflict], blocks: Sequence[Surrounding], **judged: Unpack[Judgement]
) -> tuple[str, list[str]]:
    report, causes = judged.get("report"), judged.get("causes", ())
    parties, nodes = sum(block.parties for block in blocks), sum(len(block.nodes) for block in blocks)
    left_out = sum(block.left_out for block in blocks)
    details = [
        f"{short(shown.source, 60)}: {count(nodes - parties, 'neighbour')} of {count(parties, 'buffer')} in the middle"
    ]
    if left_out:
        details.append(
            f"{count(left_out, 'neighbour')} more {'lives' if left_out == 1 else 'live'} at the same time and {'is' if left_out == 1 else 'are'} not drawn: smaller, or sharing no byte"
        )
    if len(found) == 1:
        return blocks[0].words, details
    if found:
        first = "The first " if len(causes) > len(found) or not causes else ""
        what = count(len(found), "cause" if causes else "conflict")
        return f"{first}{what}, each with what lives beside its parties", details
    if report is None:
        said = "T"
    elif report.count:
        said = "No conflict that could be drawn here; t"
    else:
        said = f"No {'plan' if shown.plan is None else 'conflict'} here; t"
    largest = blocks[0].nodes[0].buffer
    name = short(shown.program.buffers.names[largest], 40) or f"buffer {largest}"
    many = int(together(shown, largest).sum())
    return f"{said}he largest buffer at the peak, {name}, lives together with {count(many, 'other')}", details
