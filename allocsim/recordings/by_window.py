"""A recording, judged: in windows, with what is live carried over.

    judged = judge(events)                       # any number of events, one after the other
    for finding in judged.findings:
        print(finding.class_, finding.party, finding.text, finding.cure)

Each event passes a screen (`screen`) and the allocator's book (`book`). A window in which the
screen finds nothing is right and is dropped. One with suspects becomes a document: its events, and
in front of them what is still needed of all earlier ones (`carried`); S, H, the verdict and its
cures say what is wrong. A recording that fits into one window is judged as the document that
`allocsim trace -o` writes. What began in an earlier window is told once.

What nobody told is in `assumed`, with counts. A recording that breaks off is judged up to there.

Complexity: O(1) an event as `screen` has it, O(what is live) a window, and the judge for each
window with suspects, at most `WINDOWS` of them; the others are counted. What this module does not
see: files, and how events were recorded.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from allocsim.collector import paused
from allocsim.errors import DocumentError, ModelError
from allocsim.judge.fast import check
from allocsim.judge.violations import Violation
from allocsim.programs.allocator_trace import trace
from allocsim.programs.trace_events import Lowering, checked
from allocsim.recordings.book import BROKEN, BookFault, PageBook
from allocsim.recordings.carried import Carried
from allocsim.recordings.in_its_words import RecordedFault, RecordedNames, said
from allocsim.recordings.screen import STEP, Screen
from allocsim.verdict.causes import causes_of

WINDOW: Final = 20_000
"""Events of a window."""

WINDOWS: Final = 20
"""Windows with suspects that are judged."""


@dataclass(slots=True, kw_only=True)
class JudgedRecording:
    """What a recording says."""

    findings: list[RecordedFault] = field(default_factory=list)
    assumed: Counter[str] = field(default_factory=Counter)
    """What nobody told, and how often it was taken for granted."""
    events: int = 0
    ops: int = 0
    blocks: int = 0
    windows: int = 0
    judged: int = 0
    """Windows in which something was suspect, and that were judged."""
    unjudged: int = 0
    """Windows in which something was suspect, beyond `WINDOWS`."""


def judge(events: Iterable[Mapping[str, Any]], *, window: int = WINDOW, windows: int = WINDOWS) -> JudgedRecording:
    """Judge the events of a recording, in their order.

    Args:
        events: as `allocsim.programs.allocator_trace` has them.
        window: how many are looked at together.
        windows: how many of those with suspects become a document.

    Raises ModelError, at `events[i]`, for an event that no recording can hold.
    """
    with paused():  # a million small objects, none of them in a cycle once they are let go
        judging = _Judging(window, windows)
        try:
            return judging.judged(events)
        finally:
            judging.let_go()
            del judging


class _Judging:
    def __init__(self, window: int, windows: int) -> None:
        self.size, self.limit = window, windows
        self.screen = Screen()
        self.lowering = Lowering()
        self.book = PageBook(self.screen, self.lowering.pools)
        self.found = JudgedRecording()
        self._events: list[tuple[int, Mapping[str, Any]]] = []
        """Plain events of this window, with their numbers."""
        self._carried = Carried.of(self.screen)
        self._first = 0
        self._seen: set[tuple[Any, ...]] = set()

    def judged(self, events: Iterable[Mapping[str, Any]]) -> JudgedRecording:
        plain, screen, size = self.lowering.plain, self.screen, self.size
        words, book, kept = screen.words, self.book.words, self._events
        number = -1
        try:
            for number, event in enumerate(events):
                screen.events = number * STEP
                for one in plain(checked(event)):
                    word = one["event"]
                    if word in book:
                        book[word](one)
                    kept.append((screen.events, one))
                    if word in words:
                        words[word](one)
                    screen.events += 1
                if len(kept) >= size:
                    self._close()
        except DocumentError:  # of the file that gives the events, which has its own places
            raise
        except ModelError as error:
            raise error.within(f"events[{number}]") from None
        self._close()
        self.found.events = number + 1
        self.found.ops = screen.ops
        places = Counter((entry.kind, entry.block) for entry in self.book.found)
        for entry in self.book.found:
            self._tell_entry(entry, places[entry.kind, entry.block])
        self.found.findings.sort(key=lambda finding: finding.event)
        self._assume()
        return self.found

    def let_go(self) -> None:
        """Drop what holds itself, so that nothing is left for the collector."""
        for words in (self.screen.words, self.book.words, self.lowering.words):
            words.clear()

    def _assume(self) -> None:
        screen, assumed = self.screen, self.found.assumed
        assumed.update(self.book.assumed)
        assumed["uses that were recorded of a block had ended when its bytes were given out again"] += (
            screen.order.assumed
        )
        for text in [text for text, count in assumed.items() if not count]:
            del assumed[text]

    def _close(self) -> None:
        """End a window."""
        self.found.windows += bool(self._events)
        if self.screen.suspects:
            if self.found.judged < self.limit:
                self.found.judged += 1
                self._judge()
            else:
                self.found.unjudged += 1
            self.screen.suspects.clear()
        self.found.assumed["marks that are waited for, and no longer known, had passed"] += len(self.screen.late_marks)
        self.screen.late_marks.clear()
        self.screen.late.clear()
        self._events.clear()
        self._first = self.screen.events
        self.screen.forget()
        self.book.forget()
        self._carried = Carried.of(self.screen)

    def _judge(self) -> None:
        """Ask the judge about this window."""
        screen = self.screen
        carried = {row[0] for row in self._carried.rows}
        late = [held for number, held in screen.late.items() if number < self._first and number not in carried]
        before = self._carried.events(list(screen.order.streams), late)
        late_marks = set(screen.late_marks)
        mine = [row for row in self._events if row[0] not in late_marks and row[1]["event"] in screen.words]
        rows = [*before, *mine]
        document = trace((event for _, event in rows), name="recording")
        report = check(document, of_each_kind=True)
        if report.clean:
            return
        labels = RecordedNames.of(rows, len(before))
        for cause in causes_of(document, report):
            if not any(_is_new(violation, labels) for violation in cause.violations):
                continue
            finding = said(document, cause, labels)
            if finding.key not in self._seen:
                self._seen.add(finding.key)
                self.found.findings.append(finding)

    def _tell_entry(self, entry: BookFault, places: int) -> None:
        """Tell the first of what is alike, and how many there are."""
        class_, party, cure = BROKEN[entry.kind]
        if (key := (entry.kind, entry.block)) not in self._seen:
            self._seen.add(key)
            fault = RecordedFault(class_, party, entry.text, cure.format(block=entry.block), entry.event, key, places)
            self.found.findings.append(fault)


def _is_new(violation: Violation, names: RecordedNames) -> bool:
    """Return whether it takes an op or an event of the window itself."""
    if violation.more.event is not None:
        return violation.more.event >= names.old_events
    return violation.op is None or violation.op >= names.old_ops


__all__ = ["WINDOW", "WINDOWS", "JudgedRecording", "judge"]
