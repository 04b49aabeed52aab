"""Make a failing recipe small: drop steps, expansions, outputs and flags as long as it still fails.

Contract: `shrink(recipe, fails)` returns a recipe for which `fails` is True, and from which no
single move gives another recipe that fails. A move removes an expansion, an output, a flag, or a
step with all steps that depend on the step. A move can also replace a step by one of its sources,
or by a leaf if `shapes` knows the step's type and dimensions. Finally, a move can replace a length
of leafs by a smaller length. All indices of tried recipes are valid; `fails` must return False for
a recipe that ggml refuses to build. The search is greedy, last step first, with O(steps^2) calls of
`fails` at worst.

What this module does not see: why a recipe fails.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from allocsim.systems.ggml.access.workspace import MODIFIERS
from allocsim.systems.ggml.random_graphs.graph_recipes import TENSOR, GraphRecipe, RecipeStep, leaf, reached

Shapes = Mapping[int, tuple[str, tuple[int, ...]]]
"""Step -> the type and dimensions of the step's tensor."""

LEAF_TYPES = ("f32", "f16", "bf16")
"""Types of computed tensors that a leaf can replace."""


def _unknown(_: GraphRecipe) -> Shapes:
    return {}


def shrink(
    recipe: GraphRecipe,
    fails: Callable[[GraphRecipe], bool],
    shapes: Callable[[GraphRecipe], Shapes] = _unknown,
    *,
    lengths: bool = True,
) -> GraphRecipe:
    """Shrink a failing recipe by the moves in the module's docstring, until no move gives a recipe
    that fails. Return the last failing recipe.

    Without `lengths`, leafs keep their lengths, because a race shows more often in longer work.
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
    """Yield recipes that have one step of the graph and only the steps that it needs.

    Further recipes replace one source by a leaf in memory of its own. Like a later reader that was
    dropped, such a leaf keeps the planner from placing the result over that source.
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
    """Return the sources of a step; for a modifier, add the sources of the op that it modifies."""
    made = recipe.steps[step]
    return [*made.sources, *(recipe.steps[made.sources[0]].sources if made.make in MODIFIERS else ())]


def _stood_in(recipe: GraphRecipe, victim: int, stand_in: RecipeStep) -> GraphRecipe:
    steps = (*recipe.steps[:victim], stand_in, *recipe.steps[victim + 1 :])
    return replace(recipe, steps=steps, outputs=tuple(index for index in recipe.outputs if index != victim))


def _plain(ne: tuple[int, ...]) -> tuple[int, ...]:
    """Return dimensions without trailing dimensions of 1; at least one dimension stays."""
    while len(ne) > 1 and ne[-1] == 1:
        ne = ne[:-1]
    return ne


def _with_leafs(recipe: GraphRecipe, shapes: Shapes) -> Iterator[GraphRecipe]:
    """Yield recipes in which a leaf replaces one computed tensor, from the last step to the first.
    Steps that only the replaced tensor needed are dropped.
    """
    for victim in reversed(range(len(recipe.steps))):
        dtype, ne = shapes.get(victim, ("", ()))
        if recipe.steps[victim].make == TENSOR or dtype not in LEAF_TYPES or victim in recipe.expand:
            continue
        for static in (False, True):
            stand_in = leaf(dtype, *_plain(ne), flag="" if static else "input", static=static)
            yield _needed(_stood_in(recipe, victim, stand_in))


def _needed(recipe: GraphRecipe) -> GraphRecipe:
    """Return the recipe without the steps that no expanded step needs."""
    return _of_steps(recipe, reached(recipe, lambda made: made.sources))


def _of_steps(recipe: GraphRecipe, kept: list[int]) -> GraphRecipe:
    """Return the recipe with only the steps `kept`; their arguments must be kept steps too."""
    number = {old: new for new, old in enumerate(kept)}
    return replace(
        recipe,
        steps=tuple(_renamed(recipe.steps[index], number.__getitem__) for index in kept),
        expand=tuple(number[index] for index in recipe.expand if index in number),
        outputs=tuple(number[index] for index in recipe.outputs if index in number),
    )


def _shorter(recipe: GraphRecipe) -> Iterator[GraphRecipe]:
    """Yield recipes in which one length is replaced by a smaller length in all leafs."""
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
    """Return the recipe without `victim`, whose readers read `source` instead; None if `victim` is
    a leaf, if `source` is an i32 leaf, or if `_drop` returns None.
    """
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
    """Return the recipe without a step and all steps that depend on that step. None if the result
    has no expanded step, or if one of its expanded steps is a leaf.
    """
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
