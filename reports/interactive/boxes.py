"""The data of an interactive memory map, for each plan and arena, as columns of JSON.

A box is a buffer where its plan puts it, for the steps it lives: `start` and `stop` in steps, `low`
and `high` in bytes of the arena, half-open, as in `reports.figures.memory_figure`; a donor's box
ends where its recipient's begins. Numbers beyond 2^53 lose their last digits in a browser.

What this module does not see: how a map is drawn, and whether a plan is any good (`conflicts` come
from a `Report`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
import numpy as np

from allocsim.judge.violations import Report
from allocsim.model import VIEW, Document
from allocsim.model.layout import Int64s
from allocsim.verdict.records import Cause
from reports.figures.conflicts import conflicts, findings, numbering
from reports.figures.families import families
from reports.figures.memory_figure import visible
from reports.figures.scene import Scene, scene

MOST_BOXES: Final = 20_000
"""Boxes of one map, the largest by bytes x steps; further ones are counted."""

MOST_MAPS: Final = 8
"""Maps of a page; further ones are counted."""


def maps(
    document: Document, *, report: Report | None, verdict: Mapping[str, Any] | None
) -> tuple[list[dict[str, Any]], int]:
    """Return the maps of a document, and how many more there are.

    There is one for each plan that is run and each arena that it fills.
    """
    found = list(_drawn(document))
    causes = () if report is None else numbering(document, report)
    shown = [_map(document, *place, report=report, verdict=verdict, causes=causes) for place in found[:MOST_MAPS]]
    return shown, len(found[MOST_MAPS:])


def _drawn(document: Document) -> Iterator[tuple[Scene, int, int]]:
    """Give (scene, run, arena) for each arena of each plan, at the first run of it."""
    seen = set()
    for number, run in enumerate(document.runs):
        if (key := (id(run.plan), id(run.program))) in seen:
            continue
        seen.add(key)
        shown = scene(document, number)
        if shown is not None:
            yield from ((shown, number, arena) for arena in range(len(document.arenas)) if len(shown.shown(arena)))


def _map(
    document: Document,
    shown: Scene,
    run: int,
    arena: int,
    *,
    report: Report | None,
    verdict: Mapping[str, Any] | None,
    causes: Sequence[Cause],
) -> dict[str, Any]:
    assert shown.plan is not None
    everything = shown.shown(arena)
    stop = visible(shown, shown.handovers[shown.plan.arena[shown.handovers[:, 2]] == arena])
    area = shown.nbytes[everything].astype(np.float64) * (stop[everything] - shown.start[everything])
    kept = everything[np.sort(np.argsort(-area, kind="stable")[:MOST_BOXES])]
    buffers = kept[np.argsort(shown.start[kept], kind="stable")]
    low = shown.plan.offset[buffers]
    colours = families(shown, everything).colours
    drawn, _ = conflicts(shown, arena, run, report, causes)
    faults = () if drawn else findings(shown, arena, run, verdict)
    mask = np.zeros(len(shown.nbytes), dtype=np.bool_)
    mask[everything] = True
    makers, readers = _makers(shown)
    return {
        "title": f"{shown.source}, arena {document.arenas[arena].name}"
        + (f", run {run}" if len(document.runs) > 1 else ""),
        "steps": shown.steps,
        "top": int((shown.plan.offset[everything] + shown.nbytes[everything]).max()),
        "bound": shown.live_bytes(mask).peak,
        "left_out": len(everything) - len(buffers),
        "name": [shown.program.buffers.names[buffer] for buffer in buffers.tolist()],
        "start": shown.start[buffers].tolist(),
        "stop": stop[buffers].tolist(),
        "low": low.tolist(),
        "high": (low + shown.nbytes[buffers]).tolist(),
        "colour": [mpl.colors.to_hex(colours[buffer]) for buffer in buffers.tolist()],
        "maker": [_op(shown, int(makers[buffer])) for buffer in buffers.tolist()],
        "reader": [_op(shown, int(readers[buffer])) for buffer in buffers.tolist()],
        "conflicts": [
            {
                "number": conflict.number,
                "words": conflict.words,
                "boxes": [[int(edge) for edge in box] for box in conflict.boxes],
            }
            for conflict in (*drawn, *faults)
        ],
    }


def _makers(shown: Scene) -> tuple[Int64s, Int64s]:
    """Return for each buffer the first op that writes it, views aside, and the last that reads it.

    -1 where there is none.
    """
    ops, home = shown.program.ops, shown.program.values.buffer
    makers, readers = (np.full(len(shown.nbytes), -1, dtype=np.int64) for _ in range(2))
    steps = np.arange(len(ops))
    makes = np.repeat(~ops.is_kind(VIEW), np.diff(ops.result_starts))
    written = np.repeat(steps, np.diff(ops.result_starts))[makes][::-1]
    makers[home[ops.results[makes][::-1]]] = written  # of several assignments the last stays: the first op
    readers[home[ops.operands]] = np.repeat(steps, np.diff(ops.operand_starts))
    return makers, readers


def _op(shown: Scene, step: int) -> str:
    return "" if step < 0 else f"{step} {shown.program.ops.names[step]}"
