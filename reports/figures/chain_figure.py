"""The chain rule beside its memory: the graph forward, then backward, over the bytes that it keeps.

Above, a box for each op in execution order with what it makes and, where the document has them
(`meta.shown` of a value), the numbers; `d x` is the
gradient with respect to x (`meta.adjoint_of`). A strong arc leads from a forward op to a backward
op that reads its result: this is what the forward pass keeps for the chain rule. Below, on the same
axis, the live bytes: results of the forward pass, of the backward pass, of the update, and what the
host writes.

The pass of an op is its `meta.stage` (`forward`, `backward`, `update`). Of a program that says of
no op to which pass it belongs, graph and bytes are drawn without passes.

Of each cause that a judge found, the op that read late is marked with its number, and the op that
took the bytes; its words stand above. What is marked has its arcs, however many there are.

What this module does not see: kernels, and why something is wrong. Numbers in boxes are those of
the document.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from allocsim.liveness import live_bytes
from allocsim.model import VIEW, Document, Program, Role
from allocsim.model.layout import Int64s
from reports.figures import style
from reports.figures.arc_graph import GraphLooks, draw_graph, edges
from reports.figures.conflicts import Conflict, Judgement, faults, left_out, room, told
from reports.figures.fault_marks import seen_at
from reports.figures.scene import scene
from reports.number_format import count, nbytes, short

PASSES: Final = ("forward", "backward", "update")
HOST: Final = "host"
LOOKS: Final[Mapping[str, tuple[Any, str]]] = {
    "forward": (style.BLUE, ""),
    "backward": (style.ORANGE, "////"),
    "update": (style.GREEN, "xx"),
    HOST: (style.GREY, ".."),
}
"""Pass -> colour and hatching."""


@style.styled
def chain(document: Document, *, run: int = 0, **judged: Unpack[Judgement]) -> Figure:
    """Draw the program of one run; ModelError for a run that does not exist. O(n log n)."""
    shown = scene(document, run)
    if shown is None or not len(shown.program.ops):
        why = "The document has no program." if shown is None else "The program has no ops."
        return style.nothing("No graph", [why], "no op runs here")
    program = shown.program
    passes = passes_of(program)
    kept, results = _kept(program, passes)
    found = np.unique(np.concatenate([edges(program), kept]), axis=0)
    wrong = faults(document, shown, run, **judged)
    figure = style.canvas(12.5, 7.4 + room(wrong))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    looks = GraphLooks(
        face=lambda step: style.pale(LOOKS[passes[step]][0], 0.7),
        says=_numbers(program),
        bold=frozenset((int(a), int(b)) for a, b in kept.tolist()),
        marked=_marked(wrong),
        late=_late(program, wrong),
    )
    hidden = draw_graph(upper, program, looks, found)
    used = _areas(lower, program, passes)
    style.step_axis(lower, len(program.ops))
    upper.tick_params(axis="x", length=0, labelbottom=False)
    handles = [
        Patch(facecolor=style.pale(LOOKS[name][0], 0.55), edgecolor=LOOKS[name][0], hatch=LOOKS[name][1], label=label)
        for name, label in _labels(program, passes).items()
        if name in used or name in passes
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), handlelength=2.0)
    words, details = _heading(program, passes, results, hidden=hidden)
    style.heading(upper, words, [*details, *told(wrong), *left_out(wrong, **judged)])
    return figure


def _marked(found: Sequence[Conflict]) -> dict[int, str]:
    """Return what is written at the ops of causes: the numbers, and what was done."""
    said: dict[int, list[str]] = {}
    for each in found:
        deeds = [(each.read, "reads late"), (each.taken, "takes the bytes")]
        here = [(step, deed) for step, deed in deeds if step is not None] or [(seen_at(each), each.kind)]
        if each.read is not None and each.read == each.taken:
            here = [(each.read, "overwrites what it reads")]
        for step, deed in here:
            said.setdefault(step, []).append(f"{each.number} {deed}")
    return {step: "\n".join(words) for step, words in said.items()}


def _late(program: Program, found: Sequence[Conflict]) -> frozenset[tuple[int, int]]:
    """Return the arcs from the ops that made what is read late to its late readers."""
    arcs: set[tuple[int, int]] = set()
    for each in found:
        if each.read is None or each.read >= len(program.ops):
            continue
        wanted = [v for v in program.ops[each.read].operands if int(program.values.buffer[v]) == each.buffer]
        arcs.update((int(program.producer[v]), each.read) for v in wanted if program.producer[v] >= 0)
    return frozenset(arcs)


def passes_of(program: Program) -> list[str]:
    """Return the pass of each op: `meta.stage`, `HOST` for the host's; by default `forward`."""
    kinds = program.ops.kinds
    return [
        HOST
        if kinds[kind].startswith("host.")
        else stage
        if (stage := program.ops.meta.get(step, {}).get("stage")) in PASSES
        else "forward"
        for step, kind in enumerate(program.ops.kind.tolist())
    ]


def _is_told(program: Program) -> bool:
    return any(meta.get("stage") == "backward" for meta in program.ops.meta.values())


def _kept(program: Program, passes: list[str]) -> tuple[Int64s, Int64s]:
    """Return the arcs (n, 2) from a forward op to a backward op that reads its result, itself or
    through views, and these results.
    """
    ops, where = program.ops, np.array(passes)
    views = ops.is_kind(VIEW)
    written = np.arange(len(program.values))
    for step in np.flatnonzero(views).tolist():  # in order: a view of a view ends at what was written
        written[ops.results[ops.result_starts[step]]] = written[ops.operands[ops.operand_starts[step]]]
    readers = np.repeat(np.arange(len(ops)), np.diff(ops.operand_starts))
    values = written[ops.operands]
    makers = program.producer[values].astype(np.int64)
    mask = (makers >= 0) & ~views[readers] & (where[makers] == "forward") & (where[readers] == "backward")
    arcs: Int64s = np.unique(np.stack([makers[mask], readers[mask]], axis=1), axis=0).reshape(-1, 2)
    return arcs, np.unique(values[mask]).astype(np.int64)


def _numbers(program: Program) -> dict[int, str]:
    """Return what is written into the box of an op: the numbers of its first result."""
    said = {}
    for op in program.ops:
        for value in op.results:
            meta = program.values.meta.get(value, {})
            of, number = meta.get("adjoint_of"), meta.get("shown")
            words = [f"d {short(str(of), 14)}"] if of else []
            words += [f"= {short(str(number), 18)}"] if number is not None else []
            if words:
                said[op.step] = " ".join(words)
    return said


def _areas(axes: Axes, program: Program, passes: list[str]) -> list[str]:
    """Draw live bytes by the pass of the op that first made a buffer; return the passes drawn."""
    home = program.values.buffer
    maker = np.full(len(program.buffers), len(program.ops), dtype=np.int64)
    made = program.producer >= 0
    np.minimum.at(maker, home[made], program.producer[made].astype(np.int64))
    names = np.array([*passes, HOST])[maker]
    names[np.isin(program.buffers.role, (Role.PARAMETER, Role.STATE))] = ""
    steps, low, used = len(program.ops), np.zeros(len(program.ops)), []
    for name in (*PASSES, HOST):
        height = live_bytes(program, counted=names == name).astype(np.float64)
        if not height.any():
            continue
        high = low + height
        colour, hatch = LOOKS[name]
        axes.fill_between(
            np.arange(steps + 1), np.append(low, low[-1]), np.append(high, high[-1]), step="post", facecolor=style.pale(colour, 0.55),
            edgecolor=colour, hatch=hatch, linewidth=0.4 if steps < style.RASTER_ABOVE else 0.0, rasterized=steps > style.RASTER_ABOVE, gid=name,
        )  # fmt: skip
        low = high
        used.append(name)
    style.bytes_axis(axes.yaxis, float(low.max(initial=0.0)), "live, weights and states aside")
    axes.set_ylim(0, max(float(low.max(initial=0.0)), 1.0) * 1.1)
    return used


def _labels(program: Program, passes: list[str]) -> dict[str, str]:
    forward = "values of the forward pass" if "backward" in passes or _is_told(program) else "results of ops"
    return {"forward": forward, "backward": "results of the backward pass", "update": "update", HOST: "the host's"}


def _heading(program: Program, passes: list[str], results: Int64s, *, hidden: int) -> tuple[str, list[str]]:
    many = {name: passes.count(name) for name in (*PASSES, HOST)}
    words = ", ".join(f"{many[name]:,} {name}" for name in (*PASSES, HOST) if many[name])
    details = [
        f"{short(program.name, 60)}: {count(len(program.ops), 'op')} ({words if _is_told(program) else 'no op says that it is of a backward pass (meta.stage)'})"
    ]
    if hidden:
        details.append(f"{count(hidden, 'arc')} more not drawn: those shown are evenly chosen")
    if not many["backward"]:
        return f"The graph of {count(len(program.ops), 'op')}, and the bytes that live at each", details
    buffers = np.unique(program.values.buffer[results])
    size = int(program.buffers.nbytes[buffers].sum())
    details.append("strong arcs: from a forward op to a backward op that reads its result, itself or through views")
    return (
        f"The backward pass reads {count(len(results), 'forward result')} again: {nbytes(size)} in {count(len(buffers), 'buffer')}",
        details,
    )
