"""The allocator's own book, compared with what was given out and used: counts of holders, cells of
pages, pools.

Told by `ref`, `unref`, `share`, `cell`, `evict`, `exhausted` and the parts of uses that name
positions (`allocsim.programs.trace_events`).

| found | when | class, fault |
|---|---|---|
| `counts` | the allocator says another number of holders than there are | C13, plan |
| `held` | a block is given back, and so may be given out again, while somebody holds it | C11, plan |
| `unheld` | a holder lets go of a block that nobody holds | C13, caller |
| `positions` | cells are read as positions that were not written there, and that the allocator never said they hold | C01, caller |
| `hit` | the allocator says that cells hold positions, and what they hold is other content, or was never written | C14, plan |
| `rewritten` | cells are read as positions that the allocator said they hold, and that somebody wrote over since | C03, plan |
| `inside` | a page lies beyond the pages that the pool has | C12, plan |
| `refused` | nothing is given out though the pool has as many pages as were asked for | C12, plan |

A block has one holder when it is given out. Each cell of a page holds what was written there last,
and for each sequence the position that it counts on there. What is written for a sequence ends what
other sequences counted on in these cells. `content` (a hash of the tokens, say) is what makes
positions of two sequences equal; where it is not told of both sides the allocator's word is taken,
and counted. A page of which a stream was recorded is out until it has come back (`returned`), or is
given out again.

O(sequences of a page and spans of its cells) an event. What this module does not see: order, and
who uses a block that has no positions.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from allocsim.programs.trace_events import Cells, PagePool, number_of
from allocsim.recordings.screen import STEP, Screen

BROKEN: Final[dict[str, tuple[str, str, str]]] = {
    "counts": ("C13", "plan", "count a holder at each share and each release of {block}"),
    "held": ("C11", "plan", "keep {block} until its last holder has let go"),
    "unheld": ("C13", "caller", "let go of {block} once for each time that it was taken"),
    "positions": ("C01", "caller", "write these positions before they are read, or read the page that has them"),
    "hit": ("C14", "plan", "say that {block} holds only what was written there, or compute these positions again"),
    "rewritten": ("C03", "plan", "copy {block} before one of its holders writes"),
    "inside": ("C12", "plan", "give out only the pages that the pool has"),
    "refused": ("C12", "plan", "take every page back that nobody holds"),
}
"""What is found -> its class, whose fault it is, and the cure."""


@dataclass(frozen=True, slots=True)
class BookFault:
    """One thing that the book contradicts."""

    kind: str
    event: int
    """Number of the event that shows it."""
    block: Any
    text: str


Spans = list[tuple[int, int, Any]]
"""Cells `[low, high)` and what is known of each of them; no two share a cell."""

KEPT: Final = 10_000
"""Pages of which none is dropped."""

NOTHING: Final = object()
"""What is known of a cell that is in no span."""


@dataclass(slots=True)
class _Page:
    holders: int
    content: Spans
    """What was written, by its `content`; None where that was not told."""
    positions: dict[Any, Spans]
    """Sequence -> the position that it counts on, less the number of the cell."""
    lost: dict[Any, int]
    """Sequence -> the event that wrote over what it counted on."""


class PageBook:
    """Counts, positions and pools while events come in; what it contradicts is in `found`."""

    def __init__(self, screen: Screen, pools: Mapping[Any, PagePool]) -> None:
        self.found: list[BookFault] = []
        self.assumed: Counter[str] = Counter()
        self._screen = screen
        self._pools = pools
        self._pages: dict[Any, _Page] = {}
        self._kept = KEPT
        """Pages that were known when some were last dropped."""
        self._out: Counter[Any] = Counter()
        """Device -> pages that are out."""
        self._coming: dict[tuple[Any, int], int] = {}
        """Device and address of a page that was freed and has not come back -> number of its
        block."""
        self.words = {
            "pool": self._begin,
            "ref": self._ref,
            "unref": self._unref,
            "share": self._share,
            "cell": self._cell,
            "evict": self._evict,
            "exhausted": self._exhausted,
            "returned": self._returned,
        }
        """What is asked before the screen sees an event; of uses only where anything is told of
        pages or counts.
        """

    def _begin(self, _event: Mapping[str, Any]) -> None:
        self.words.update(alloc=self._alloc, free=self._free, use=self._use)

    def _tell(self, kind: str, block: Any, text: str) -> None:
        self.found.append(BookFault(kind, self._screen.events // STEP, block, text))

    def _page(self, name: Any) -> _Page:
        if name not in self._screen.blocks:
            self._screen.block(name)  # or it is misuse
        if "use" not in self.words:
            self._begin({})
        found = self._pages.get(name)
        if found is None:
            found = self._pages[name] = _Page(1, [], {}, {})
        return found

    def _alloc(self, event: Mapping[str, Any]) -> None:
        device, name = event.get("device", 0), event["block"]
        self._pages.pop(name, None)
        pool = self._pools.get(device)
        if pool is None:
            return
        self._out[device] += self._coming.pop((device, event["address"]), None) is None
        page = event["address"] // pool.page
        if pool.pages is not None and page >= pool.pages:
            self._tell("inside", name, f"page {page} is given out; the pool has {pool.pages}")

    def _free(self, event: Mapping[str, Any]) -> None:
        name = event["block"]
        held = self._screen.blocks.get(name)
        if held is None:
            return
        device = held.alloc.get("device", 0)
        if device in self._pools:
            if held.told:
                self._coming[device, held.low] = held.number
            else:
                self._out[device] -= 1
        page = self._pages.get(name)
        if page is not None:
            if page.holders > 1:
                self._tell("held", name, f"{name} is given back while {page.holders} hold it")
            page.holders = 0

    def _returned(self, event: Mapping[str, Any]) -> None:
        held = self._screen.block(event["block"])
        place = held.alloc.get("device", 0), held.low
        if self._coming.get(place) == held.number:
            del self._coming[place]
            self._out[place[0]] -= 1

    def _ref(self, event: Mapping[str, Any]) -> None:
        page = self._page(event["block"])
        page.holders += 1
        self._compare(event, page)

    def _unref(self, event: Mapping[str, Any]) -> None:
        page = self._page(event["block"])
        if page.holders < 1:
            self._tell("unheld", event["block"], f"a holder of {event['block']} lets go, and nobody holds it")
        page.holders = max(page.holders - 1, 0)
        self._compare(event, page)

    def _compare(self, event: Mapping[str, Any], page: _Page) -> None:
        if "count" in event and number_of(event, "count") != page.holders:
            name = event["block"]
            self._tell("counts", name, f"{name} has {page.holders} holders; the allocator says {event['count']}")
            page.holders = event["count"]

    def _evict(self, event: Mapping[str, Any]) -> None:
        page = self._pages.get(event.get("block"))
        if page is not None:
            page.content = [(low, high, None) for low, high, _ in page.content]
            page.positions.clear()

    def _exhausted(self, event: Mapping[str, Any]) -> None:
        device = event.get("device", 0)
        pool = self._pools.get(device)
        if pool is None or pool.pages is None or "pages" not in event:
            self.assumed["pools that are said to be exhausted are"] += 1
            return
        left, asked = pool.pages - self._out[device], number_of(event, "pages")
        if asked <= left:
            self._tell("refused", None, f"{asked} pages are refused; {self._out[device]} of {pool.pages} are out")

    # positions ------------------------------------------------------------------------------------

    def _share(self, event: Mapping[str, Any]) -> None:
        self._page(event["block"]).holders += 1
        self._cell(event)

    def _cell(self, event: Mapping[str, Any]) -> None:
        """Take the allocator's word for what cells hold, as far as it can be."""
        name = event["block"]
        page = self._page(name)
        low, high = event["slot"], event["slot"] + event["count"]
        said = f"cells [{low}, {high}) of {name} hold positions from {event['position']} on of {event['sequence']}"
        content = _within(page.content, low, high)
        if NOTHING in content:
            self._tell("hit", name, f"the allocator says that {said}; not all of them were written")
        elif "content" not in event or None in content:
            self.assumed["cells hold what the allocator says, where no content was told"] += 1
        elif any(found != event["content"] for found in content):
            self._tell("hit", name, f"the allocator says that {said}; they hold other content")
        self._count_on(page, event["sequence"], low, high, event["position"] - low)

    def _use(self, event: Mapping[str, Any]) -> None:
        pages = self._pages
        for part in event.get("reads") or ():
            if type(part) is Cells:
                page = pages.get(part.block)
                known = page and page.positions.get(part.sequence)
                if known:
                    start, stop, at = known[-1]
                    if at == part.position - part.slot and start <= part.slot and part.stop <= stop:
                        continue  # as nearly all are
                self._read(part)
        for part in event.get("writes") or ():
            if type(part) is Cells:
                self._write(part)

    def _read(self, part: Cells) -> None:
        name, sequence, low, high = part.block, part.sequence, part.slot, part.stop
        page = self._pages.get(name) or self._page(name)
        base = part.position - low
        known = page.positions.get(sequence, [])
        if all(found == base for found in _within(known, low, high)):
            return
        what = f"positions [{part.position}, {base + high}) of {sequence} are read in {name}"
        if sequence in page.lost:
            self._tell("rewritten", name, f"{what}; event {page.lost[sequence]} wrote over them for another sequence")
        else:
            has = ", ".join(f"[{at + start}, {at + stop})" for start, stop, at in known)
            self._tell("positions", name, f"{what}; it has {has or 'none'} of them")
        self._count_on(page, sequence, low, high, base)  # told once

    def _count_on(self, page: _Page, sequence: Any, low: int, high: int, base: int) -> None:
        page.positions[sequence] = _put(page.positions.get(sequence, []), low, high, base)
        if page.lost:
            page.lost.pop(sequence, None)

    def _write(self, part: Cells) -> None:
        name, sequence, low, high = part.block, part.sequence, part.slot, part.stop
        page = self._pages.get(name) or self._page(name)
        base = part.position - low
        page.content = _put(page.content, low, high, part.content)
        mine = page.positions.get(sequence)
        if mine is None or len(page.positions) > 1:
            for other, spans in page.positions.items():
                if other != sequence and any(start < high and low < stop for start, stop, _ in spans):
                    page.positions[other] = _without(spans, low, high)
                    page.lost[other] = self._screen.events // STEP
            self._count_on(page, sequence, low, high, base)
        else:
            page.positions[sequence] = _put(mine, low, high, base)

    def forget(self) -> None:
        """Drop pages whose names are not known any more, once they may be half of all."""
        known = self._screen
        if len(self._pages) < 2 * self._kept:
            return
        for name in [name for name in self._pages if name not in known.blocks and name not in known.gone]:
            del self._pages[name]
        self._kept = max(len(self._pages), KEPT)


def _put(spans: Spans, low: int, high: int, what: Any) -> Spans:
    """Return spans in order with the cells `[low, high)` known as this; those given are used up."""
    if low == high:
        return spans
    if not spans or spans[-1][1] <= low:  # as sequences grow
        if spans and spans[-1][1] == low and spans[-1][2] == what:
            spans[-1] = spans[-1][0], high, what
        else:
            spans.append((low, high, what))
        return spans
    return _joined([*_without(spans, low, high), (low, high, what)])


def _without(spans: Spans, low: int, high: int) -> Spans:
    """Return spans without the cells `[low, high)`."""
    cut = [
        part for start, stop, what in spans for part in ((start, min(stop, low), what), (max(start, high), stop, what))
    ]
    return [part for part in cut if part[0] < part[1]]


def _joined(spans: Spans) -> Spans:
    """Return spans in order, those that touch and say the same as one."""
    made: Spans = []
    for start, stop, what in sorted(spans, key=lambda span: span[0]):
        if made and made[-1][1] == start and made[-1][2] == what:
            made[-1] = made[-1][0], stop, what
        else:
            made.append((start, stop, what))
    return made


def _within(spans: Spans, low: int, high: int) -> list[Any]:
    """Return what is known of the cells `[low, high)`, in order; `NOTHING` for a hole."""
    if len(spans) == 1 and spans[0][0] <= low and high <= spans[0][1] and low < high:
        return [spans[0][2]]
    found, at = list[Any](), low
    for start, stop, what in spans:
        if start < high and low < stop:
            found += [NOTHING] * (start > at) + [what]
            at = max(at, stop)
    return found + [NOTHING] * (at < high)


__all__ = ["BROKEN", "BookFault", "PageBook"]
