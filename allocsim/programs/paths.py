"""Turns a program with branches and loops into flat programs, one for each path of a small set that
still shows every fault of reuse.

A fault of reuse needs three ops: one writes a buffer, one overwrites its bytes, one reads them too
late. A path shows the fault if all three run in it. So for every three ops that can run in one
path, some path of the set runs them and everything that encloses them. If other ops rewrite the
buffer between the writer and the reader, the set also has a path without these ops, if possible.

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

Convention. Each execution of a definition is a buffer, so a definition inside a loop is two
buffers, for loops run twice. `same` ops make the carries of a loop and the results of a choice: all
carries of an iteration move at once. A definition whose `buffer` names another definition lies in
its memory: it is a view, or a mutation that the user wrote. Names made in an alternative or a loop
are visible only inside it; only its `yields` come out. `path` of each program names the choices
taken, `meta.call` of each op the branches and loops it stands in.

The set is a covering array of strength 3 over the choices (`allocsim.programs.covering`): O(log n)
rows are enough for n independent choices. If there are many combinations, random rows come first
and leave few combinations to greedy rows. O(regions^3 rows) in products of matrices, and
O(rows x combinations left).

What this module does not see: the probability of a path, and conditions that exclude each other:
choices count as independent.
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
from allocsim.programs.covering import Wishes, cover, drawn_rows, triples
from allocsim.programs.flattening import flat
from allocsim.programs.routines import TIMES, PathChoice, PathLoop, PathOp, PathRegion, Routine, Where, base_of

Region = tuple[tuple[int, int], ...]
"""A region, as the (choice, alternative) pairs that lead to it."""


@dataclass(frozen=True, slots=True)
class _Executed:
    """An op with its region, and the buffers that it writes and reads, each as (region,
    definition).
    """

    region: Region
    writes: frozenset[tuple[Where, str]]
    reads: frozenset[tuple[Where, str]]


def paths(routine: Routine) -> tuple[Program, ...]:
    """Return a flat program for each path of a set that covers every three ops that can run
    together.

    Raises ModelError, with the choice, loop or op, for names that are not defined or not visible
    where they are read, for results, arguments and yields that do not match, and for more than
    `MAX_WISHES` combinations.
    """
    choices = _choices(routine)
    found = (flat(routine, taken) for taken in _taken(routine, choices))
    return tuple({program.path: program for program in found}.values())


def path_plan(program: Program, slots: Mapping[str, int | str | None], **keywords: Any) -> Plan:
    """Return a plan for one path from slots by definition, as a compiler has them: each execution
    of a definition lies in the definition's slot.

    A slot is one that `allocsim.plan_of` accepts, whose defaults hold for definitions without one.
    """
    found = {}
    for index in range(len(program.buffers)):
        meta = program.buffers.meta.get(index, {})
        if meta.get("definition") in slots:
            found[index] = slots[meta["definition"]]
    return plan_of(program, found, **keywords)


def _choices(routine: Routine) -> dict[Where, tuple[str, ...]]:
    """Return every choice after unrolling of loops, with its alternatives.

    A choice comes before the choices inside it.
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
    """Yield choice -> alternative for each path."""
    names = list(choices)
    counts = [len(choices[name]) for name in names]
    executed = _executed(routine, choices)
    regions = sorted({op.region for op in executed})
    drawn = drawn_rows(counts, triples(len(regions)))
    wishes = _wishes(executed, regions, counts, drawn)
    for row in (*drawn.tolist(), *(cover(counts, wishes) if wishes or not len(drawn) else ())):
        yield {name: choices[name][row[index]] for index, name in enumerate(names)}


def _executed(routine: Routine, choices: Mapping[Where, tuple[str, ...]]) -> list[_Executed]:
    """Return every op of all alternatives after unrolling of loops, in list order."""
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
    """Return the combinations that paths must cover beside the drawn rows: every three regions that
    can run together, and every writer, overwriter and reader without a rewrite between.
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
    """Yield every three regions that can run together, but do not in any drawn row."""
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
    """Return bool (regions, regions): whether two need different alternatives of one choice."""
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
    """Return whether some drawn row takes an allowed alternative of each choice of a wish."""
    fine = np.ones(len(drawn), dtype=np.bool_)
    for choice, mask in wish.items():
        fine &= np.array([mask >> alternative & 1 for alternative in drawn[:, choice].tolist()], dtype=np.bool_)
    return bool(fine.any())


def _together(regions: Sequence[Region]) -> dict[int, int] | None:
    """Return the wish with which all regions run: choice -> mask of alternatives.

    The answer is None if they exclude each other.
    """
    wish: dict[int, int] = {}
    for region in regions:
        for choice, alternative in region:
            if wish.setdefault(choice, 1 << alternative) != 1 << alternative:
                return None
    return wish


def _avoided(wish: Mapping[int, int], killers: Sequence[Region], counts: Sequence[int]) -> dict[int, int] | None:
    """Return the wish narrowed so that no region in `killers` runs; for each, the innermost choice
    that is still open excludes it. The answer is None if that is impossible.
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
    """Yield the regions of a writer and a later reader of one buffer, and of the ops between that
    write it, too, if there are any.
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
