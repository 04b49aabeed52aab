"""Make a failing recipe small: drop steps, expansions, outputs and flags as long as it still fails.

Contract: `shrink(recipe, fails)` returns a recipe for which `fails` holds and from which no single
step (with all that names it), expansion, output or flag can be taken, and no step be replaced by
one of its sources. `fails` is asked about legal recipes only as far as indices go; it must answer
False where ggml refuses to build. Greedy, last step first; O(steps^2) questions at worst.

What this module does not see: why it fails.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from engine.ggml.random_graphs.graph_recipes import TENSOR, GraphRecipe, RecipeStep


def shrink(recipe: GraphRecipe, fails: Callable[[GraphRecipe], bool]) -> GraphRecipe:
    """Return a smallest failing recipe reachable from `recipe`, by the moves above."""
    while True:
        for candidate in _smaller(recipe):
            if fails(candidate):
                recipe = candidate
                break
        else:
            return recipe


def _smaller(recipe: GraphRecipe) -> Iterator[GraphRecipe]:
    for victim in reversed(range(len(recipe.steps))):
        for source in dict.fromkeys(recipe.steps[victim].sources):
            bypassed = _bypass(recipe, victim, source)
            if bypassed is not None:
                yield bypassed
        dropped = _drop(recipe, victim)
        if dropped is not None:
            yield dropped
    for index in recipe.expand if len(recipe.expand) > 1 else ():
        yield replace(recipe, expand=tuple(other for other in recipe.expand if other != index))
    for index in recipe.outputs:
        yield replace(recipe, outputs=tuple(other for other in recipe.outputs if other != index))
    for index, made in enumerate(recipe.steps):
        if "param" in made.flag or made.static:
            plain = replace(made, flag="", static=False)
            yield replace(recipe, steps=(*recipe.steps[:index], plain, *recipe.steps[index + 1 :]))


def _bypass(recipe: GraphRecipe, victim: int, source: int) -> GraphRecipe | None:
    """Let every reader of `victim` read `source` instead, and drop `victim`."""
    if recipe.steps[victim].make == TENSOR or recipe.steps[source].rows or recipe.steps[source].arguments[0] == "i32":
        return None
    steps = tuple(_renamed(made, lambda index: source if index == victim else index) for made in recipe.steps)
    names = {victim: source}
    moved = replace(
        recipe,
        steps=steps,
        expand=tuple(dict.fromkeys(names.get(index, index) for index in recipe.expand)),
        outputs=tuple(sorted({names.get(index, index) for index in recipe.outputs})),
    )
    return _drop(moved, victim)


def _drop(recipe: GraphRecipe, victim: int) -> GraphRecipe | None:
    """Remove a step and all that names it; None if nothing or a mere leaf would be expanded."""
    gone = {victim}
    for index, made in enumerate(recipe.steps):
        if gone.intersection(made.sources):
            gone.add(index)
    kept = [index for index in range(len(recipe.steps)) if index not in gone]
    number = {old: new for new, old in enumerate(kept)}
    expand = tuple(number[index] for index in recipe.expand if index in number)
    if not expand or any(recipe.steps[kept[index]].make == TENSOR for index in expand):
        return None
    steps = tuple(_renamed(recipe.steps[index], number.__getitem__) for index in kept)
    return replace(
        recipe, steps=steps, expand=expand, outputs=tuple(number[index] for index in recipe.outputs if index in number)
    )


def _renamed(made: RecipeStep, rename: Callable[[int], int]) -> RecipeStep:
    arguments = tuple(
        f"%{rename(int(a[1:]))}" if isinstance(a, str) and a.startswith("%") else a for a in made.arguments
    )
    return replace(made, arguments=arguments)
