"""Chooses *ways* through nested choices, a few such that every three regions that can run in one
way run together in some chosen one.

    for taken in ways({("if",): ("then", "else"), ("if", "then", "inner"): ("then", "else")}):
        print(taken[("if",)])

A choice is named by the choices and alternatives that lead to it, outermost first, and by its own
name last: `(..., choice, alternative, ..., choice)`; names of loops and iterations may stand
between them. A region is an alternative of a choice, or everything outside all choices. The ways
are a covering array of strength 3 over the regions (`allocsim.programs.paths` says why three), made
by the same greedy cover. Importers use it if their source is no tree of definitions, so that they
make the program of each way themselves.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations_with_replacement

from allocsim.programs.covering import cover, triples
from allocsim.programs.routines import Where


def ways(choices: Mapping[Where, tuple[str, ...]]) -> Iterator[dict[Where, str]]:
    """Yield choice -> alternative taken for each way; one empty way if there are no choices.

    Raises ModelError for more than `MAX_WISHES` combinations of regions. O(ways x triples of
    regions).
    """
    names = list(choices)
    regions = [{}, *(_literals(where, name, choices) for where in names for name in choices[where])]
    triples(len(regions))
    found: set[frozenset[tuple[int, int]]] = set()
    number = {where: index for index, where in enumerate(names)}
    for three in combinations_with_replacement(regions, 3):
        wish: dict[Where, str] = {}
        if all(wish.setdefault(where, name) == name for region in three for where, name in region.items()):
            found.add(frozenset((number[w], 1 << choices[w].index(name)) for w, name in wish.items()))
    wishes = [dict(wish) for wish in sorted(found, key=sorted) if wish]
    for row in cover([len(choices[where]) for where in names], wishes):
        yield {where: choices[where][row[index]] for index, where in enumerate(names)}


def _literals(where: Where, alternative: str, choices: Mapping[Where, tuple[str, ...]]) -> dict[Where, str]:
    """Return choice -> alternative needed for an alternative to run: itself and all around it."""
    found = {where[:length]: where[length] for length in range(1, len(where)) if where[:length] in choices}
    return {**found, where: alternative}


__all__ = ["ways"]
