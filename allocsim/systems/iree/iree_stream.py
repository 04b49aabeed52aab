"""Read IREE's stream dialect before and after its pass `iree-stream-layout-slices`, as text.

Time: the commands of each `stream.cmd.execute` in order. Before the commands there is one
`host.write` of the memory that is filled before the execute. After the commands there is one
`host.read` of each result. The results are all bytes that the execute writes, except transient
slices that are packed for its own statements and used by no other execute. If the execute writes an
argument that the function returns, the host reads the argument's old content. Commands in a
`stream.cmd.concurrent` run on streams of their own; later commands wait for all of them.

Document. Each execute is one program. In the text before the pass, a result of
`stream.resource.pack` names a slice of an allocation. A slice is a buffer. The packed range of a
slice (`[first, last]`, closed, in statements of the execute) is the believed lifetime. The text
after the pass has offsets, the slots, where the text before has slices. An allocation is an arena
of the allocation's size. Memory from outside the execute is placed apart. A copy is an op of kind
`same`.
A dispatch changes a binding `rw` in place, or only writes the binding if nothing was written there
before. Statements that move no bytes (`flush`) are not counted, because they do not exist yet when
IREE counts statements. If a dispatch writes bytes through one binding and may read them through
another, the reader makes the result a new buffer at the bytes of the other. Whether this overlap is
safe is unknown, because the text has only the bound bytes, not the read bytes (`check --strict`
accuses the plan). Safety is also unknown for an argument that is written and returned. A number
known only at run time has a guessed value (`iree_text.Guess`), which the program's name states.

What this module does not see: other numbers than the guessed ones; later iterations of a loop;
buffers that IREE merged into one slice before the pass (in-place updates, elided copies); whether
memory that several executes share keeps its content between them. This module assumes that a
dispatch writes all bytes of a binding `wo`.
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
    GUESSES,
    UNKNOWN,
    Guess,
    ImpossibleError,
    PackedSlice,
    PassDump,
    Resource,
    StreamCommand,
    StreamExecute,
    StreamTouch,
    dumps,
    executes,
)

Key = tuple[Resource, PackedSlice | None]
"""The name of one buffer in the text before the pass: a resource and a slice of it, or None."""

PASSES: Final = "--mlir-print-ir-before=iree-stream-layout-slices --mlir-print-ir-after=iree-stream-layout-slices"


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a dump of IREE's stream dialect."""
    return re.search(rb"// -----// IR Dump (Before|After) \w+: iree-stream-|\bstream\.cmd\.execute\b", head) is not None


@metered
def loads(data: bytes, source: str = "dump") -> Document:
    """Return program, belief and plan of each execute that has an allocation with slices that IREE
    placed, or that writes an argument which is returned.

    Raise DocumentError with line and rule. O(size of the text).
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise DocumentError(source, "", "is not text in UTF-8") from None
    regions = [
        region for before, after in _pairs(text, source) for region in _guessed(before, after, source) if region.arenas
    ]
    if not regions:
        rule = "no plan here: no execute has memory that the pass placed, or writes an argument that is returned"
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


def _pairs(text: str, source: str) -> Iterator[tuple[PassDump, PassDump]]:
    """Yield (text before the pass, text after it) of each function; an initializer has the name "".

    The nth text of a name after the pass belongs to the nth text of that name before the pass.
    """
    sides: dict[str, tuple[list[PassDump], list[PassDump]]] = defaultdict(lambda: ([], []))
    for dump in dumps(text):
        sides[dump.function][not dump.before].append(dump)
    if not any(before and after for before, after in sides.values()):
        raise DocumentError(source, "", f"no plan here: give what `iree-compile {PASSES}` prints")
    for before, after in sides.values():
        if len(before) != len(after):
            line = (before + after)[-1].first
            raise DocumentError(source, f"line {line}", "a text before or after the pass is missing")
        yield from zip(before, after, strict=True)


def _guessed(before: PassDump, after: PassDump, source: str) -> list["_Region"]:
    """Return the executes of a function, with guesses for numbers known only at run time. If two
    guesses are possible and give different executes, both are returned.
    """
    found: dict[tuple[StreamExecute, StreamExecute], _Region] = {}
    possible = 0
    for guess in GUESSES:
        try:
            rows = list(_regions(before, after, guess, source))
        except ImpossibleError:
            continue
        possible += 1
        found |= {key: region for key, region in rows if key not in found}
        if possible == 2 or not any(key[0].given for key, _ in rows):
            return list(found.values())
    if possible:
        return list(found.values())
    rule = f"the text contradicts each guess, such as {GUESSES[0].size}, of the numbers known only at run time"
    raise DocumentError(source, f"line {before.first}", rule)


def _regions(
    before: PassDump, after: PassDump, guess: Guess, source: str
) -> Iterator[tuple[tuple[StreamExecute, StreamExecute], "_Region"]]:
    meant, laid = executes(before, source, guess), executes(after, source, guess)
    shapes = [[[len(row.touches) for row in one.commands] for one in side] for side in (meant, laid)]
    if shapes[0] != shapes[1]:
        raise DocumentError(source, f"line {after.first}", "the commands differ before and after the pass")
    uses = Counter(
        resource for one in meant for resource in {touch.resource for row in one.commands for touch in row.touches}
    )
    shared = {resource for resource, count in uses.items() if count > 1}
    for number, (execute, twin) in enumerate(zip(meant, laid, strict=True)):
        given = f" with {', '.join(sorted(execute.given))}" if execute.given else ""
        name = f"{before.function or 'initializer'}, execute {number}{given}"
        yield (execute, twin), _Region(name, execute, twin, shared, source)


@dataclass(slots=True, eq=False)
class _Piece:
    """A byte range of a part in which no overlaying result begins or ends: one buffer at a time."""

    low: int
    high: int
    homes: list[int] = field(default_factory=list)
    """The buffers of these bytes in order of time: each overlaying result is a new buffer."""
    taken: list[int] = field(default_factory=list)
    """For the second and each later buffer, the op that first wrote the buffer."""


@dataclass(slots=True)
class _Part:
    """A slice, or memory without slices: its layout, and its content at the current command."""

    nbytes: int = 0
    slot: Slot = APART
    kept: bool = False
    """Whether the part may be read after the execute."""
    handed: bool = False
    """Whether the part is filled before the execute."""
    returned: bool = False
    """Whether the execute writes the part although the function returns its old content."""
    cuts: set[int] = field(default_factory=set)
    """First bytes and ends of results over another buffer; the part is cut at these bytes."""
    pieces: list[_Piece] = field(default_factory=list)
    now: list[tuple[int, int, int]] = field(default_factory=list)
    """(first byte, end, value) of each definition that is not overwritten yet."""
    steps: list[int] = field(default_factory=list)
    """The ops that read or write the part."""

    def write(self, low: int, high: int, value: int) -> None:
        """Overwrite a range; every definition that overlaps the range is dropped as a whole."""
        self.now = [row for row in self.now if row[1] <= low or high <= row[0]]
        self.now.append((low, high, value))

    def has_any(self, low: int, high: int) -> bool:
        """Return whether at least one byte of a range has a definition."""
        return any(begin < high and low < end for begin, end, _ in self.now)

    def holds(self, low: int, high: int) -> bool:
        """Return whether each byte of a range has a definition."""
        for begin, end, _ in sorted(self.now):
            low = end if begin <= low < end else low
        return low >= high

    def within(self, low: int, high: int) -> Iterator[tuple[_Piece, int, int]]:
        """Yield (piece, first byte, end) for each piece that the range overlaps."""
        if len(self.pieces) == 1:  # yielded even if the range is empty or reaches outside
            yield self.pieces[0], low, high
            return
        for piece in self.pieces:
            if piece.low < high and low < piece.high:
                yield piece, max(low, piece.low), min(high, piece.high)


class _Region:
    """One execute in both texts: `__init__` finds buffers and slots, `plan` makes the program."""

    def __init__(
        self, name: str, execute: StreamExecute, twin: StreamExecute, shared: set[Resource], source: str
    ) -> None:
        self.name, self.commands, self.source = name, execute.commands, source
        self.parts: dict[Key, _Part] = defaultdict(_Part)
        self.arenas: dict[Resource, int] = {}
        """Allocation in the text after the pass -> number of its arena."""
        self.steps: dict[int, list[int]] = defaultdict(list)
        """Statement of the execute -> the ops of the statement."""
        self.touched: dict[int, list[int]] = defaultdict(list)
        """Buffer -> the ops that read or write the buffer."""
        for command, again in zip(execute.commands, twin.commands, strict=True):
            rows = sorted(zip(command.touches, again.touches, strict=True), key=lambda row: row[0].writes)
            for touch, place in rows:  # a command reads before it writes
                self._find(touch, place, again.line, shared=touch.resource in shared)
                self.parts[touch.resource, touch.slice].cuts |= _contested(command, touch)
        for key, part in self.parts.items():
            part.returned = bool(part.now) and not key[0].line and key[0].name in execute.returned
            part.handed |= part.returned
            if part.returned:
                part.slot = self.arenas.setdefault(key[0], len(self.arenas)), 0
                part.cuts |= {end for row in part.now for end in row[:2]}
            ends = sorted({0, part.nbytes, *(end for end in part.cuts if 0 < end < part.nbytes)})
            part.pieces = [_Piece(*row) for row in pairwise(ends)] or [_Piece(0, 0)]
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
            raise DocumentError(self.source, f"line {line}", "memory allocated before the pass is missing after it")
        slot = self.arenas.setdefault(place.resource, len(self.arenas)), place.low - touch.low
        if known and part.slot != slot:
            raise DocumentError(self.source, f"line {line}", "a slice has another offset here than in the lines above")
        part.slot = slot

    def allocations(self) -> list[Arena]:
        """Return an arena for each allocation of the execute, with the allocation's size."""
        return [
            Arena(name=f"{self.name}, {row.name}", alignment=1, capacity=None if row.nbytes == UNKNOWN else row.nbytes)
            for row in self.arenas
        ]

    def plan(self, growing: Placing, first: int) -> Plan:
        """Return plan, program and belief; `first` is the number of the execute's first arena."""
        for key, part in self.parts.items():
            if part.slot != APART:
                part.slot = part.slot[0] + first, part.slot[1]
            for piece in part.pieces:
                self._home(growing, key, piece, "", role=Role.TEMPORARY if key[0].line else Role.INPUT)
        handed = {key: part for key, part in self.parts.items() if part.handed}
        for key, part in handed.items():
            self._given(growing, key, part)
        uploads = {value for part in handed.values() for _, _, value in part.now}
        returned = [(key, [row[2] for row in part.now]) for key, part in handed.items() if part.returned]
        places = _places(self.commands)
        before: dict[int, int] = {0: len(handed) - 1} if handed else {}
        """Lane -> the lane's last op in the statement before the current statement."""
        here: dict[int, int] = {}
        group = 0
        for command in self.commands:
            if command.group != group:
                before, here, group = here, {}, command.group
            waits = () if command.lane in here else [step for lane, step in before.items() if lane != command.lane]
            here[command.lane] = self._op(growing, command, waits)
            self.steps[places[group]].append(here[command.lane])
        waits = [step for lane, step in here.items() if lane]
        for key, part in self.parts.items():
            for low, high, value in part.now if part.kept else ():
                if value not in uploads:
                    step = growing.builder.op(HOST_READ, (value,), (), name=f"result {_name(key)}", after=waits)
                    self._touch(step, key, [piece for piece, *_ in part.within(low, high)])
        for key, values in returned:
            step = growing.builder.op(HOST_READ, values, (), name=f"returned as given {_name(key)}", after=waits)
            self.parts[key].steps.append(step)
            for piece in self.parts[key].pieces:
                self.touched[piece.homes[0]].append(step)
        program = growing.builder.build()
        return growing.plan_for(program, "iree", problem=self._belief(program))

    def _given(self, growing: Placing, key: Key, part: _Part) -> None:
        """Add the host's write that fills a part before the first command."""
        rows = [(piece, low, high) for piece, low, high in part.within(0, part.nbytes)]
        values = [self._value(growing, key, *row) for row in rows]
        step = growing.builder.op(HOST_WRITE, (), values, name=f"given {_name(key)}")
        self._touch(step, key, [row[0] for row in rows])
        for (_, low, high), value in zip(rows, values, strict=True):
            part.write(low, high, value)

    def _home(self, growing: Placing, key: Key, piece: _Piece, suffix: str, **columns: Role) -> None:
        """Add a new buffer for a piece; later accesses of the piece use the new buffer."""
        part = self.parts[key]
        slot = APART if part.slot == APART else (part.slot[0], part.slot[1] + piece.low)
        name = _name(key) if len(part.pieces) == 1 else f"{_name(key)}, [{piece.low}, {piece.high})"
        piece.homes.append(growing.buffer(name + suffix, piece.high - piece.low, slot, alignment=1, **columns))

    def _touch(self, step: int, key: Key, pieces: Iterable[_Piece]) -> None:
        """Note that an op reads or writes the current buffers of these pieces."""
        self.parts[key].steps.append(step)
        for piece in pieces:
            self.touched[piece.homes[-1]].append(step)

    def _value(self, growing: Placing, key: Key, piece: _Piece, low: int, high: int) -> int:
        return growing.value(_name(key), piece.homes[-1], "u8", (high - low,), offset=low - piece.low)

    def _op(self, growing: Placing, command: StreamCommand, waits: Iterable[int]) -> int:
        operands: list[int] = []
        results: list[int] = []
        pairs: list[tuple[int, int]] = []
        written: list[tuple[_Part, int, int, int]] = []
        read: list[int] = []
        taken: list[_Piece] = []
        doubtful = False
        for touch in sorted(command.touches, key=lambda row: row.writes):  # a command reads before it writes
            key = touch.resource, touch.slice
            part, low, high = self.parts[key], touch.low, touch.low + touch.nbytes
            contested = bool(_contested(command, touch))
            # a binding `rw` permits a read; if nothing was written before, the dispatch only writes
            reads = touch.reads and (not touch.writes or part.has_any(low, high))
            doubtful |= reads and contested
            for piece, begin, end in part.within(low, high):
                if reads:
                    pairs += [(len(operands), len(results))] if touch.writes else []
                    operands.append(self._read(growing, key, piece, begin, end))
                    read.append(piece.homes[-1])
                if touch.writes:
                    if piece not in taken and (contested or (part.returned and len(piece.homes) == 1)):
                        self._home(growing, key, piece, " as written")
                        taken.append(piece)
                    results.append(self._value(growing, key, piece, begin, end))
                    written.append((part, begin, end, results[-1]))
        kind = SAME if command.kind == "copy" else command.kind
        name = f"{command.kind}, line {command.line}"
        known = None if doubtful else pairs
        step = growing.builder.op(kind, operands, results, name=name, in_place=known, stream=command.lane, after=waits)
        for row in written:
            row[0].write(*row[1:])
        for piece in taken:
            piece.taken.append(step)
        for home in read:
            self.touched[home].append(step)
        for touch in command.touches:
            part = self.parts[touch.resource, touch.slice]
            rows = part.within(touch.low, touch.low + touch.nbytes)
            self._touch(step, (touch.resource, touch.slice), [piece for piece, *_ in rows])
        return step

    def _read(self, growing: Placing, key: Key, piece: _Piece, low: int, high: int) -> int:
        """Return the value that defines exactly this range; add a new value if there is none."""
        held = (value for begin, end, value in self.parts[key].now if (begin, end) == (low, high))
        found = next(held, None)
        return self._value(growing, key, piece, low, high) if found is None else found

    def _near(self, statement: int, side: Callable[[Iterable[int]], int]) -> list[int]:
        """Return the ops of a statement, or else of the nearest statement with ops: a later one for
        the begin of a lifetime (`min`), an earlier one for the end.
        """
        near = [place for place in self.steps if (place >= statement if side is min else place <= statement)]
        return self.steps[side(near)] if near else [0]

    def _belief(self, program: Program) -> Problem:
        """Return the belief: transient slices live in their packed ranges, and any other buffer in
        its true lifetime.

        Ops of one statement are unordered. So a packed range begins with the first op that touches
        the slice in its first statement, and ends with the last such op in its last statement.
        """
        lives: dict[int, tuple[int, int]] = {}
        for (_, row), part in self.parts.items():
            packed = None
            if row is not None and not part.kept:
                if row.first > row.last:
                    raise ModelError(f"line {row.line}", f"{row.name} ends before it begins: [{row.first}, {row.last}]")
                mine = set(part.steps)
                begin = min(mine & set(self.steps.get(row.first, ())) or self._near(row.first, min))
                packed = begin, max(mine & set(self.steps.get(row.last, ())) or self._near(row.last, max))
            for piece in part.pieces:
                for place, home in enumerate(piece.homes):
                    steps = self.touched[home] or part.steps
                    begin, end = packed or (min(steps), max(steps))
                    begin = piece.taken[place - 1] if place else begin
                    end = piece.taken[place] if packed and place < len(piece.taken) else end
                    lives[home] = begin, end + 1
        start, stop = zip(*(lives[home] for home in sorted(lives)), strict=True)
        rows = [(part, piece) for part in self.parts.values() for piece in part.pieces]
        own = [home for part, piece in rows if part.slot == APART for home in piece.homes]
        pairs = [pair for _, piece in rows for pair in pairwise(piece.homes)]
        return Problem.of(program, start=start, stop=stop, own=own, **({"may_share": pairs} if pairs else {}))


def _places(commands: Iterable[StreamCommand]) -> dict[int, int]:
    """Return for each statement of an execute its number in packed ranges.

    IREE packs before it removes the statements that become no command, and the text does not say
    where the removed statements were. So a statement's number is raised as far as the packed ranges
    of its slices require. If the raised number is behind the end of such a range, no statement was
    removed, and no number is raised.
    """
    touched: dict[int, list[PackedSlice]] = defaultdict(list)
    for command in commands:
        touched[command.group] += [row.slice for row in command.touches if row.slice is not None and row.inside]
    places, shift = {}, 0
    for group, slices in touched.items():
        shift = max([shift, *(row.first - group for row in slices)])
        places[group] = group + shift
        if any(row.last < places[group] for row in slices):
            return {group: group for group in touched}
    return places


def _contested(command: StreamCommand, touch: StreamTouch) -> set[int]:
    """Return the bounds of both ranges if a dispatch reads bytes through one binding and writes
    overlapping bytes through another; otherwise the set is empty.
    """
    if command.kind == "copy":
        return set()
    mine, low, high = (touch.resource, touch.slice), touch.low, touch.low + touch.nbytes
    ends: set[int] = set()
    for row in command.touches:
        meets = row is not touch and (row.resource, row.slice) == mine and row.low < high and low < row.low + row.nbytes
        if meets and ((touch.writes and row.reads) or (touch.reads and row.writes)):
            ends |= {low, high, row.low, row.low + row.nbytes}
    return ends


def _name(key: Key) -> str:
    resource, part = key
    return resource.name if part is None else part.name


__all__ = ["PASSES", "loads", "looks_like"]
