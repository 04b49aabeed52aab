"""A document as a Chrome trace: JSON that Perfetto and chrome://tracing show.

Ops are slices of one microsecond in a track for each stream. Each arena is a process of its own:
its buffers are slices, on as many tracks as live at the same time, and its live bytes a counter.
Slices carry address, size and op as arguments.

Source: Trace Event Format (Google), "complete", "counter" and "metadata" events.

What this module does not see: numbers beyond 2^53, which a browser rounds.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec

from allocsim.exports.placed_buffers import PlacedBuffer, TimedRun, placed_buffers, timed_runs
from allocsim.model import Document

OPS: Final = 1
"""The process of the ops; arena k is process k + 2."""


def dumps(document: Document) -> bytes:
    """Return the trace as UTF-8 JSON. O(size log size).

    Raises OutputError where nothing was run.
    """
    runs = timed_runs(document)
    lives = placed_buffers(runs)
    events = [*_named(document), *_ops(runs), *_buffers(document, lives), *_live(lives)]
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"}) + b"\n"


def _named(document: Document) -> Iterator[dict[str, Any]]:
    streams = max((program.streams for program in document.programs), key=len, default=())
    yield _name("process_name", OPS, 0, "ops")
    for number, stream in enumerate(streams):
        yield _name("thread_name", OPS, number, f"stream {number} {stream}")
    for number, arena in enumerate(document.arenas):
        yield _name("process_name", OPS + 1 + number, 0, f"arena {number} {arena.name}")


def _name(what: str, process: int, track: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": track, "args": {"name": text}}


def _ops(runs: Sequence[TimedRun]) -> Iterator[dict[str, Any]]:
    for number, (run, begin, _, _) in enumerate(runs):
        for op in (op for op in run.program.ops if op.step not in run.skip):
            yield {
                "ph": "X",
                "name": op.name or op.kind,
                "cat": op.kind or "op",
                "pid": OPS,
                "tid": op.stream,
                "ts": begin + op.step,
                "dur": 1,
                "args": {"run": number, "step": op.step, "reads": list(op.operands), "writes": list(op.results)},
            }


def _buffers(document: Document, lives: Iterable[PlacedBuffer]) -> Iterator[dict[str, Any]]:
    """Yield the buffers, each on the first track of its arena that is free."""
    ordered = sorted(lives, key=attrgetter("arena", "start", "stop", "run", "buffer"))
    for arena, members in groupby(ordered, key=attrgetter("arena")):
        free: list[int] = []
        busy: list[tuple[int, int]] = []
        for one in members:
            while busy and busy[0][0] <= one.start:
                heappush(free, heappop(busy)[1])
            track = heappop(free) if free else len(busy)
            heappush(busy, (one.stop, track))
            yield {
                "ph": "X",
                "name": document.runs[one.run].program.buffers.names[one.buffer],
                "cat": "buffer",
                "pid": OPS + 1 + arena,
                "tid": track,
                "ts": one.start,
                "dur": one.stop - one.start,
                "args": {"run": one.run, "buffer": one.buffer, "offset": one.offset, "nbytes": one.nbytes},
            }


def _live(lives: Iterable[PlacedBuffer]) -> Iterator[dict[str, Any]]:
    """Yield the live bytes of each arena where they change."""
    changes = sorted(change for one in lives for change in _ends(one))
    for arena, rows in groupby(changes, key=itemgetter(0)):
        total = 0
        for step, here in groupby(rows, key=itemgetter(1)):
            total += sum(row[2] for row in here)
            yield {"ph": "C", "name": "live bytes", "pid": OPS + 1 + arena, "tid": 0, "ts": step, "args": {"B": total}}


def _ends(one: PlacedBuffer) -> Iterator[tuple[int, int, int]]:
    yield one.arena, one.start, one.nbytes
    yield one.arena, one.stop, -one.nbytes


__all__ = ["OPS", "dumps"]
