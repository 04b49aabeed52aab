"""What a window of a recording needs to know of all that came before it, as events of its own.

Blocks that are held, and the last owners of bytes that nobody holds, are given out again in front
of the window; their last writers and readers are ops there, each restricted to what still matters
of it, behind one another as they were. Marks that may still be waited for are recorded again. So a
window is a trace like any other, and its document says the same of its ops as that of the whole
recording.

Complexity: O(blocks x streams). What this module does not see: what is wrong with a window.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from allocsim.programs.host_order import Front
from allocsim.recordings.recorded_block import RecordedBlock, Use
from allocsim.recordings.screen import Screen

Event = Mapping[str, Any]
Row = tuple[int, Any, int, Event, tuple[int, Event] | None, tuple[tuple[int, Event], ...], tuple[Use | None, Any, Any]]
"""Number, name, size, alloc, free, what was told, and the last op that wrote all, those that wrote
parts since, and readers, as `RecordedBlock` has them.
"""


@dataclass(frozen=True, slots=True)
class Carried:
    """All of that, at one time."""

    rows: tuple[Row, ...]
    marks: Mapping[Any, tuple[int, int, Front]]
    before: Mapping[int, Front]
    """By stream, what comes before its next op."""
    known: Front
    """What the host knows to be done."""
    ops: int
    """Ops so far."""

    @classmethod
    def of(cls, screen: Screen) -> "Carried":
        """Return what a screen knows now."""
        held = dict.fromkeys(screen.blocks.values())
        for places in screen.places.values():
            for _, owner in places.values():
                held[owner] = None
                if owner.behind is not None:
                    held.update(dict.fromkeys(owner.behind))
        order = screen.order
        return cls(
            rows=tuple(map(_row, held)),
            marks=dict(screen.marks),
            before={stream: order.before(stream) for stream in order.streams.values()},
            known=order.known.all,
            ops=screen.ops,
        )

    def events(self, streams: list[Any], late: Iterable[RecordedBlock]) -> list[tuple[int, Event]]:
        """Return the events in front of a window, each with its number in the recording.

        Args:
            streams: their names.
            late: blocks given back long before, which the window names again.
        """
        rows = [*self.rows, *map(_row, late)]
        uses: dict[int, tuple[Use, list[Any], list[Any]]] = {}
        found: list[tuple[int, int, Any]] = []
        for number, name, size, alloc, free, told, mine in rows:
            found.append((number, 0, alloc))
            found += [(row[0], 0, row[1]) for row in ((*told, free) if free is not None else told)]
            for use, low, high, wrote in _uses(size, *mine):
                if use[0] < self.ops:
                    part = name if (low, high) == (0, size) else {"block": name, "offset": low, "nbytes": high - low}
                    _, reads, writes = uses.setdefault(use[0], (use, [], []))
                    (writes if wrote else reads).append(part)
        found += [(use[2], 1, (use, reads, writes)) for use, reads, writes in uses.values()]
        found += [(number, 2, (name, stream, front)) for name, (number, stream, front) in self.marks.items()]
        found.sort(key=lambda row: row[0])
        return self._in_order(found, _Waits(streams, uses))

    def _in_order(self, found: list[tuple[int, int, Any]], waits: "_Waits") -> list[tuple[int, Event]]:
        made: list[tuple[int, Event]] = []
        for number, sort, row in found:
            if sort == 0:
                made.append((number, row))
            elif sort == 1:
                (op, stream, _, words, before), reads, writes = row
                made += [(number, wait) for wait in waits.behind(stream, before)]
                made += [(number, one) for one in _again(words, reads, writes, waits.mark(op))]
            else:
                name, stream, before = row
                made += [(number, wait) for wait in waits.behind(stream, before)]
                made.append((number, {"event": "record", "mark": name, "stream": waits.streams[stream]}))
        for stream, before in self.before.items():
            made += [(-1, wait) for wait in waits.behind(stream, before)]
        for other, last in self.known.items():
            at = waits.last(other, last)
            if at is not None:
                made.append((-1, {"event": "done", "mark": waits.mark(at)}))
        return made


class _Waits:
    """Waits among ops that are carried."""

    def __init__(self, streams: list[Any], uses: Mapping[int, tuple[Use, list[Any], list[Any]]]) -> None:
        self.streams = streams
        self._ops: dict[int, list[int]] = {}
        self._seen: dict[tuple[int, int], int] = {}
        for op, (use, _, _) in sorted(uses.items()):
            self._ops.setdefault(use[1], []).append(op)

    def mark(self, op: int) -> str:
        """Return the name of the mark behind an op."""
        return f" behind op {op}"

    def last(self, stream: int, op: int) -> int | None:
        """Return the last op of a stream, up to this one, that is carried."""
        ops = self._ops.get(stream, [])
        at = bisect_right(ops, op)
        return ops[at - 1] if at else None

    def behind(self, stream: int, front: Front) -> list[Event]:
        """Return waits that put what a stream is given next behind a front."""
        made: list[Event] = []
        for other, op in front.items():
            at = self.last(other, op)
            if at is not None and at > self._seen.get((stream, other), -1):
                self._seen[stream, other] = at
                made.append({"event": "wait", "mark": self.mark(at), "stream": self.streams[stream]})
        return made


def _row(held: RecordedBlock) -> Row:
    if held.row is None:
        mine = held.whole, held.parts and held.parts.copy(), held.readers and held.readers.copy()
        held.row = held.number, held.name, held.size, held.alloc, held.free, tuple(held.told or ()), mine
    return held.row  # type: ignore[no-any-return]


def _uses(size: int, whole: Use | None, parts: Any, readers: Any) -> Iterator[tuple[Use, int, int, bool]]:
    """Yield the ops that still matter of a block, with the bytes, and whether they wrote them."""
    if whole is not None:
        yield whole, 0, size, True
    for (low, high), use in (parts or {}).items():
        yield use, low, high, True
    for (_, low, high), use in (readers or {}).items():
        yield use, low, high, False


def _again(words: tuple[Any, Any, Any], reads: list[Any], writes: list[Any], mark: str) -> tuple[Event, Event]:
    """Return a use with what still matters of it, and a mark behind it."""
    kind, name, stream = words
    use = {
        "event": "use", "kind": "moved" if kind == "same" else kind, "name": name,
        "stream": stream, "reads": reads, "writes": writes, "in_place": [],
    }  # fmt: skip
    return use, {"event": "record", "mark": mark, "stream": stream}


__all__ = ["Carried"]
