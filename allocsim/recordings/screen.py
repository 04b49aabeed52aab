"""A screen over a recording: at which events something may be wrong, and what later ones need to
know of earlier ones.

Events come one by one, in the plain words of `allocsim.programs.trace_events`. What the screen lets
pass is right: `tests/laws/test_recordings.py` holds that against the judge. What it stops at is
*suspect*, and the judge decides (`allocsim.recordings.by_window`). Suspect are

- a block that is given out over bytes which nobody gave back, or is given back twice,
- a use of a block that was given back, or of bytes that nobody wrote,
- an op that meets an earlier one in a byte, one of them writing, which nothing orders before it: in
  one block, or where the one's owner came after the other's (whatever either does there),
- an op that reads and writes, or writes twice, overlapping parts of one block.

For each block it keeps its last writer and last readers, by range; for each byte its last owner,
and earlier owners until the last one has written all its bytes behind them. So it grows with what
is live and with the holes between. The names of blocks that were given back are kept for the last
`GONE` of them.

Complexity: O(1) for a use of whole blocks and for a block that takes the place of another, O(log
blocks) and what a sorted list moves else. What this module does not see: whose fault it is, counts
and positions (`allocsim.recordings.book`).
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from allocsim.errors import ModelError
from allocsim.model import HOST_READ, HOST_WRITE
from allocsim.model.layout import LIMIT
from allocsim.programs.host_order import DeviceBytes, Front, HostOrder
from allocsim.programs.trace_events import Cells, key_of, number_of, shown
from allocsim.recordings.recorded_block import Ends, RecordedBlock, Use, all_before, covered

GONE: Final = 100_000
"""Blocks that were given back whose names are still known."""

STEP: Final = 1 << 20

SAID: Final = 10_000

MARKS: Final = 4096
"""Marks that are kept whatever they order: a stream that nobody met yet may wait for them."""

Part = tuple[RecordedBlock, int, int]
"""A block, and the bytes of it that an op reads or writes."""


class Screen:
    """What is out, what was, and in what order: while events come in."""

    def __init__(self) -> None:
        self.order = HostOrder()
        self.blocks: dict[Any, RecordedBlock] = {}
        """By name, those that are held."""
        self.gone: OrderedDict[Any, RecordedBlock] = OrderedDict()
        """By name, those that were given back."""
        self.late: dict[int, RecordedBlock] = {}
        """By number, those that an event of this window names though they were given back."""
        self.places: dict[Any, dict[int, tuple[int, RecordedBlock]]] = {}
        """By device and address: end and owner, the last one, of every byte that had any."""
        self.marks: dict[Any, tuple[int, int, Front]] = {}
        """By name: number of its event, stream, and what came before."""
        self.ops = 0
        self.events = 0
        """Number of the next event: that in the recording times `STEP`, and its place among the
        plain events which that one stands for.
        """
        self.suspects: list[int] = []
        """Numbers of suspect events."""
        self.forgotten = 0
        """Marks that were dropped, since all streams had passed them."""
        self.late_marks: list[int] = []
        """Numbers of events that name a mark which was dropped, or never recorded."""
        self._lows: dict[Any, list[int]] = {}
        self._said: dict[tuple[Any, Any, Any], tuple[Any, Any, Any]] = {}
        """Kind, name and stream of uses, each once; up to `SAID`."""
        self.words = {
            "alloc": self._alloc,
            "free": self._free,
            "use": self._use,
            "record": self._record,
            "wait": self._wait,
            "done": self._done,
            "synchronize": self._synchronize,
            "record_stream": self._record_stream,
            "returned": self._returned,
            "barrier": self._barrier,
        }
        """What takes in a plain event that order and memory hang on; other words are the
        allocator's own book. Raises ModelError for one that no trace can hold.
        """

    def block(self, name: Any) -> RecordedBlock:
        """Return a block by name. Raises ModelError for one that is not known."""
        found = self.blocks.get(name)
        if found is None and name in self.gone:
            found = self.gone[name]
            self.late[found.number] = found
        if found is None:
            near = get_close_matches(str(name), map(str, self.blocks), n=1)
            raise ModelError(
                "block", f"{shown(name)} was never given out{f'; did you mean {near[0]!r}?' if near else ''}"
            )
        return found

    # memory ---------------------------------------------------------------------------------------

    def _alloc(self, event: Mapping[str, Any]) -> None:
        name, low, nbytes = event["block"], event["address"], event["nbytes"]
        if not (type(low) is type(nbytes) is int and low >= 0 and nbytes >= 0 and low + nbytes < LIMIT):
            low, nbytes = number_of(event, "address"), number_of(event, "nbytes")
        if type(name) is not str:
            name = key_of(event, "block")
        if name in self.blocks:
            raise ModelError("block", f"{shown(name)} was given out already and not freed")
        self.gone.pop(name, None)
        if event.get("stream", 0) not in self.order.streams:
            self.order.stream(key_of(event, "stream", 0))
        held = RecordedBlock(name, low, nbytes, self.events, event)
        self.blocks[name] = held
        if not nbytes:
            return
        device = event.get("device", 0)
        if self.order.owes:
            self.order.given_out(DeviceBytes(device, low, held.high))
        places = self.places.get(device)
        if places is None:
            places = self.places[device] = {}
            self._lows[device] = []
        here = places.get(low)
        if here is not None and here[0] == held.high:
            owners = [here[1]]
        else:
            owners = self._cut(device, low, held.high)
            insort(self._lows[device], low)
        places[low] = held.high, held
        if owners:
            self._take_over(held, owners)

    def _take_over(self, held: RecordedBlock, owners: list[RecordedBlock]) -> None:
        behind: list[RecordedBlock] = []
        for owner in owners:
            if owner.free is None:
                self.suspects.append(self.events)
            if owner.whole is not None or owner.parts or owner.readers:
                behind.append(owner)  # its users came after those of earlier owners, or one of them was suspect
            else:
                behind += owner.behind or ()
        held.behind = list(dict.fromkeys(behind)) or None

    def _cut(self, device: Any, low: int, high: int) -> list[RecordedBlock]:
        """Take all pieces off `[low, high)`; return their owners."""
        lows, places, owners = self._lows[device], self.places[device], []
        at = bisect_left(lows, low)
        if at and places[lows[at - 1]][0] > low:
            at -= 1
        stop = bisect_left(lows, high)
        kept: list[int] = []
        for start in lows[at:stop]:
            end, owner = places.pop(start)
            owners.append(owner)
            if start < low:
                places[start] = low, owner
                kept.append(start)
            if end > high:
                places[high] = end, owner
                kept.append(high)
        lows[at:stop] = kept
        return owners

    def _free(self, event: Mapping[str, Any]) -> None:
        name = event["block"]
        held = self.blocks.pop(name, None)
        if held is None:
            held = self.block(name)
            self.suspects.append(self.events)
        held.free = held.free or (self.events, event)
        held.row = None
        self.gone[name] = held
        stream = self.order.stream(event.get("stream", held.alloc.get("stream", 0)))
        if held.told:
            recorded = {self.order.stream(told.get("stream", 0)) for _, told in held.told}
            memory = DeviceBytes(held.alloc.get("device", 0), held.low, held.high)
            self.order.freed(held.number, memory, recorded - {stream})
        if len(self.gone) > GONE:
            self.gone.popitem(last=False)

    def _record_stream(self, event: Mapping[str, Any]) -> None:
        held = self.block(event["block"])
        self.order.stream(event.get("stream", 0))
        held.told, held.row = [*(held.told or ()), (self.events, event)], None

    def _returned(self, event: Mapping[str, Any]) -> None:
        held = self.block(event["block"])
        if held.free is None:
            raise ModelError("block", f"{shown(event['block'])} was returned before it was freed")
        self.order.returned(held.number)
        held.told, held.row = [*(held.told or ()), (self.events, event)], None

    # order ----------------------------------------------------------------------------------------

    def _record(self, event: Mapping[str, Any]) -> None:
        mark, stream = key_of(event, "mark"), self.order.stream(event.get("stream", 0))
        self.order.record(mark, stream)
        self.marks.pop(mark, None)  # the newest stand last
        self.marks[mark] = self.events, stream, self.order.before(stream)

    def _wait(self, event: Mapping[str, Any]) -> None:
        self.order.wait(self._mark(event), self.order.stream(event.get("stream", 0)))

    def _done(self, event: Mapping[str, Any]) -> None:
        self.order.synchronize_mark(self._mark(event))

    def _mark(self, event: Mapping[str, Any]) -> Any:
        mark = event["mark"]
        if mark not in self.marks:
            if not self.forgotten:
                raise ModelError("mark", f"{shown(mark)} was never recorded")
            self.late_marks.append(self.events)
        return mark

    def _synchronize(self, event: Mapping[str, Any]) -> None:
        self.order.synchronize(*([self.order.stream(event["stream"])] if "stream" in event else ()))

    def _barrier(self, event: Mapping[str, Any]) -> None:
        streams = [self.order.stream(name) for name in event["actors"]]
        self.order.join(streams, streams)

    def forget(self) -> None:
        """Drop old marks that order nothing any more, since all streams come after them already;
        and words of uses, once they are many.
        """
        streams = list(self.order.streams.values())
        if len(self._said) > SAID:
            self._said.clear()
        old = list(self.marks)[: max(len(self.marks) - MARKS, 0)]
        for mark in [mark for mark in old if self._passed(self.order.marks[mark].all, streams)]:
            del self.marks[mark]
            self.order.forget(mark)
            self.forgotten += 1

    def _passed(self, front: Front, streams: list[int]) -> bool:
        known = self.order.known.all
        for other, op in front.items():
            if known.get(other, -1) >= op:
                continue
            if any(self.order.before(stream).get(other, -1) < op for stream in streams if stream != other):
                return False
        return True

    # uses -----------------------------------------------------------------------------------------

    def _use(self, event: Mapping[str, Any]) -> None:
        order, op = self.order, self.ops
        stream = order.streams.get(event.get("stream", 0))
        if stream is None:
            stream = order.stream(key_of(event, "stream", 0))
        self.ops = op + 1
        order.put(stream, op)
        before = order.before(stream)
        kind = event.get("kind", "use")
        words = (kind, event.get("name", kind), event.get("stream", 0))
        use = (op, stream, self.events, self._said.setdefault(words, words), before)
        reads, writes = event.get("reads"), event.get("writes")
        if (kind == HOST_WRITE and reads) or (kind == HOST_READ and writes):
            raise ModelError("kind", f"a {kind} has no {'reads' if reads else 'writes'}")
        right = True
        read = self._parts(reads, "reads") if reads else ()
        for held, low, high in read:
            right = self._read(held, low, high, use) and right
        written = self._parts(writes, "writes") if writes else ()
        for held, low, high in written:
            right = self._written(held, low, high, use) and right
        if not right or (written and len(read) + len(written) > 1 and _in_itself(read, written)):
            self.suspects.append(self.events)

    def _parts(self, parts: Iterable[Any], side: str) -> Sequence[Part]:
        blocks = self.blocks
        if type(parts) is list and len(parts) == 1 and type(only := parts[0]) is Cells:
            held = blocks.get(only.block)
            if held is not None:
                return ((held, only.low, only.high),)  # as most are
        found = list[Part]()
        for part in parts:
            held = blocks.get(part.block) if type(part) is Cells else None
            if held is not None:
                found.append((held, part.low, part.high))
            else:
                found.append(self._part(part, side))
        return found

    def _part(self, part: Any, side: str) -> Part:
        if type(part) is Cells:
            part = part.as_bytes()
        if type(part) is str:
            held = self.blocks.get(part)
            if held is not None:
                return held, 0, held.size
        elif type(part) is dict and type(name := part.get("block")) is str:
            held, low, nbytes = self.blocks.get(name), part.get("offset"), part.get("nbytes")
            if held is not None and type(low) is type(nbytes) is int and 0 <= low < LIMIT and 0 <= nbytes < LIMIT:
                return held, low, low + nbytes
        try:
            row = part if isinstance(part, Mapping) else {"block": part}
            held = self.block(key_of(row, "block"))
            low = number_of(row, "offset", 0)
            return held, low, low + number_of(row, "nbytes", max(held.size - low, 0))
        except ModelError as error:
            raise error.within(side) from None

    def _read(self, held: RecordedBlock, low: int, high: int, use: Use) -> bool:
        """Note a read; return whether it is right for sure."""
        stream, before = use[1], use[4]
        right = held.free is None and high <= held.size
        writer = held.whole
        if writer is not None:
            right = right and (writer[1] == stream or before.get(writer[1], -1) >= writer[0])
        elif not held.lasting and (not held.parts or (low, high) not in held.parts):
            right = right and covered(held.parts, low, high)
        if held.parts and held.only != stream:
            for (start, end), part in held.parts.items():
                if start < high and low < end and part[1] != stream and before.get(part[1], -1) < part[0]:
                    right = False
        if held.behind is not None and not all_before(held.behind, stream, before):
            right = False
        held.front = held.row = None
        if held.only != stream:
            held.only = stream if held.only == -1 else None
        held.readers[stream, low, high] = use
        return right

    def _written(self, held: RecordedBlock, low: int, high: int, use: Use) -> bool:
        """Note a write; return whether it is right for sure."""
        op, stream, _, _, before = use
        right = held.free is None and high <= held.size
        if held.only != stream and (held.readers or held.parts or held.whole is not None):
            for other in held.uses():
                if other[1] != stream and before.get(other[1], -1) < other[0] and other[0] != op:
                    right = False
        behind = held.behind
        if behind is not None and not all_before(behind, stream, before):
            right = False
        held.front = held.row = None
        if held.only != stream:
            held.only = stream if held.only == -1 else None
        if low == 0 and high == held.size:
            if right:
                held.behind = None  # who comes after this op comes after them
            held.whole, held.parts = use, None
            if held.readers:
                held.readers = {key: other for key, other in held.readers.items() if other[0] == op}
            return right
        parts = held.parts
        if parts is None:
            parts = held.parts = {}
            held.reach = 0
        elif low < held.reach and (low, high) not in parts:
            for ends in [ends for ends in parts if low <= ends[0] and ends[1] <= high]:
                del parts[ends]
        parts[low, high] = use
        held.reach = max(held.reach, high)
        return right


def _in_itself(reads: Sequence[Part], writes: Sequence[Part]) -> bool:
    """Return whether an op writes a byte twice, or part of what it reads in one block."""
    if len(writes) == 1:
        held, low, high = writes[0]
        for other, start, end in reads:
            if held is other and low < end and start < high and (low, high) != (start, end):
                return True
        return False
    spans: dict[int, list[Ends]] = {}
    for held, low, high in writes:
        known = spans.setdefault(id(held), [])
        if any(low < end and start < high for start, end in known):
            return True
        known.append((low, high))
    return any(
        low < end and start < high and (low, high) != (start, end)
        for held, low, high in reads
        for start, end in spans.get(id(held), ())
    )


__all__ = ["GONE", "STEP", "Screen"]
