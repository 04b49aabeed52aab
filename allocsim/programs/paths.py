"""Programs with branches and loops as flat programs, one for each path of a set small enough to
judge and large enough to tell.

A fault of reuse needs three ops: one writes, one takes the bytes, one reads too late. A path shows
it if all three run in it. So the paths made here are such that every three ops that can run in one
path do so in one of them, with all that encloses them; and where other ops of some path write over
the writer's buffer before the reader, there is one path without those, where that can be.

    routine = Routine(
        name="step",
        definitions={"x": Definition("f32", (8,)), "a": ..., "b": ..., "p": ...},
        body=PathRegion((
            PathOp("host.write", (), ("x",)),
            PathChoice("cond", results=("p",), alternatives={
                "then": PathRegion((PathOp("exp", ("x",), ("a",)),), yields=("a",)),
                "else": PathRegion((PathOp("neg", ("x",), ("b",)),), yields=("b",)),
            }),
            PathOp("host.read", ("p",), ()),
        )),
    )
    programs = paths(routine)
    plans = [path_plan(program, {"x": 0, "a": 64, "b": 64, "p": 64}) for program in programs]

Convention. Each definition that is executed is a buffer, so a definition inside a loop is two:
loops run twice. The carries of a loop and the results of a choice are of kind `same`: all carries
of an iteration move at once. A definition whose `buffer` names another lies in that one's memory: a
view, or a mutation that the user wrote. What is made in an alternative or a loop is seen inside it
only; its `yields` are what comes out. `path` of each program names the choices taken, `meta.call`
of each op the branches and loops it stands in.

The set is a covering array of strength 3 over the choices, made row by row: each choice of a row
takes the alternative that leaves the most to be covered by chance alone, so each row covers no less
than a random one, and O(log n) rows are enough for n choices side by side (Bryce and Colbourn, "A
density-based greedy algorithm for higher strength covering arrays", 2009). Where there are many
combinations, drawn rows go first, as many as leave few for the greedy ones, which are O(log n) too.
O(regions^3 rows) in products of matrices, and O(rows x combinations left).

What this module does not see: how likely a path is, and which conditions exclude each other:
choices are taken as independent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from math import ceil, log
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import DEFAULT_ARENAS, VIEW, WIDTHS, Arena, Bools, Plan, Program, Role
from allocsim.model.layout import Int64s, dense_nbytes
from allocsim.programs.builder import Pair, ProgramBuilder, plan_of
from allocsim.programs.dtype_names import dtype_code

TIMES: Final = 2
"""Iterations of a loop: what one leaves to the next is seen in two."""

MAX_WISHES: Final = 1 << 28
"""Combinations of regions that are covered: a bound on time, some 580 choices of two in a row."""

FEW: Final = 1 << 14
"""Combinations that are left for greedy rows: beyond, rows are drawn first."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What a name of a routine stands for, each time it is executed."""

    dtype: str
    shape: tuple[int, ...]
    buffer: str | None = None
    """The definition in whose memory it lies; None: memory of its own."""
    offset: int = 0
    """Bytes from the start of that memory."""
    role: Role = Role.TEMPORARY


@dataclass(frozen=True, slots=True)
class PathOp:
    """An op, its operands and results by name."""

    kind: str
    operands: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    name: str | None = None
    in_place: tuple[Pair, ...] | None = ()


@dataclass(frozen=True, slots=True)
class PathRegion:
    """Items in order, and the names whose values come out of it."""

    items: tuple["PathOp | PathChoice | PathLoop", ...]
    yields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PathChoice:
    """One of several regions runs; its `yields` become the `results`."""

    name: str
    alternatives: Mapping[str, PathRegion]
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PathLoop:
    """A region runs again and again.

    `arguments` hold `initial` first, then what the iteration before yields; the last yields
    `results`.
    """

    name: str
    body: PathRegion
    initial: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Routine:
    """A program before a path through it is chosen."""

    name: str
    definitions: Mapping[str, Definition]
    body: PathRegion
    arenas: tuple[Arena, ...] = DEFAULT_ARENAS


Where = tuple[str, ...]
"""A region: the names of choices, alternatives and iterations that lead to it, outermost first."""

Region = tuple[tuple[int, int], ...]
"""A region by the (choice, alternative) that lead to it."""

Taken = Mapping[Where, str]
"""The alternative taken of each choice."""


@dataclass(frozen=True, slots=True)
class _Executed:
    """An op as it stands in a region, and the buffers it writes and reads (by definition and
    region).
    """

    region: Region
    writes: frozenset[tuple[Where, str]]
    reads: frozenset[tuple[Where, str]]


def paths(routine: Routine) -> tuple[Program, ...]:
    """Return a flat program for each path of a set that covers every three ops that can run
    together.

    Raises ModelError, with the choice, loop or op, for names that nothing defines or that are not
    seen where they are read, for results, arguments and yields that do not match, and beyond
    `MAX_WISHES` combinations.
    """
    choices = _choices(routine)
    found = (_flat(routine, taken) for taken in _taken(routine, choices))
    return tuple({program.path: program for program in found}.values())


def path_plan(program: Program, slots: Mapping[str, int | str | None], **keywords: Any) -> Plan:
    """Return a plan for one path from slots by definition, as a compiler has them: each execution
    of a definition lies in its slot.

    Slots are what `allocsim.plan_of` takes; a definition without one is left to its defaults.
    """
    found = {}
    for index in range(len(program.buffers)):
        meta = program.buffers.meta.get(index, {})
        if meta.get("definition") in slots:
            found[index] = slots[meta["definition"]]
    return plan_of(program, found, **keywords)


# which paths --------------------------------------------------------------------------------------


def _choices(routine: Routine) -> dict[Where, tuple[str, ...]]:
    """Return every choice there is once loops are unrolled, with its alternatives.

    Those that enclose others first.
    """
    found: dict[Where, tuple[str, ...]] = {}

    def visit(region: PathRegion, where: Where) -> None:
        for item in region.items:
            if isinstance(item, PathChoice):
                here = (*where, item.name)
                if here in found:
                    raise ModelError("/".join(here), "two choices in one region have this name")
                if not item.alternatives:
                    raise ModelError("/".join(here), "has no alternative")
                found[here] = tuple(item.alternatives)
                for name, alternative in item.alternatives.items():
                    visit(alternative, (*here, name))
            elif isinstance(item, PathLoop):
                for iteration in range(TIMES):
                    visit(item.body, (*where, f"{item.name}.{iteration}"))

    visit(routine.body, ())
    return found


def _taken(routine: Routine, choices: Mapping[Where, tuple[str, ...]]) -> Iterator[dict[Where, str]]:
    """Yield the alternatives of each path."""
    names = list(choices)
    counts = [len(choices[name]) for name in names]
    executed = _executed(routine, choices)
    regions = sorted({op.region for op in executed})
    drawn = _drawn(counts, len(regions) * (len(regions) + 1) * (len(regions) + 2) // 6)
    wishes = _wishes(executed, regions, counts, drawn)
    for row in (*drawn.tolist(), *(cover(counts, wishes) if wishes or not len(drawn) else ())):
        yield {name: choices[name][row[index]] for index, name in enumerate(names)}


def _drawn(counts: Sequence[int], total: int) -> Int64s:
    """Return rows drawn at random, as many as leave `FEW` of all combinations of three, were the
    choices side by side; none where there are no more.
    """
    if total > MAX_WISHES:
        raise ModelError("", f"there are {total} combinations of three regions; at most {MAX_WISHES} are supported")
    if total <= FEW:
        return np.empty((0, len(counts)), dtype=np.int64)
    missed = 1 - float(max(counts)) ** -3
    rows = ceil(log(FEW / total) / log(missed)) if missed else 1
    drawn: Int64s = np.random.default_rng(total).integers(0, counts, size=(rows, len(counts)))
    return drawn


def _executed(routine: Routine, choices: Mapping[Where, tuple[str, ...]]) -> list[_Executed]:
    """Return every op there is once loops are unrolled, whatever is chosen, in list order."""
    number = {where: index for index, where in enumerate(choices)}
    found: list[_Executed] = []

    def memory(name: str, seen: Mapping[str, Where]) -> tuple[Where, str]:
        base = _base(routine, name)
        return seen.get(base, ()), base

    def add(
        literals: tuple[tuple[int, int], ...], seen: Mapping[str, Where], reads: Sequence[str], writes: Sequence[str]
    ) -> None:
        found.append(
            _Executed(
                literals,
                frozenset(memory(name, seen) for name in writes),
                frozenset(memory(name, seen) for name in reads),
            )
        )

    def visit(
        region: PathRegion, where: Where, literals: tuple[tuple[int, int], ...], seen: dict[str, Where]
    ) -> dict[str, Where]:
        seen = dict(seen)
        for item in region.items:
            if isinstance(item, PathOp):
                seen |= dict.fromkeys(item.results, where)
                add(literals, seen, item.operands, () if item.kind == VIEW else item.results)
                continue
            outer = {**seen, **dict.fromkeys(item.results, where)}
            if isinstance(item, PathChoice):
                here = (*where, item.name)
                for alternative, (name, body) in enumerate(item.alternatives.items()):
                    inside = (*literals, (number[here], alternative))
                    left = visit(body, (*here, name), inside, seen)
                    add(inside, {**left, **outer}, body.yields, item.results)
            else:
                given: Sequence[str] = item.initial
                left = seen
                for iteration in range(TIMES):
                    here = (*where, f"{item.name}.{iteration}")
                    add(literals, left, given, ())
                    left = {**seen, **dict.fromkeys(item.arguments, here)}
                    add(literals, left, (), item.arguments)
                    left = visit(item.body, here, literals, left)
                    given = item.body.yields
                add(literals, {**left, **outer}, given, item.results)
            seen = outer
        return seen

    visit(routine.body, (), (), {})
    return found


Wishes = list[dict[int, int]]
"""What has to be in one path each: choice -> the alternatives allowed, as a mask."""


def _wishes(executed: Sequence[_Executed], regions: Sequence[Region], counts: Sequence[int], drawn: Int64s) -> Wishes:
    """Return what paths must cover beside some drawn: all that can run together of every three
    regions, and of writer, taker and reader without a rewrite.
    """
    found: set[frozenset[tuple[int, int]]] = set()
    for three in _uncovered(regions, drawn):
        wish = _together(three)
        if wish is not None:
            found.add(frozenset(wish.items()))
    for writer, reader, between in _rewritten(executed):
        for taker in regions:
            wish = _together((writer, taker, reader))
            avoided = None if wish is None else _avoided(wish, between, counts)
            if avoided is not None and not _met(avoided, drawn):
                found.add(frozenset(avoided.items()))
    return [dict(wish) for wish in sorted(found, key=sorted)]


def _uncovered(regions: Sequence[Region], drawn: Int64s) -> Iterator[tuple[Region, Region, Region]]:
    """Yield every three regions that run together in none of some rows."""
    if not len(drawn):
        yield from combinations_with_replacement(regions, 3)
        return
    runs = np.ones((len(drawn), len(regions)), dtype=np.float32)
    for index, region in enumerate(regions):
        for choice, alternative in region:
            runs[:, index] *= drawn[:, choice] == alternative
    apart = _exclude(regions)
    for first, region in enumerate(regions):
        with_first = runs[runs[:, first] > 0][:, first:]
        missed = ~apart[first:, first:] & (with_first.T @ with_first == 0)
        missed &= ~apart[first, first:, None] & ~apart[first, None, first:]
        for second, third in np.argwhere(np.triu(missed)).tolist():
            yield region, regions[first + second], regions[first + third]


def _exclude(regions: Sequence[Region]) -> Bools:
    """Return bool (regions, regions): which two take different alternatives of one choice."""
    taken: dict[int, dict[int, list[int]]] = {}
    for index, region in enumerate(regions):
        for choice, alternative in region:
            taken.setdefault(choice, {}).setdefault(alternative, []).append(index)
    found = np.zeros((len(regions), len(regions)), dtype=np.bool_)
    for alternatives in taken.values():
        for one, here in alternatives.items():
            for other, there in alternatives.items():
                if one != other:
                    found[np.ix_(here, there)] = True
    return found


def _met(wish: Mapping[int, int], drawn: Int64s) -> bool:
    """Whether one of some rows takes an allowed alternative of each choice."""
    fine = np.ones(len(drawn), dtype=np.bool_)
    for choice, mask in wish.items():
        fine &= np.array([mask >> alternative & 1 for alternative in drawn[:, choice].tolist()], dtype=np.bool_)
    return bool(fine.any())


def _together(regions: Sequence[Region]) -> dict[int, int] | None:
    """Return what is to be taken for all of some regions to run.

    The answer is None if they exclude each other.
    """
    wish: dict[int, int] = {}
    for region in regions:
        for choice, alternative in region:
            if wish.setdefault(choice, 1 << alternative) != 1 << alternative:
                return None
    return wish


def _avoided(wish: Mapping[int, int], killers: Sequence[Region], counts: Sequence[int]) -> dict[int, int] | None:
    """Return the wish without the regions that rewrite, each by the innermost choice that is still
    open; None where that cannot be.
    """
    found = dict(wish)
    for region in killers:
        for choice, alternative in reversed(region):
            left = found.get(choice, (1 << counts[choice]) - 1) & ~(1 << alternative)
            if left:
                found[choice] = left
                break
        else:
            return None
    return found


def _rewritten(executed: Sequence[_Executed]) -> Iterator[tuple[Any, Any, list[Any]]]:
    """Yield regions of a writer and a later reader of one buffer, and those between that write it
    too, if there are any.
    """
    writers: dict[Any, list[int]] = {}
    readers: dict[Any, list[int]] = {}
    for step, op in enumerate(executed):
        for buffer in op.writes:
            writers.setdefault(buffer, []).append(step)
        for buffer in op.reads:
            readers.setdefault(buffer, []).append(step)
    seen = set()
    for buffer, steps in writers.items():
        for first in steps:
            for last in readers.get(buffer, ()):
                between = tuple(sorted({executed[step].region for step in steps if first < step < last}))
                key = executed[first].region, executed[last].region, between
                if first < last and between and key not in seen:
                    seen.add(key)
                    yield executed[first].region, executed[last].region, list(between)


def cover(counts: Sequence[int], wishes: Wishes) -> list[list[int]]:
    """Return rows, an alternative of each choice, such that each wish is met by one: greedy by
    density.

    Args:
        counts: alternatives of each choice, at least one.
        wishes: choice -> allowed alternatives as a mask that is not empty.

    Each row meets at least as many of the wishes left as a random one does on average, so there are
    O(log(wishes)) rows for wishes of bounded size. O(rows x size of the wishes).
    """
    if not wishes:
        return [[0] * len(counts)]
    chosen = np.array([choice for wish in wishes for choice in wish], dtype=np.int64)
    masks = [mask for wish in wishes for mask in wish.values()]
    owner = np.repeat(np.arange(len(wishes)), [len(wish) for wish in wishes])
    allowed = np.array([mask.bit_count() for mask in masks], dtype=np.float64)
    chance = np.ones(len(wishes))
    np.multiply.at(chance, owner, allowed / np.array(counts, dtype=np.float64)[chosen])
    of_choice = [np.flatnonzero(chosen == choice) for choice in range(len(counts))]
    fits = [
        [np.array([masks[row] >> alternative & 1 for row in rows.tolist()], dtype=bool) for alternative in range(count)]
        for rows, count in zip(of_choice, counts, strict=True)
    ]
    left = np.ones(len(wishes), dtype=bool)
    found: list[list[int]] = []
    while left.any():
        weight = np.where(left, chance, 0.0)
        row = []
        for choice, rows in enumerate(of_choice):
            wish, certain = owner[rows], weight[owner[rows]] / allowed[rows]
            gains = [float(certain[fit].sum()) for fit in fits[choice]]
            row.append(int(np.argmax(gains)))
            fit = fits[choice][row[-1]]
            weight[wish[~fit]] = 0.0
            weight[wish[fit]] *= counts[choice] / allowed[rows[fit]]
        found.append(row)
        met = np.ones(len(wishes), dtype=bool)
        for choice, alternative in enumerate(found[-1]):
            met[owner[of_choice[choice]][~fits[choice][alternative]]] = False
        left &= ~met
    return found


# one path -----------------------------------------------------------------------------------------


def _base(routine: Routine, name: str) -> str:
    """Return the definition in whose memory a name lies."""
    seen = {name}
    while (base := _definition(routine, name).buffer) is not None:
        name = base
        if name in seen:
            raise ModelError(name, "lies in its own memory")
        seen.add(name)
    return name


def _definition(routine: Routine, name: str) -> Definition:
    if name not in routine.definitions:
        raise ModelError(name, "is not among the definitions")
    return routine.definitions[name]


@dataclass(slots=True)
class _Scope:
    """What is seen in a region: the value of each name, and the buffer of each that has one of its
    own.
    """

    values: dict[str, int] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)

    def inner(self) -> "_Scope":
        return _Scope(dict(self.values), dict(self.buffers))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an item stands."""

    where: Where = ()
    call: tuple[str, ...] = ()
    """As `where`, but one for all iterations of a loop."""
    turns: tuple[int, ...] = ()
    """The iterations of the loops around it."""

    @property
    def suffix(self) -> str:
        return "".join(f".{turn}" for turn in self.turns)


def _flat(routine: Routine, taken: Taken) -> Program:
    """Return the program of one path."""
    return _Flattening(routine, taken).program()


class _Flattening:
    """A path while its ops are written down."""

    def __init__(self, routine: Routine, taken: Taken) -> None:
        self.routine, self.taken = routine, taken
        self.said: list[str] = []
        self.given = _Scope()
        """What no op makes: the content of parameters and states."""
        self.made = _made(routine.body)
        self.builder = ProgramBuilder(routine.name, arenas=routine.arenas)

    def program(self) -> Program:
        """Return the flat program."""
        self.region(self.routine.body, _Place(), _Scope())
        return replace(self.builder.build(), path=", ".join(self.said))

    def region(self, region: PathRegion, place: _Place, scope: _Scope) -> list[int]:
        """Write a region down; return the values that come out."""
        for item in region.items:
            if isinstance(item, PathOp):
                self.op(item, place, scope)
            elif isinstance(item, PathChoice):
                self.choice(item, place, scope)
            else:
                self.loop(item, place, scope)
        return self.read(region.yields, scope, f"what comes out of {'/'.join(place.where) or self.routine.name}")

    def op(self, item: PathOp, place: _Place, scope: _Scope) -> None:
        label = (item.name or item.kind) + place.suffix
        operands = self.read(item.operands, scope, f"op {label!r}")
        results = [self.define(name, place, scope) for name in item.results]
        meta = {"call": list(place.call)} if place.call else None
        self.builder.op(item.kind, operands, results, name=label, in_place=item.in_place, meta=meta)

    def choice(self, item: PathChoice, place: _Place, scope: _Scope) -> None:
        here = (*place.where, item.name)
        taken = self.taken[here]
        self.said.append(f"{'/'.join(here)}={taken}")
        inside = _Place((*here, taken), (*place.call, item.name, taken), place.turns)
        left = self.region(item.alternatives[taken], inside, scope.inner())
        self.same(left, item.results, f"{item.name}{place.suffix}", place, scope)

    def loop(self, item: PathLoop, place: _Place, scope: _Scope) -> None:
        left = self.read(item.initial, scope, f"loop {item.name!r}")
        for iteration in range(TIMES):
            call = (*place.call, item.name)
            inside = _Place((*place.where, f"{item.name}.{iteration}"), call, (*place.turns, iteration))
            seen = scope.inner()
            self.same(left, item.arguments, f"{item.name}{inside.suffix}", inside, seen)
            left = self.region(item.body, inside, seen)
        self.same(left, item.results, f"{item.name}{place.suffix}", place, scope)

    def same(self, values: list[int], names: Sequence[str], label: str, place: _Place, scope: _Scope) -> None:
        """Hand values on under other names, all at once."""
        if len(values) != len(names):
            raise ModelError(label, f"{len(values)} values go to {len(names)} names")
        if not names:
            return
        results = [self.define(name, place, scope) for name in names]
        self.builder.same(values, results, name=label, meta={"call": list(place.call)} if place.call else None)

    def read(self, names: Sequence[str], scope: _Scope, reader: str) -> list[int]:
        """Return the values of names."""
        found = []
        for name in names:
            if name not in scope.values:
                if name in self.made:
                    raise ModelError(name, f"{reader} takes it where no op on this path has made it")
                if name not in self.given.values:
                    self.define(name, _Place(), self.given)
            found.append(scope.values.get(name, self.given.values.get(name, -1)))
        return found

    def define(self, name: str, place: _Place, scope: _Scope) -> int:
        """Add a value for a name, in memory of its own or in that of the definition it lies in."""
        definition, label = _definition(self.routine, name), name + place.suffix
        if definition.buffer is None:
            code = dtype_code(name, definition.dtype)
            nbytes = dense_nbytes(definition.shape, int(WIDTHS[code]))
            scope.buffers[name] = self.builder.buffer(label, nbytes, role=definition.role, meta={"definition": name})
        base = _base(self.routine, name)
        if base not in scope.buffers and base not in self.made and base not in self.given.buffers:
            self.define(base, _Place(), self.given)
        home = scope.buffers.get(base, self.given.buffers.get(base))
        if home is None:
            raise ModelError(name, f"lies in {base!r}, which no op on this path has made")
        scope.values[name] = self.builder.value(
            label, home, definition.dtype, definition.shape, offset=definition.offset
        )
        return scope.values[name]


def _made(region: PathRegion) -> set[str]:
    """Return every name that some op, choice or loop makes.

    Raise ModelError for one that is made twice in one region.
    """
    found: set[str] = set()
    for item in region.items:
        names = [*item.results, *(item.arguments if isinstance(item, PathLoop) else ())]
        inside = (
            item.alternatives.values()
            if isinstance(item, PathChoice)
            else [item.body]
            if isinstance(item, PathLoop)
            else []
        )
        twice = next((name for name in names if name in found), None)
        if twice is not None or len({*names}) != len(names):
            raise ModelError(twice or names[0], "is made twice in one region")
        found |= {*names}.union(*map(_made, inside))
    return found


__all__ = [
    "TIMES", "Definition", "PathChoice", "PathLoop", "PathOp", "PathRegion", "Routine", "cover", "path_plan", "paths",
]  # fmt: skip
