"""Make a failing recipe small: drop steps, expansions, outputs and flags as long as it still fails.

Contract: `shrink(recipe, fails)` returns a recipe for which `fails` holds and from which no single
step (with all that names it), expansion, output or flag can be taken, no step be replaced by one of
its sources or, where `shapes` knows its type and dimensions, by a leaf, and no length of leafs be
replaced by a smaller one. `fails` is asked about legal recipes only as far as indices go; it must
answer False where ggml refuses to build. Greedy, last step first; O(steps^2) questions at worst.

What this module does not see: why it fails.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from allocsim.systems.ggml.access.workspace import MODIFIERS
from allocsim.systems.ggml.random_graphs.graph_recipes import TENSOR, GraphRecipe, RecipeStep, leaf, reached

Shapes = Mapping[int, tuple[str, tuple[int, ...]]]
"""Step -> type and dimensions of its tensor."""

LEAF_TYPES = ("f32", "f16", "bf16")
"""Types of computed tensors for which a leaf can stand."""


def _unknown(_: GraphRecipe) -> Shapes:
    return {}


def shrink(
    recipe: GraphRecipe,
    fails: Callable[[GraphRecipe], bool],
    shapes: Callable[[GraphRecipe], Shapes] = _unknown,
    *,
    lengths: bool = True,
) -> GraphRecipe:
    """Return a smallest failing recipe reachable from `recipe`, by the moves above.

    Without `lengths`, leafs keep theirs: a race shows the more, the more there is to do.
    """
    while True:
        shorter, known = _shorter(recipe) if lengths else iter(()), shapes(recipe)
        for candidate in chain(_one_top(recipe, known), _with_leafs(recipe, known), _smaller(recipe), shorter):
            if fails(candidate):
                recipe = candidate
                break
        else:
            return recipe


def _one_top(recipe: GraphRecipe, shapes: Shapes) -> Iterator[GraphRecipe]:
    """What one step of the graph needs, and nothing else: a small part of a graph at once.

    As it is, and with one of its sources a leaf in memory of its own, which keeps the planner from
    that source as a later reader does that is left out here.
    """
    for top in reversed(range(len(recipe.steps))):
        if recipe.steps[top].make == TENSOR:
            continue
        part = replace(recipe, expand=(top,), outputs=tuple(sorted({*recipe.outputs, top})))
        if len(_needed(part).steps) == len(recipe.steps) and len(recipe.expand) == 1:
            continue
        yield _needed(part)
        for source in _read_by(recipe, top):
            dtype, ne = shapes.get(source, ("", ()))
            if dtype in LEAF_TYPES:
                yield _needed(_stood_in(part, source, leaf(dtype, *_plain(ne), flag="", static=True)))


def _read_by(recipe: GraphRecipe, step: int) -> list[int]:
    """Return the sources of a step; of one that changes another step's op, that one's too."""
    made = recipe.steps[step]
    return [*made.sources, *(recipe.steps[made.sources[0]].sources if made.make in MODIFIERS else ())]


def _stood_in(recipe: GraphRecipe, victim: int, stand_in: RecipeStep) -> GraphRecipe:
    steps = (*recipe.steps[:victim], stand_in, *recipe.steps[victim + 1 :])
    return replace(recipe, steps=steps, outputs=tuple(index for index in recipe.outputs if index != victim))


def _plain(ne: tuple[int, ...]) -> tuple[int, ...]:
    """Return dimensions without the last that are 1."""
    while len(ne) > 1 and ne[-1] == 1:
        ne = ne[:-1]
    return ne


def _with_leafs(recipe: GraphRecipe, shapes: Shapes) -> Iterator[GraphRecipe]:
    """A leaf for a computed tensor, and nothing left of what only that one needed; last first."""
    for victim in reversed(range(len(recipe.steps))):
        dtype, ne = shapes.get(victim, ("", ()))
        if recipe.steps[victim].make == TENSOR or dtype not in LEAF_TYPES or victim in recipe.expand:
            continue
        for static in (False, True):
            stand_in = leaf(dtype, *_plain(ne), flag="" if static else "input", static=static)
            yield _needed(_stood_in(recipe, victim, stand_in))


def _needed(recipe: GraphRecipe) -> GraphRecipe:
    """Return the recipe without the steps that nothing expanded needs."""
    return _of_steps(recipe, reached(recipe, lambda made: made.sources))


def _of_steps(recipe: GraphRecipe, kept: list[int]) -> GraphRecipe:
    """Return the recipe of some of its steps, none of which names another."""
    number = {old: new for new, old in enumerate(kept)}
    return replace(
        recipe,
        steps=tuple(_renamed(recipe.steps[index], number.__getitem__) for index in kept),
        expand=tuple(number[index] for index in recipe.expand if index in number),
        outputs=tuple(number[index] for index in recipe.outputs if index in number),
    )


def _shorter(recipe: GraphRecipe) -> Iterator[GraphRecipe]:
    """One length of leafs replaced by a smaller one wherever it stands."""
    lengths = {n for made in recipe.steps if made.make == TENSOR for n in made.arguments[1:] if n > 1}
    for length in sorted(lengths, reverse=True):
        for shorter in dict.fromkeys((1, 2, length // 2)):
            if shorter >= length:
                continue
            steps = tuple(
                replace(
                    made, arguments=(made.arguments[0], *(shorter if n == length else n for n in made.arguments[1:]))
                )
                if made.make == TENSOR
                else made
                for made in recipe.steps
            )
            yield replace(recipe, steps=steps)


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
    left = _of_steps(recipe, [index for index in range(len(recipe.steps)) if index not in gone])
    mere = not left.expand or any(left.steps[index].make == TENSOR for index in left.expand)
    return None if mere else left


def _renamed(made: RecipeStep, rename: Callable[[int], int]) -> RecipeStep:
    arguments = tuple(
        f"%{rename(int(a[1:]))}" if isinstance(a, str) and a.startswith("%") else a for a in made.arguments
    )
    return replace(made, arguments=arguments)
