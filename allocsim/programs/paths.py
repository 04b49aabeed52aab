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

The set is a covering array of strength 3 over the choices (`allocsim.programs.covering`): O(log n)
rows are enough for n choices side by side. Where there are many combinations, drawn rows go first,
as many as leave few for the greedy ones. O(regions^3 rows) in products of matrices, and
O(rows x combinations left).

What this module does not see: how likely a path is, and which conditions exclude each other:
choices are taken as independent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import VIEW, Bools, Plan, Program
from allocsim.model.layout import Int64s
from allocsim.programs.builder import plan_of
from allocsim.programs.covering import Wishes, cover, drawn_rows
from allocsim.programs.flattening import flat
from allocsim.programs.routines import TIMES, PathChoice, PathLoop, PathOp, PathRegion, Routine, Where, base_of

Region = tuple[tuple[int, int], ...]
"""A region by the (choice, alternative) that lead to it."""


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
    found = (flat(routine, taken) for taken in _taken(routine, choices))
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
    drawn = drawn_rows(counts, len(regions) * (len(regions) + 1) * (len(regions) + 2) // 6)
    wishes = _wishes(executed, regions, counts, drawn)
    for row in (*drawn.tolist(), *(cover(counts, wishes) if wishes or not len(drawn) else ())):
        yield {name: choices[name][row[index]] for index, name in enumerate(names)}


def _executed(routine: Routine, choices: Mapping[Where, tuple[str, ...]]) -> list[_Executed]:
    """Return every op there is once loops are unrolled, whatever is chosen, in list order."""
    number = {where: index for index, where in enumerate(choices)}
    found: list[_Executed] = []

    def memory(name: str, seen: Mapping[str, Where]) -> tuple[Where, str]:
        base = base_of(routine, name)
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
