"""Read the text of IREE's stream dialect line by line, without running it: the dumps of a pass, and
the commands of the functions in the dumps.

    [PassDump(before=True, function="main", ...), ...] = dumps(text)
    [StreamExecute(line=12, commands=(StreamCommand(kind="fill", touches=(StreamTouch(...),)), ...)), ...] = executes(dump, source, guess)

The reader uses only the parts of a plan: index constants and arithmetic on them,
`stream.resource.alloca`, `.pack` and `.subview`, the commands inside of `stream.cmd.execute`, and
the arguments that a function returns unchanged. Numbers known only at run time (sizes of arguments,
loaded elements, counters of a loop) have the values of one `Guess`, the same before and after the
pass. A loop is read as in its first iteration. If an access before the pass ends after its
resource, no run has these numbers, and `ImpossibleError` is raised. A name has its latest
definition above the line, since the names of an ended region may be used again. Any other line is
skipped outside of an execute, and refused inside of an execute.

What this module does not see: a command's effect on memory (`allocsim.systems.iree.iree_stream`).
"""

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from allocsim.errors import DocumentError
from allocsim.model.layout import LIMIT

HEADER: Final = re.compile(r"// -----// IR Dump (Before|After) \S+: iree-stream-layout-slices")
FUNCTION: Final = re.compile(r"\s*util\.func .*?@([\w.$-]+)\(")
NAME: Final = r"(%[\w$.-]+(?:#\d+)?)"
DEFINED: Final = re.compile(r"\s*(%[\w$.-]+)(?::(\d{1,4}))?(?:, %[\w$.-]+(?::\d+)?)* = (\S+)")
CONSTANT: Final = re.compile(r".* = arith\.constant (-?\d{1,19}) : (?:index|i\d+)")
SUM: Final = re.compile(rf".* = arith\.addi {NAME}, {NAME}(?: overflow<\w+>)? : ")
ARITHMETIC: Final = re.compile(rf".* = (?:arith|util|index)\.(\w+) (?:(\w+), )?{NAME}(?:, {NAME})?(?:, {NAME})?")
INITIAL: Final = re.compile(rf"(%arg\d+) = {NAME}")
BLOCK_ARGUMENT: Final = re.compile(r"(%arg\d+):")
SLICE: Final = re.compile(rf"\s*\[(\d{{1,9}}), (\d{{1,9}})\] = {NAME}")
SUBVIEW: Final = re.compile(rf".* = stream\.resource\.subview {NAME}\[{NAME}\]")
IMPORT: Final = re.compile(rf".* = stream\.tensor\.import .*?{NAME} : ")
AWAIT: Final = re.compile(rf".* = stream\.timepoint\.await .* => ({NAME}(?:, {NAME})*) : ")
RETURN: Final = re.compile(r"\s*util\.return (.*) : ")
RESOURCE: Final = re.compile(rf"!stream\.resource<(?:\w+|\*)>\{{{NAME}\}}")
BOUND: Final = re.compile(rf"{NAME} as {NAME}: !stream\.resource<(\w+|\*)>\{{{NAME}\}}")
ACCESS: Final = re.compile(rf"\s*(ro|wo|rw) {NAME}\[{NAME} for {NAME}\]")
DISPATCH: Final = re.compile(r"stream\.cmd\.dispatch (?:\{[^}]*\} )?@([\w.$:@-]+)")
COPY: Final = re.compile(rf"stream\.cmd\.copy {NAME}\[{NAME}\], {NAME}\[{NAME}\], {NAME} :")
NUMBER: Final = re.compile(r"(?::|->) (?:index|i\d+)$")
FILL: Final = re.compile(rf"stream\.cmd\.fill \S+, {NAME}\[{NAME} for {NAME}\]")
MOST_TERMS: Final = 1000
"""The most terms of a sum, and the most offsets of nested subviews."""

UNKNOWN: Final = -1
"""Stands for a size that is not in the text."""

SKIPPED: Final = ("stream.cmd.flush", "stream.cmd.invalidate", "stream.cmd.discard")
"""Commands that move no bytes."""


ARITHMETIC_OF: Final[dict[str, Callable[..., int]]] = {
    "muli": operator.mul,
    "subi": operator.sub,
    "minui": min,
    "minsi": min,
    "maxui": max,
    "maxsi": max,
    "divui": lambda one, other: one // max(other, 1),
    "divsi": lambda one, other: one // max(other, 1),
    "ceildivui": lambda one, other: -(-one // max(other, 1)),
    "remui": lambda one, other: one % max(other, 1),
    "remsi": lambda one, other: one % max(other, 1),
    "align": lambda one, other: -(-one // max(other, 1)) * other,
    "andi": operator.and_,
    "index_cast": int,
    "index_castui": int,
    "extui": int,
    "extsi": int,
    "trunci": int,
    "select": lambda truth, one, other: one if truth else other,
    "cmpi eq": operator.eq,
    "cmpi ne": operator.ne,
    **{f"cmpi {sign}lt": operator.lt for sign in "su"},
    **{f"cmpi {sign}le": operator.le for sign in "su"},
    **{f"cmpi {sign}gt": operator.gt for sign in "su"},
    **{f"cmpi {sign}ge": operator.ge for sign in "su"},
}
"""MLIR's arithmetic ops as functions of integers; the integers are never negative, except those
passed to a `max`.
"""


class ImpossibleError(Exception):
    """A guess gives numbers that no run can have."""


@dataclass(frozen=True, slots=True)
class Guess:
    """Assumed values of numbers known only at run time; the nth size is `size + n * step`."""

    size: int
    step: int
    other: int
    """The value of a loaded element, and of any other number that is no size."""


GUESSES: Final = (Guess(37, 2, 1), Guess(40, 0, 0), Guess(6, 5, 10**6), Guess(7, 0, 10**6))
"""The guesses in the order of trial; in some all sizes differ, in others all sizes are equal."""


@dataclass(frozen=True, slots=True)
class PassDump:
    """The text of one function before or after the pass."""

    before: bool
    function: str
    first: int
    """Number of the first line in the file, from 1."""
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PackedSlice:
    """A row of a pack: a slice, and the first and the last statement that need the slice."""

    name: str
    line: int
    first: int
    last: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Resource:
    """Memory: an allocation, or a resource from outside of the function."""

    name: str
    line: int
    """The line that allocates the memory; 0 for a resource from outside."""
    nbytes: int = UNKNOWN
    """Size in bytes; `UNKNOWN` if a pack or the run decides it, or for a resource from outside."""


@dataclass(frozen=True, slots=True)
class StreamTouch:
    """A byte range that a command reads or writes."""

    reads: bool
    writes: bool
    kind: str
    """The kind of memory: `transient`, `external`, ..."""
    resource: Resource
    slice: PackedSlice | None
    inside: bool
    """Whether the command names the slice itself, so that the slice is packed for this execute."""
    low: int
    """The first byte, counted from the slice, or from the resource if there is no slice."""
    nbytes: int


@dataclass(frozen=True, slots=True)
class StreamCommand:
    """A dispatch, a copy or a fill."""

    line: int
    kind: str
    """`copy`, `fill`, or the name of the dispatched function."""
    touches: tuple[StreamTouch, ...]
    group: int
    """Number of the execute's statement to which the command belongs."""
    lane: int
    """Commands with the same statement and lane run in order; different lanes run concurrently."""


@dataclass(frozen=True, slots=True)
class StreamExecute:
    """The commands of a `stream.cmd.execute`."""

    line: int
    commands: tuple[StreamCommand, ...]
    given: frozenset[str] = frozenset()
    """The guesses from which the execute's numbers are computed."""
    returned: frozenset[str] = frozenset()
    """Names of the resources that are arguments and that the function returns unchanged."""


def dumps(text: str) -> Iterator[PassDump]:
    """Yield the texts before and after the pass that places slices, in the file's order."""
    lines = text.splitlines()
    heads = [(number, line) for number, line in enumerate(lines) if line.startswith("// -----// IR Dump")]
    for place, (number, line) in enumerate(heads):
        end = heads[place + 1][0] if place + 1 < len(heads) else len(lines)
        if (found := HEADER.match(line)) is None:
            continue
        body = tuple(lines[number + 1 : end])
        function = next((named[1] for named in map(FUNCTION.match, body) if named), "")
        yield PassDump(found[1] == "Before", function, number + 2, body)


def executes(dump: PassDump, source: str, guess: Guess) -> list[StreamExecute]:
    """Return the executes of a dump in order, with the numbers of a guess.

    O(lines). Raises DocumentError with line and rule, and ImpossibleError if no run can have these
    numbers.
    """
    reader = _Reader(dump, source, guess)
    found = list(reader.executes())
    return [replace(execute, returned=frozenset(reader.returned)) for execute in found]


class _Reader:
    """The state of reading a dump: its current line, and the definitions of names there."""

    def __init__(self, dump: PassDump, source: str, guess: Guess) -> None:
        self.rows = iter(enumerate(dump.lines, dump.first))
        self.line, self.source, self.guess, self.before = dump.first, source, guess, dump.before
        self.used: set[str] = set()
        """The guesses from which numbers of the current execute are computed."""
        self.numbers: dict[str, int] = {}
        self.since: dict[str, frozenset[str]] = {}
        """Name of a number -> the guesses from which the number is computed."""
        self.sizes = 0
        """How many sizes were guessed so far."""
        self.yielded: list[str] = []
        """The names that the condition of a loop passes to its body."""
        self.sums: dict[str, tuple[str, str]] = {}
        self.slices: dict[str, PackedSlice] = {}
        self.allocated: dict[str, Resource] = {}
        self.subviews: dict[str, tuple[str, str]] = {}
        self.bound: dict[str, tuple[str, str, str]] = {}
        """Name inside of an execute -> (name outside, kind of memory, name of the size)."""
        self.arguments: dict[str, str] = {}
        """Resource -> the name of the function's argument with the same memory."""
        self.returned: set[str] = set()
        """Resources that are arguments and that the function returns."""

    def _next(self) -> str:
        """Return the next line; raise DocumentError at the end of the text."""
        found = next(self.rows, None)
        if found is None:
            raise self._refused("the text ends inside a statement")
        self.line, row = found
        return row

    def _refused(self, rule: str) -> DocumentError:
        return DocumentError(self.source, f"line {self.line}", rule)

    def executes(self) -> Iterator[StreamExecute]:
        """Yield the executes, reading to the end of the dump."""
        for line, row in self.rows:
            self.line = line
            if "stream.cmd.execute" in row:
                self.bound = {inside: (outside, kind, size) for outside, inside, kind, size in BOUND.findall(row)}
                self.used = set()
                yield StreamExecute(self.line, tuple(self._commands()), frozenset(self.used))
            elif found := RETURN.match(row):
                self.returned = {name for name, given in self.arguments.items() if given in found[1].split(", ")}
            elif "scf.condition(" in row:
                self.yielded = re.findall(NAME, row)[1:]
            elif row.lstrip().startswith("^"):
                self._arguments(list(zip(BLOCK_ARGUMENT.findall(row), self.yielded, strict=False)))
            elif found := DEFINED.match(row):
                if found[3].startswith("scf."):
                    self._arguments(INITIAL.findall(row))
                self._define(found[1], int(found[2] or 0), found[3], row)

    def _forget(self, names: list[str]) -> None:
        tables = (self.numbers, self.since, self.sums, self.slices, self.allocated, self.subviews, self.arguments)
        for table in tables:
            for old in names:
                table.pop(old, None)

    def _arguments(self, pairs: list[tuple[str, str]]) -> None:
        """Define the arguments of a region by their values in the region's first iteration."""
        first = [(name, self._known([given])) for name, given in pairs]
        self._forget([name for name, _ in first])
        for name, known in first:
            self._learn(name, known)

    def _learn(self, name: str, known: tuple[list[int], frozenset[str]] | None) -> None:
        if known is not None:
            self.numbers[name], self.since[name] = known[0][0], known[1]

    def _known(self, names: list[str]) -> tuple[list[int], frozenset[str]] | None:
        """Return the numbers of names, and the guesses used; None if a name has no number."""
        try:
            terms = [self._terms(name) for name in names]
        except DocumentError:
            return None
        if any(term not in self.numbers for row in terms for term in row):
            return None
        since = frozenset[str]().union(*(self.since.get(term, ()) for row in terms for term in row))
        return [sum(self.numbers[term] for term in row) for row in terms], since

    def _computed(self, found: re.Match[str]) -> tuple[list[int], frozenset[str]] | None:
        """Return the 64-bit result of an arithmetic op, and the guesses used; None if unknown."""
        what = found[1] if found[2] is None else f"{found[1]} {found[2]}"
        known = self._known([name for name in found.groups()[2:] if name is not None])
        if known is None or what not in ARITHMETIC_OF:
            return None
        try:
            value = int(ARITHMETIC_OF[what](*known[0]))
        except TypeError:  # the line has another number of operands than the op takes
            return None
        return [(value + 2**63) % 2**64 - 2**63], known[1]

    def _guess(self, name: str, what: str) -> None:
        """Define a number known only at run time by its value in the guess."""
        size = what.startswith("hal.buffer_view.dim")
        self.sizes += size
        value = self.guess.size + self.sizes * self.guess.step if size else self.guess.other
        self.numbers[name], self.since[name] = value, frozenset({f"{name} = {value}"})

    def _define(self, name: str, count: int, what: str, row: str) -> None:
        names = [name] if not count else [f"{name}#{place}" for place in range(count)]
        found = ARITHMETIC.match(row)
        value = self._computed(found) if found else None
        self._forget(names)
        if what == "stream.resource.pack":
            self._pack(name)
        elif what == "stream.resource.alloca":
            for each, size in zip(names, RESOURCE.findall(row), strict=False):
                terms = self._terms(size)
                known = all(term in self.numbers for term in terms)
                self.allocated[each] = Resource(each, self.line, self._sum(size) if known else UNKNOWN)
        elif found := CONSTANT.match(row):
            self.numbers[name] = int(found[1])
        elif (found := SUM.match(row)) and name not in found.groups():
            self.sums[name] = (found[1], found[2])
        elif found := IMPORT.match(row):
            self.arguments[name] = found[1]
        elif found := AWAIT.match(row):
            held = zip(names, found[1].split(", "), strict=False)
            self.arguments |= {each: self.arguments[old] for each, old in held if old in self.arguments}
        elif found := SUBVIEW.match(row):
            self.subviews[name] = (found[1], found[2])
        elif value is not None:
            self._learn(name, value)
        elif not count and what not in {"arith.constant", "arith.addi"} and NUMBER.search(row):
            self._guess(name, what)

    def _pack(self, name: str) -> None:
        place = 0
        while "})" not in (row := self._next()):
            if found := SLICE.match(row):
                place += 1
                each = f"{name}#{place}"
                self.slices[each] = PackedSlice(each, self.line, int(found[1]), int(found[2]), self._sum(found[3]))

    def _number(self, name: str) -> int:
        if name not in self.numbers:
            raise self._refused(f"{name} is known only at run time")
        since = self.since.get(name, frozenset())
        if not 0 <= self.numbers[name] <= LIMIT:
            if since:
                raise ImpossibleError
            raise self._refused(f"{name} is {self.numbers[name]}; 0 to {LIMIT} are supported")
        self.used |= since
        return self.numbers[name]

    def _terms(self, name: str) -> list[str]:
        """Return the names of all terms of a sum, which may be nested."""
        terms, found = [name], []
        while terms:
            term = terms.pop()
            if term not in self.sums:
                found.append(term)
                continue
            terms += self.sums[term]
            if len(terms) + len(found) > MOST_TERMS:
                raise self._refused(f"{name} is a sum of more than {MOST_TERMS} terms, or of itself")
        return found

    def _sum(self, name: str) -> int:
        """Return the value of a constant, or of a sum of constants."""
        return sum(self._number(term) for term in self._terms(name))

    def _touch(self, access: str, resource: str, offset: str, nbytes: str) -> StreamTouch:
        if resource not in self.bound:
            raise self._refused(f"{resource} is not a resource that is passed to the execute")
        here, kind, size = self.bound[resource]
        within = self._known([size, offset, nbytes]) if self.before else None
        if within is not None and within[1] and within[0][1] + within[0][2] > within[0][0]:
            raise ImpossibleError
        terms = self._terms(offset)
        inside = any(term in self.slices for term in terms)
        while here in self.subviews:
            here, shift = self.subviews[here]
            terms += self._terms(shift)
            if len(terms) > MOST_TERMS:
                raise self._refused(f"{resource} is a subview with more than {MOST_TERMS} offsets, or of itself")
        slices = [self.slices[term] for term in terms if term in self.slices]
        if len(slices) > 1:
            raise self._refused(f"{resource} is a slice of a slice, which is not supported")
        low = sum(self._number(term) for term in terms if term not in self.slices)
        of = self.allocated.get(here, Resource(here, 0))
        return StreamTouch(
            "r" in access, "w" in access, kind, of, next(iter(slices), None), inside, low, self._sum(nbytes)
        )

    def _commands(self) -> Iterator[StreamCommand]:
        blocks: list[str] = []
        group = lane = -1
        while True:
            text = self._next().strip()
            if text.startswith("}"):
                if not blocks:
                    return
                blocks.pop()
                continue
            if not text or text.startswith("//"):
                continue
            if text.startswith(SKIPPED):
                continue
            if not blocks:
                group, lane = group + 1, -1
            if text.startswith(("stream.cmd.concurrent", "stream.cmd.serial")):
                block = text.split()[0].removeprefix("stream.cmd.")
                if block in blocks or blocks == ["serial"]:
                    raise self._refused(f"a {block} block inside a {blocks[-1]} block is not supported")
                lane += bool(blocks)
                blocks.append(block)
                continue
            lane += blocks[-1:] != ["serial"] or lane < 0
            yield self._command(text, group, lane)

    def _command(self, text: str, group: int, lane: int) -> StreamCommand:
        line = self.line
        if found := COPY.match(text):
            touches = [self._touch("r", *found.group(1, 2, 5)), self._touch("w", *found.group(3, 4, 5))]
            return StreamCommand(line, "copy", tuple(touches), group, lane)
        if found := FILL.match(text):
            return StreamCommand(line, "fill", (self._touch("w", *found.group(1, 2, 3)),), group, lane)
        if (found := DISPATCH.match(text)) is None:
            raise self._refused(f"{text.partition(' ')[0]!r} is not a supported command")
        touches = []
        while not (row := self._next()).strip().startswith("}"):
            if (access := ACCESS.match(row)) is None:
                raise self._refused("is not a supported access of a dispatch")
            touches.append(self._touch(*access.group(1, 2, 3, 4)))
        return StreamCommand(line, found[1].rpartition(":")[2].removeprefix("@"), tuple(touches), group, lane)
