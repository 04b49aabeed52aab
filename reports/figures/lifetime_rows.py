"""Which buffers a picture of lifetimes shows, and the marks on their rows.

Rows in order of what matters: the parties of each cause, by its number, victims of late reads and
those that took their bytes, the parties of other violations, buffers believed dead while needed,
what an op that reads late makes, donors and recipients of a conflict's buffers, beliefs that go on
longest in vain (up to a quarter of the rows), what is alive at the peak, then the largest. Nothing
here needs matplotlib.

What this module does not see: how rows are drawn.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from allocsim.judge.violations import Report, Violation
from allocsim.model import Problem
from allocsim.model.layout import Int64s
from reports.figures.conflicts import LATE, TAKER, Conflict
from reports.figures.scene import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happens in a step to a buffer that has a row."""

    step: int
    buffer: int
    late_read: bool
    """Else the bytes were taken by this buffer."""


def wrong(shown: Scene, rows: Int64s, believed: Problem | None) -> tuple[Int64s, Int64s]:
    """Return the rows believed to live too short, and the unpinned ones to live too long."""
    if believed is None:
        return rows[:0], rows[:0]
    start, stop = believed.start[rows], believed.stop[rows]
    short_of = (start > shown.start[rows]) | (stop < shown.stop[rows])
    beyond = ((start < shown.start[rows]) | (stop > shown.stop[rows])) & ~believed.pinned[rows]
    return rows[short_of], rows[beyond]


def marks(report: Report | None, run: int, faults: Sequence[Conflict] = ()) -> tuple[Mark, ...]:
    """Return the late reads of one run, and the steps in which the bytes had been taken; of
    `faults` (`conflicts.faults`) what they say of these.
    """
    found: dict[Mark, None] = {}
    for each in faults:
        if each.read is not None:
            found[Mark(step=each.read, buffer=each.buffer, late_read=True)] = None
        if each.taken is not None:
            takers = [buffer for role, buffer in each.parties if role == TAKER]
            found.update((Mark(step=each.taken, buffer=buffer, late_read=False), None) for buffer in takers)
    for v in _of_run(report, run):
        if v.kind in LATE and v.buffer is not None and v.op is not None:
            found[Mark(step=v.op, buffer=v.buffer, late_read=True)] = None
        if v.kind == "StaleRead" and v.other_run == run and v.other_buffer is not None and v.other_op is not None:
            found[Mark(step=v.other_op, buffer=v.other_buffer, late_read=False)] = None
    return tuple(found)


def rows(
    shown: Scene,
    believed: Problem | None,
    report: Report | None,
    *,
    run: int,
    limit: int | None,
    first: Iterable[int] = (),
) -> Int64s:
    """Return the buffers to show, at most `limit` (None: all that live for a part of the run), in
    order of birth; those of `first` before others. O(n log n) for n buffers.
    """
    lives = shown.used & ~shown.program.buffers.persistent
    candidates = np.flatnonzero(lives)
    if limit is not None and len(candidates) > limit:
        ranked = chain(first, _ranked(shown, candidates, believed, report=report, run=run, limit=limit))
        chosen = np.array([b for b in dict.fromkeys(ranked) if lives[b]][: max(limit, 0)], dtype=np.int64)
    else:
        chosen = candidates
    order = np.lexsort((-shown.nbytes[chosen], shown.stop[chosen], shown.start[chosen]))
    return chosen[order]


def numbers(faults: Sequence[Conflict]) -> dict[int, str]:
    """Return the numbers of the causes that each buffer is a party of, victims first."""
    found: dict[int, list[str]] = {}
    for each in faults:
        for buffer in dict.fromkeys([each.buffer, *(buffer for _, buffer in each.parties)]):
            found.setdefault(buffer, []).append(str(each.number))
    return {buffer: ", ".join(which) for buffer, which in found.items()}


def in_conflict(report: Report | None, run: int) -> list[int]:
    """Return the parties of the violations of one run: all victims, then all others."""
    found = list(_of_run(report, run))
    victims = [v.buffer for v in found if v.buffer is not None]
    others = [v.other_buffer for v in found if v.other_buffer is not None and v.other_run in {None, run}]
    return list(dict.fromkeys([*victims, *others]))


def told(report: Report | None, run: int, rows: Int64s) -> int:
    """Return of how many violations of one run a party is among some buffers."""
    shown = set(rows.tolist())
    return sum(
        v.buffer in shown or (v.other_run in {None, run} and v.other_buffer in shown) for v in _of_run(report, run)
    )


def _ranked(
    shown: Scene, candidates: Int64s, believed: Problem | None, *, report: Report | None, run: int, limit: int
) -> Iterator[int]:
    """Yield buffers, those that matter most first, some more than once."""
    largest = candidates[np.argsort(-shown.nbytes[candidates], kind="stable")]
    early, beyond = wrong(shown, largest, believed)
    parties = in_conflict(report, run)
    yield from [mark.buffer for mark in marks(report, run)][: limit // 2]
    yield from parties[: limit // 4]
    yield from early[: limit // 2].tolist()
    yield from _results_of_late_readers(shown, report, run)
    near = set(parties)
    yield from (b for _, *pair in shown.handovers.tolist() if near & set(pair) for b in pair)
    if believed is not None and len(beyond):
        held = np.minimum(believed.stop[beyond], shown.steps) - believed.start[beyond]
        vain = (held - (shown.stop[beyond] - shown.start[beyond])).astype(float) * shown.nbytes[beyond]
        yield from beyond[np.argsort(-vain, kind="stable")][: max(limit // 4, 1)].tolist()
    peak = shown.live_bytes(shown.placed).peak_at
    yield from largest[(shown.start[largest] <= peak) & (peak < shown.stop[largest])].tolist()
    yield from largest.tolist()


def _results_of_late_readers(shown: Scene, report: Report | None, run: int) -> Iterator[int]:
    home = shown.program.values.buffer
    for mark in marks(report, run):
        if mark.late_read and mark.step < len(shown.program.ops):
            yield from (int(home[value]) for value in shown.program.ops[mark.step].results)


def _of_run(report: Report | None, run: int) -> Iterator[Violation]:
    return (v for v in (report.violations if report is not None else ()) if v.run == run)
