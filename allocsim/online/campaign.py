"""Fuzz an online allocator: draw sequences, drive it, make what is found small.

    found = campaign(Judge(make=find("package.module:make")), examples=10_000, seed=0)

Each sequence has a fresh target. At its end everything is freed, every stream has ended, and what a
fresh target gives must be given again (`returned`); one sequence in four is run again and again
on one target, which must not need more memory, or refuse more, each time (`returned`, too). By
choice: one in four is run on a second target whose answers must be the same (`deterministic`), and
`waste` bounds the highest address over the most bytes that were held at once.

The quick driver (`quick_driver`) runs a sequence first, and only what it suspects is judged. So a
target that answers otherwise each time may be suspected once and keep its promises then: that is
counted (`Result.moody`).

A finding is made small by leaving calls out (delta debugging, Zeller and Hildebrandt 2002) and by
smaller sizes. Every part of a sequence is a sequence, and the driver keeps the caller's promises in
each, so a smaller finding accuses nobody else.

Complexity: that of the calls. What this module does not see: processes. A target runs in this one
(`allocsim.online.own_process` has another for it).
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

from allocsim.errors import AllocsimError
from allocsim.online.driver import LARGEST, BrokenPromiseError, Call, Driver, of_the_target
from allocsim.online.held_memory import HANGS, Broken
from allocsim.online.protocol import Abilities, Make
from allocsim.online.quick_driver import CALLS, QuickDriver
from allocsim.online.sequences import Sequence, drawn

CHOICES: Final = ("deterministic",)
"""Promises that are held against a target by choice; `waste` is the other, with its bound."""

AGAIN: Final = 4
"""One sequence in so many is run again: for other answers, and for memory that grows each time."""

HUNG: Final = 4
"""Sequences that hang before a campaign is stopped: each takes its time."""

PASSES: Final = 4
"""A sequence is then run on one target as often as it has allocs, and so often more.

A cache that keeps blocks as it once cut them may need another one for a request that a smaller one
took the place of, but at most one for each alloc: what grows in every run leaks.
"""

AnyDriver = Driver | QuickDriver

HANDLES: Final = {"use": 2, "begin": 3}
"""Calls that take several handles, and where these stand."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sequence that shows a broken promise."""

    index: int
    sequence: Sequence
    broken: Broken
    died: bool = False
    """Whether the target's process hung or ended, so that it is not run again here."""

    @property
    def key(self) -> tuple[str, str]:
        """What findings of one cause have in common."""
        return self.broken.property, self.broken.cause


@dataclass(slots=True, kw_only=True)
class Result:
    """What a campaign found, by cause, and what it drew."""

    findings: list[Finding] = field(default_factory=list)
    sequences: int = 0
    calls: int = 0
    shapes: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    moody: int = 0
    """Sequences that the quick driver suspected, and that broke no promise when they ran again."""
    stopped: str = ""
    """Why it ended before it was done, if it did."""

    def tally(self, sequence: Sequence) -> None:
        """Count a sequence as drawn."""
        self.sequences += 1
        self.calls += len(sequence.calls)
        self.shapes[sequence.shape] += 1
        words = [call[0] for call in sequence.calls]
        if "thread" in words:
            words += [call[2][0] for call in sequence.calls if call[0] == "thread"]
        self.words.update(words)

    def add(self, other: "Result") -> None:
        """Count what another campaign drew; its findings are not taken over."""
        self.sequences += other.sequences
        self.calls += other.calls
        self.shapes.update(other.shapes)
        self.words.update(other.words)
        self.moody += other.moody
        self.stopped = self.stopped or other.stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What a sequence is held to: promises of `held_memory` and the driver, some by choice."""

    make: Make
    deterministic: bool = False
    waste: float | None = None
    quick: bool = True
    """Whether a campaign asks the quick driver first (`suspects`)."""
    fresh: dict[tuple[int | None, int], int | None] = field(default_factory=dict)
    """What a fresh target of a capacity and alignment gives at most, once it was asked."""

    def judge(self, sequence: Sequence, *, again: bool = True) -> Broken | None:
        """Run a sequence on a fresh target, or on several; return the promise that it breaks."""
        try:
            return self._judged(sequence, self.driver, again=again)
        except BrokenPromiseError as error:
            return error.broken

    def suspects(self, sequence: Sequence, *, again: bool = True) -> bool:
        """Return whether the quick driver holds it possible that `judge` finds something."""

        def driver(sequence: Sequence) -> QuickDriver:
            room, streams = sequence.capacity, sequence.streams
            return QuickDriver(self.make, capacity=room, alignment=sequence.alignment, streams=streams)

        try:
            return self._judged(sequence, driver, again=again) is not None
        except BaseException as error:  # whatever a target raises: the plain driver says
            if not of_the_target(error):
                raise
            return True

    def asks_quickly(self, sequence: Sequence, abilities: Abilities) -> bool:
        """Return whether `suspects` is to be asked first: not of a process's own memory, which no
        second run finds as it was.
        """
        return self.quick and not abilities.unbounded and CALLS.keys() >= {call[0] for call in sequence.calls}

    def _judged(self, sequence: Sequence, driver: Callable[[Sequence], AnyDriver], *, again: bool) -> Broken | None:
        first = driver(sequence)
        first.run(sequence.calls)
        first.finish(self.largest(sequence, first.abilities))
        first.close()
        return self._wasted(first) or (self._run_again(sequence, first, driver(sequence)) if again else None)

    def _wasted(self, driver: AnyDriver) -> Broken | None:
        book = driver.book
        if self.waste is None or driver.abilities.unbounded or book.top <= self.waste * book.most:
            return None
        sentence = f"addresses up to {book.top} for at most {book.most} bytes held at once; the bound is {self.waste}"
        return Broken("waste", "more waste than was asked for", sentence)

    def _run_again(self, sequence: Sequence, first: AnyDriver, driver: AnyDriver) -> Broken | None:
        need = run_once(driver, sequence)
        if self.deterministic and driver.answers != first.answers[: len(driver.answers)]:
            pairs = enumerate(zip(first.answers, driver.answers, strict=False))
            at, (one, other) = next((at, pair) for at, pair in pairs if pair[0] != pair[1])
            sentence = f"answer {at} was {one} and, asked the same again, {other}"
            return Broken("deterministic", "other answers to the same calls", sentence)
        if driver.abilities.unbounded:
            return None  # a process's memory grows for reasons of its own
        if sequence.capacity is not None and self.largest(sequence, driver.abilities) == sequence.capacity:
            return None  # nothing is lost where the whole memory comes back
        needs = [need]
        while len(needs) < passes(sequence):
            needs.append(run_once(driver, sequence))
            if not (needs[-2][0] < needs[-1][0] or needs[-2][1] < needs[-1][1]):
                return None
        sentence = f"the same calls, all freed at the end, reach {needs[0][0]}, {needs[1][0]}, ... {needs[-1][0]} bytes and are refused"
        counts = f"{needs[0][1]}, {needs[1][1]}, ... {needs[-1][1]} times"
        return Broken("returned", "memory that does not come back", f"{sentence} {counts}, run after run")

    def driver(self, sequence: Sequence, *, events: list[dict[str, Any]] | None = None) -> Driver:
        """Return a driver of a fresh target for a sequence."""
        return Driver(
            self.make,
            capacity=sequence.capacity,
            alignment=sequence.alignment,
            streams=sequence.streams,
            events=events,
        )

    def abilities(self) -> Abilities:
        """Return what the target can be asked. Raises AllocsimError for a target that is none."""
        try:
            return self.driver(Sequence(shape="", capacity=1 << 16, alignment=64, streams=1, calls=())).abilities
        except BrokenPromiseError as error:
            raise AllocsimError(f"the target cannot be made: {error.broken.sentence}") from None

    def largest(self, sequence: Sequence, abilities: Abilities) -> int | None:
        """Return the bytes that must come back at the end: the most that a fresh target gives,
        halved from its capacity down. None where nothing is promised.
        """
        if abilities.keeps or abilities.unbounded:
            return None
        key = sequence.capacity, sequence.alignment
        if key not in self.fresh:
            nbytes = sequence.capacity or LARGEST
            found = None
            while nbytes > (abilities.page or 1) and found is None:
                fresh = self.driver(sequence)
                try:
                    fresh.step(("alloc", 0, nbytes, sequence.alignment, 0))
                    found = nbytes if fresh.holds else None
                except BrokenPromiseError:  # to be met again where it is judged
                    found = nbytes
                nbytes //= 2
            self.fresh[key] = found
        return self.fresh[key]


def campaign(
    judge: Judge,
    *,
    examples: int | None,
    seed: int = 0,
    first: int = 0,
    seconds: float | None = None,
    shrink: bool = True,
    started: Callable[[int], None] | None = None,
    tell: Callable[[Finding], None] | None = None,
    found: Callable[[Finding], None] | None = None,
    seen: Collection[tuple[str, str]] = (),
) -> Result:
    """Draw, drive and judge `examples` sequences, or as many as fit into `seconds`.

    Args:
        judge: the target and what it is held to.
        examples: how many; None: until the time is over.
        seed: of all that is drawn.
        first: the number of the sequence to begin with.
        seconds: of wall time, at most.
        shrink: make each finding small.
        started: called with the number of each sequence before it runs.
        tell: called with the first finding of each cause, small.
        found: called with it before it is made small.
        seen: keys of findings that are known already.

    Returns one finding for each cause, in the order in which they came.
    Raises AllocsimError for a target that is none.
    """
    abilities = judge.abilities()
    result, known, hung = Result(), set(seen), 0
    end = None if seconds is None else time.monotonic() + seconds
    for index in count(first) if examples is None else range(first, examples):
        if end is not None and time.monotonic() > end:
            break
        if hung == HUNG:
            result.stopped = f"stopped before sequence {index}, after {HUNG} hung"
            break
        if started is not None:
            started(index)
        sequence = drawn(seed, index, abilities)
        result.tally(sequence)
        again = index % AGAIN == 0
        quick = judge.asks_quickly(sequence, abilities)
        if quick and not judge.suspects(sequence, again=again):
            continue
        broken = judge.judge(sequence, again=again)
        result.moody += quick and broken is None
        hung += broken is not None and broken.cause == HANGS
        if broken is None or (broken.property, broken.cause) in known:
            continue
        known.add((broken.property, broken.cause))
        finding = Finding(index, sequence, broken, died=broken.cause == HANGS)
        if found is not None:
            found(finding)
        finding = smallest(finding, judge) if shrink and not finding.died else finding
        result.findings.append(finding)
        if tell is not None:
            tell(finding)
    return result


def run_once(driver: AnyDriver, sequence: Sequence) -> tuple[int, int]:
    """Run a sequence and free all; return the highest address so far, and what was refused now."""
    seen = len(driver.answers)
    driver.run(sequence.calls)
    driver.finish()
    return driver.book.top, driver.answers[seen:].count(None)


def passes(sequence: Sequence) -> int:
    """Return how often a sequence is run on one target where memory may leak."""
    inner = (call[2] if call[0] == "thread" else call for call in sequence.calls)
    return PASSES + sum(call[0] in {"alloc", "realloc"} for call in inner)


def smallest(finding: Finding, judge: Judge) -> Finding:
    """Return the finding with calls left out, and sizes made small, that are not needed for it."""

    def again(calls: tuple[Call, ...]) -> Finding | None:
        sequence = replace(finding.sequence, calls=calls)
        broken = judge.judge(sequence)
        same = broken is not None and (broken.property, broken.cause) == finding.key
        return replace(finding, sequence=sequence, broken=broken) if same and broken is not None else None

    best = again(finding.sequence.calls)
    if best is None:  # a moody target: what was seen stands
        return finding
    width = max(len(best.sequence.calls) // 2, 1)
    while width:
        at, cut = 0, False
        while at < len(best.sequence.calls):
            calls = best.sequence.calls
            smaller = again(calls[:at] + calls[at + width :])
            if smaller is None:
                at += width
            else:
                best, cut = smaller, True
        width = width if cut and width == 1 else width // 2
    for at in range(len(best.sequence.calls)):
        for call in _smaller(best.sequence.calls[at]):
            calls = best.sequence.calls
            best = again((*calls[:at], call, *calls[at + 1 :])) or best
    return best


def _smaller(call: Call) -> Iterator[Call]:
    """Yield forms of a call that are easier to read."""
    if call[0] == "thread":
        yield call[2]
        yield from (("thread", 1, inner) for inner in _smaller(call[2]))
    if call[0] == "alloc":
        for nbytes in (64, 1024):
            if call[2] > nbytes:
                yield (*call[:2], nbytes, *call[3:])
    elif call[0] in HANDLES and len(call[HANDLES[call[0]]]) > 1:
        at = HANDLES[call[0]]
        for handle in call[at]:
            yield (*call[:at], (handle,), *call[at + 1 :])
