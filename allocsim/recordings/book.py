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

A block has one holder when it is given out. Positions of a page are a run for each sequence: they
begin at some cell and go on without a hole. What is written for a sequence ends what other
sequences counted on there. `content` (a hash of the tokens, say) is what makes positions of two
sequences equal; where it is not told of both sides the allocator's word is taken, and counted.

O(sequences of a page) an event. What this module does not see: order, and who uses a block that has
no positions.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from allocsim.programs.trace_events import PagePool, number_of
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


@dataclass(slots=True)
class _Run:
    """Cells `[low, high)` hold positions from `base + low` on of one sequence."""

    base: int
    low: int
    high: int
    said: bool
    """Whether it is the allocator who says so."""


@dataclass(slots=True)
class _Page:
    holders: int
    content: Any
    written: list[tuple[int, int]]
    """Cells that were written, merged."""
    runs: dict[Any, _Run]
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
        self._out: Counter[Any] = Counter()
        """Device -> pages that are out."""
        self.words = {
            "pool": self._begin,
            "ref": self._ref,
            "unref": self._unref,
            "share": self._share,
            "cell": self._cell,
            "evict": self._evict,
            "exhausted": self._exhausted,
        }
        """What is asked before the screen sees an event; of uses only where anything is told of
        pages or counts.
        """

    def _begin(self, _event: Mapping[str, Any]) -> None:
        self.words.update(alloc=self._alloc, free=self._free, use=self._use)

    def _tell(self, kind: str, block: Any, text: str) -> None:
        self.found.append(BookFault(kind, self._screen.events // STEP, block, text))

    def _page(self, name: Any) -> _Page:
        self._screen.block(name)  # or it is misuse
        if "use" not in self.words:
            self._begin({})
        return self._pages.setdefault(name, _Page(1, None, [], {}, {}))

    def _alloc(self, event: Mapping[str, Any]) -> None:
        device, name = event.get("device", 0), event["block"]
        self._pages.pop(name, None)
        pool = self._pools.get(device)
        if pool is None:
            return
        self._out[device] += 1
        page = event["address"] // pool.page
        if pool.pages is not None and page >= pool.pages:
            self._tell("inside", name, f"page {page} is given out; the pool has {pool.pages}")

    def _free(self, event: Mapping[str, Any]) -> None:
        name = event["block"]
        held = self._screen.blocks.get(name)
        if held is None:
            return
        self._out[held.alloc.get("device", 0)] -= 1
        page = self._pages.get(name)
        if page is not None:
            if page.holders > 1:
                self._tell("held", name, f"{name} is given back while {page.holders} hold it")
            page.holders = 0

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
            page.content = None
            page.runs.clear()

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
        if not any(start <= low and high <= stop for start, stop in page.written):
            self._tell("hit", name, f"the allocator says that {said}; not all of them were written")
        elif "content" not in event or page.content is None:
            self.assumed["cells hold what the allocator says, where no content was told"] += 1
        elif event["content"] != page.content:
            self._tell("hit", name, f"the allocator says that {said}; they hold other content")
        page.runs[event["sequence"]] = _Run(event["position"] - low, low, high, said=True)
        page.lost.pop(event["sequence"], None)

    def _use(self, event: Mapping[str, Any]) -> None:
        for part in event.get("reads", ()):
            if type(part) is dict and "position" in part:
                self._read(part)
        for part in event.get("writes", ()):
            if type(part) is dict and "position" in part:
                self._write(part)

    def _read(self, part: Mapping[str, Any]) -> None:
        name, sequence, low = part["block"], part["sequence"], part["slot"]
        page = self._page(name)
        high, base = low + part["count"], part["position"] - low
        run = page.runs.get(sequence)
        if run is not None and run.base == base and run.low <= low and high <= run.high:
            return
        what = f"positions [{part['position']}, {part['position'] + part['count']}) of {sequence} are read in {name}"
        if sequence in page.lost:
            self._tell("rewritten", name, f"{what}; event {page.lost[sequence]} wrote over them for another sequence")
        else:
            has = "none" if run is None else f"[{run.base + run.low}, {run.base + run.high})"
            self._tell("positions", name, f"{what}; it has {has} of them")
        page.runs[sequence] = _Run(base, low, high, said=True)  # told once
        page.lost.pop(sequence, None)

    def _write(self, part: Mapping[str, Any]) -> None:
        name, sequence, low = part["block"], part["sequence"], part["slot"]
        page = self._page(name)
        high, base = low + part["count"], part["position"] - low
        page.content = part.get("content", page.content)
        page.written = _merged(page.written, low, high)
        for other in [
            other for other, run in page.runs.items() if other != sequence and low < run.high and run.low < high
        ]:
            cut = page.runs[other]
            cut.high = min(cut.high, low) if cut.low < low else cut.low
            page.lost[other] = self._screen.events // STEP
            if cut.low >= cut.high:
                del page.runs[other]
        run = page.runs.get(sequence)
        page.lost.pop(sequence, None)
        if run is None or run.base != base or high < run.low or run.high < low:
            page.runs[sequence] = _Run(base, low, high, said=False)
        else:
            run.low, run.high = min(run.low, low), max(run.high, high)

    def forget(self) -> None:
        """Drop pages whose names are not known any more."""
        known = self._screen
        for name in [name for name in self._pages if name not in known.blocks and name not in known.gone]:
            del self._pages[name]


def _merged(spans: list[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
    """Return spans with one more, those that touch joined."""
    apart = [span for span in spans if span[1] < low or high < span[0]]
    met = [span for span in spans if not (span[1] < low or high < span[0])]
    return [*apart, (min([low, *(span[0] for span in met)]), max([high, *(span[1] for span in met)]))]


__all__ = ["BROKEN", "BookFault", "PageBook"]
