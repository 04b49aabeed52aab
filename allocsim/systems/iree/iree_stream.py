"""IREE: the stream dialect before and after its pass `iree-stream-layout-slices`, as text.

Time: the commands of each `stream.cmd.execute` in order, after one `host.write` of what is filled
before, and before one `host.read` of what somebody may look at afterwards: all that it writes but
transient slices that are packed for its statements and that no other execute is given, and as it
was before, what it writes of an argument that the function returns. Commands in
a `stream.cmd.concurrent` run on streams of their own, and what follows waits for all of them.

What becomes of it. Each execute is a program. The text before the pass names a slice of an
allocation by a result of `stream.resource.pack`; a slice is a buffer, and what it is packed for
(`[first, last]`, closed, counted in statements of the execute) is the belief. The text after the
pass has numbers in the same places: the slots. Each allocation is an arena as large as it is. What
the execute is given from outside lies in memory of its own. A copy is a `same`; what a dispatch
binds as `rw` it changes in place, and it fills alone what nothing was written to before. Statements
that move no bytes (`flush`) are not counted: the pass that counts does not know them yet. Bytes
that a dispatch writes through one binding and may read through another are an operand of their own,
of which nobody knows whether that is safe: the text says which bytes are bound, not which are read
(`check --strict` accuses such a dispatch).

What this module does not see: what IREE laid into one slice before the pass (in-place updates,
copies that it left out), whether a dispatch writes all that it binds as `wo` (it is taken to), and
whether memory that several executes share is kept between them.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from allocsim.allowances import metered
from allocsim.errors import DocumentError, ModelError
from allocsim.formats.placing import APART, Placing, Slot
from allocsim.model import HOST_READ, HOST_WRITE, SAME, Arena, Document, Plan, Problem, Program, Role
from allocsim.systems.iree.iree_text import (
    UNKNOWN,
    PackedSlice,
    PassDump,
    Resource,
    StreamCommand,
    StreamExecute,
    StreamTouch,
    dumps,
    executes,
)

NO_BUFFER: Final = -1

Key = tuple[Resource, PackedSlice | None]
"""What is one buffer, in the text before the pass."""

PASSES: Final = "--mlir-print-ir-before=iree-stream-layout-slices --mlir-print-ir-after=iree-stream-layout-slices"


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a dump of IREE's stream dialect."""
    return re.search(rb"// -----// IR Dump (Before|After) \w+: iree-stream-|\bstream\.cmd\.execute\b", head) is not None


@metered
def loads(data: bytes, source: str = "dump") -> Document:
    """Return program, belief and plan of each execute that has memory of its own to lay out.

    Raise DocumentError with line and rule. O(size of the text).
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise DocumentError(source, "", "is not text in UTF-8") from None
    pairs = [(one, other) for one, other in pairwise(dumps(text)) if one.before and not other.before]
    if not pairs:
        raise DocumentError(source, "", f"no plan here: it takes what `iree-compile {PASSES}` prints")
    regions = [region for before, after in pairs for region in _regions(before, after, source) if region.arenas]
    if not regions:
        rule = "no plan here: no execute has memory that the pass laid out, or writes an argument that is returned"
        raise DocumentError(source, "", rule)
    try:
        arenas = tuple(arena for region in regions for arena in region.allocations())
    except ModelError as error:
        raise DocumentError(source, error.place, error.rule) from None
    lanes = max(command.lane for region in regions for command in region.commands) + 1
    streams, plans, first = [f"lane {lane}" for lane in range(lanes)], [], 0
    for region in regions:
        try:
            plans.append(region.plan(Placing(region.name, arenas, streams=streams), first))
        except ModelError as error:
            raise DocumentError(source, f"{region.name}, {error.place}", error.rule) from None
        first += len(region.arenas)
    return Document.of(*plans)


def _regions(before: PassDump, after: PassDump, source: str) -> Iterator["_Region"]:
    meant, laid = executes(before, source), executes(after, source)
    shapes = [[[len(row.touches) for row in one.commands] for one in side] for side in (meant, laid)]
    if before.function != after.function or shapes[0] != shapes[1]:
        raise DocumentError(source, f"line {after.first}", "the text after the pass is not of the function before it")
    uses = Counter(
        resource for one in meant for resource in {touch.resource for row in one.commands for touch in row.touches}
    )
    shared = {resource for resource, count in uses.items() if count > 1}
    for number, (execute, twin) in enumerate(zip(meant, laid, strict=True)):
        yield _Region(f"{before.function}, execute {number}", execute, twin, shared, source)


@dataclass(slots=True)
class _Part:
    """A buffer: what the texts say of it, and what it holds at this point of the program."""

    nbytes: int = 0
    slot: Slot = APART
    kept: bool = False
    """Whether anybody may look at it after the execute."""
    handed: bool = False
    """Whether it is filled before the execute."""
    returned: bool = False
    """Whether it is written here, and what it was filled with is a result of the function."""
    replaced: bool = False
    """Whether it is returned and written as a whole: another buffer takes its place."""
    over: int = NO_BUFFER
    """That buffer."""
    taken: int = -1
    """The op that writes that buffer first; what touches the part from then on, touches that."""
    index: int = -1
    now: list[tuple[int, int, int]] = field(default_factory=list)
    """First byte, end, value of each definition that is not written over."""
    steps: list[int] = field(default_factory=list)
    """Ops that touch it."""

    def write(self, low: int, high: int, value: int) -> None:
        """Write over a range; of what is there in part, the rest is no definition any more."""
        self.now = [row for row in self.now if row[1] <= low or high <= row[0]]
        self.now.append((low, high, value))

    def has_any(self, low: int, high: int) -> bool:
        """Return whether some byte of a range has a definition."""
        return any(begin < high and low < end for begin, end, _ in self.now)

    def holds(self, low: int, high: int) -> bool:
        """Return whether each byte of a range has a definition."""
        for begin, end, _ in sorted(self.now):
            low = end if begin <= low < end else low
        return low >= high


class _Region:
    """One execute, in both texts: first the buffers and their slots, then the program."""

    def __init__(
        self, name: str, execute: StreamExecute, twin: StreamExecute, shared: set[Resource], source: str
    ) -> None:
        self.name, self.commands, self.source = name, execute.commands, source
        self.parts: dict[Key, _Part] = defaultdict(_Part)
        self.arenas: dict[Resource, int] = {}
        """Allocation of the text after the pass -> its arena."""
        self.steps: dict[int, list[int]] = defaultdict(list)
        """Statement of the execute -> its ops."""
        for command, again in zip(execute.commands, twin.commands, strict=True):
            rows = sorted(zip(command.touches, again.touches, strict=True), key=lambda row: row[0].writes)
            for touch, place in rows:  # what is read is read before anything is written
                self._find(touch, place, again.line, shared=touch.resource in shared)
        for key, part in self.parts.items():
            part.returned = bool(part.now) and not key[0].line and key[0].name in execute.returned
            part.handed |= part.returned
            if part.returned:
                part.slot = self.arenas.setdefault(key[0], len(self.arenas)), 0
                part.replaced = all(row[:2] == (0, part.nbytes) for row in part.now)
            part.now.clear()

    def _find(self, touch: StreamTouch, place: StreamTouch, line: int, *, shared: bool) -> None:
        known, part = (touch.resource, touch.slice) in self.parts, self.parts[touch.resource, touch.slice]
        outside, high = not touch.resource.line, touch.low + touch.nbytes
        part.kept |= shared or touch.kind != "transient" or not touch.inside
        if touch.reads and (outside or shared or touch.slice is None):
            part.handed |= not part.holds(touch.low, high)
        if touch.writes:
            part.write(touch.low, high, 0)
        if outside:
            part.nbytes = max(part.nbytes, high)
            return
        part.nbytes = touch.resource.nbytes if touch.slice is None else touch.slice.nbytes
        if part.nbytes == UNKNOWN:
            raise DocumentError(
                self.source, f"line {line}", f"the size of {touch.resource.name} is known only at run time"
            )
        if not place.resource.line:
            raise DocumentError(self.source, f"line {line}", "memory that is allocated before the pass is not after it")
        slot = self.arenas.setdefault(place.resource, len(self.arenas)), place.low - touch.low
        if known and part.slot != slot:
            raise DocumentError(self.source, f"line {line}", "a slice lies elsewhere here than in the lines above")
        part.slot = slot

    def allocations(self) -> list[Arena]:
        """Return the arenas of the execute: its allocations, as large as they are."""
        return [
            Arena(name=f"{self.name}, {row.name}", alignment=1, capacity=None if row.nbytes == UNKNOWN else row.nbytes)
            for row in self.arenas
        ]

    def plan(self, growing: Placing, first: int) -> Plan:
        """Return program, belief and slots; `first` is the number of its first arena."""
        for key, part in self.parts.items():
            if part.slot != APART:
                part.slot = part.slot[0] + first, part.slot[1]
            role = Role.TEMPORARY if key[0].line else Role.INPUT
            part.index = growing.buffer(_name(key), part.nbytes, part.slot, role=role, alignment=1)
        for key, part in self.parts.items():
            if part.replaced:
                part.over = growing.buffer(f"{_name(key)} as written", part.nbytes, part.slot, alignment=1)
        handed = {key: part for key, part in self.parts.items() if part.handed}
        for key, part in handed.items():
            value = growing.value(_name(key), part.index, "u8", (part.nbytes,))
            part.steps.append(growing.builder.op(HOST_WRITE, (), (value,), name=f"given {_name(key)}"))
            part.write(0, part.nbytes, value)
        uploads = {part.now[0][2] for part in handed.values()}
        returned = [(key, part, part.now[0][2]) for key, part in handed.items() if part.returned]
        before: dict[int, int] = {0: len(handed) - 1} if handed else {}
        """Lane -> its last op in the statement before this one."""
        here: dict[int, int] = {}
        group = 0
        for command in self.commands:
            if command.group != group:
                before, here, group = here, {}, command.group
            waits = () if command.lane in here else [step for lane, step in before.items() if lane != command.lane]
            here[command.lane] = self._op(growing, command, waits)
            self.steps[group].append(here[command.lane])
        waits = [step for lane, step in here.items() if lane]
        for key, part in self.parts.items():
            for _, _, value in part.now if part.kept else ():
                if value not in uploads:
                    name = f"result {_name(key)}"
                    part.steps.append(growing.builder.op(HOST_READ, (value,), (), name=name, after=waits))
        for key, part, value in returned:
            name = f"returned as given {_name(key)}"
            part.steps.append(growing.builder.op(HOST_READ, (value,), (), name=name, after=waits))
        program = growing.builder.build()
        return growing.plan_for(program, "iree", problem=self._belief(program))

    def _op(self, growing: Placing, command: StreamCommand, waits: Iterable[int]) -> int:
        operands: list[int] = []
        results: list[int] = []
        pairs: list[tuple[int, int]] = []
        written: list[tuple[_Part, int, int, int]] = []
        began: list[_Part] = []
        doubtful = False
        for touch in command.touches:
            key = touch.resource, touch.slice
            part, low, high = self.parts[key], touch.low, touch.low + touch.nbytes
            ranges = _around(low, high, _written_elsewhere(command, touch)) if touch.reads else []
            if touch.writes and not part.has_any(low, high):
                ranges = []  # `rw` allows to read; where nothing is, the dispatch fills what it binds
            if ranges:
                pairs += [(len(operands), len(results))] if touch.writes else []
                doubtful |= ranges != [(low, high)]
                operands += (self._read(growing, key, *row) for row in ranges)
            if touch.writes:
                home = part.index if part.over == NO_BUFFER else part.over
                results.append(growing.value(_name(key), home, "u8", (high - low,), offset=low))
                began += [part] if home == part.over and part.taken < 0 else []
                written.append((part, low, high, results[-1]))
        kind = SAME if command.kind == "copy" else command.kind
        name = f"{command.kind}, line {command.line}"
        known = None if doubtful else pairs
        step = growing.builder.op(kind, operands, results, name=name, in_place=known, stream=command.lane, after=waits)
        for row in written:
            row[0].write(*row[1:])
        for part in began:
            part.taken = step
        for touch in command.touches:
            self.parts[touch.resource, touch.slice].steps.append(step)
        return step

    def _read(self, growing: Placing, key: Key, low: int, high: int) -> int:
        """Return the definition of a range, or a value for what lies there, of several or of
        none.
        """
        part = self.parts[key]
        held = (value for begin, end, value in part.now if (begin, end) == (low, high))
        found = next(held, None)
        if found is None:
            home = part.index if part.taken < 0 else part.over
            return growing.value(_name(key), home, "u8", (high - low,), offset=low)
        return found

    def _near(self, statement: int, side: Callable[[Iterable[int]], int]) -> list[int]:
        """Return the ops of a statement, or, where it has none, those of the next one that has: the
        one behind it for a life's begin (`min`), before it for its end.
        """
        if self.steps[statement]:
            return self.steps[statement]
        other = range(statement, max(self.steps) + 1) if side is min else range(statement, -1, -1)
        return next((self.steps[place] for place in other if self.steps[place]), [0])

    def _belief(self, program: Program) -> Problem:
        """Return what transient slices are packed for; of all others nothing is believed, so they
        have the lives that they have.

        Ops of one statement are in no order: the first or last of them that touches a slice counts.
        """
        lives = []
        for (_, row), part in self.parts.items():
            begin, end = min(part.steps), max(part.steps)
            if row is not None and not part.kept:
                if not row.first <= row.last <= max(self.steps, default=-1):
                    rule = f"{row.name} is packed for [{row.first}, {row.last}] of {len(self.steps)} statements"
                    raise ModelError(f"line {row.line}", rule)
                mine = set(part.steps)
                begin = min(mine & set(self.steps[row.first]) or self._near(row.first, min))
                end = max(mine & set(self.steps[row.last]) or self._near(row.last, max))
            lives.append((begin, end + 1))
        lives += [(part.taken, max(part.steps) + 1) for part in self.parts.values() if part.over != NO_BUFFER]
        start, stop = zip(*lives, strict=True)
        own = [part.index for part in self.parts.values() if part.slot == APART]
        if not (taken := [part for part in self.parts.values() if part.over != NO_BUFFER]):
            return Problem.of(program, start=start, stop=stop, own=own)
        pairs = [(part.index, part.over) for part in taken]
        return Problem.of(program, start=start, stop=stop, own=own, may_share=pairs)


def _written_elsewhere(command: StreamCommand, touch: StreamTouch) -> list[tuple[int, int]]:
    """Return the bytes of what one binding reads that a command writes through another one."""
    here = touch.resource, touch.slice
    others = [row for row in command.touches if row.writes and row is not touch and (row.resource, row.slice) == here]
    return sorted((row.low, row.low + row.nbytes) for row in others)


def _around(low: int, high: int, cuts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return a range, cut at the ends of others."""
    ends = sorted({low, high, *(min(max(end, low), high) for cut in cuts for end in cut)})
    return list(pairwise(ends)) or [(low, high)]


def _name(key: Key) -> str:
    resource, part = key
    return resource.name if part is None else part.name


__all__ = ["PASSES", "loads", "looks_like"]
