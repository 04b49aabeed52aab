"""Tasks of a child process on the recipe of a random graph: they return its rows after planning, or
its outputs after a run.

Contract: every function takes the library first and returns plain data or arrays
(`allocsim.systems.ggml.access.child`). Each builds its own workspace and frees it.

What this module does not see: verdicts. It returns evidence.
"""

from collections.abc import Collection, Sequence
from typing import Any

from numpy.typing import NDArray

from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rows import Rows, walk
from allocsim.systems.ggml.k_audit.guarded_kernels import Guarded, guard, single_ops
from allocsim.systems.ggml.random_graphs.graph_recipes import GraphRecipe, build, place, run


def elements(
    library: Library, recipe: GraphRecipe, *, mode: str = "default", planner: str = "gallocr"
) -> dict[int, NDArray[Any]]:
    """Return the elements of a recipe's outputs after one run."""
    with LibraryWorkspace(library) as ws:
        return run(ws, recipe, mode=mode, planner=planner)


def plan_rows(library: Library, recipe: GraphRecipe, *, mode: str = "default", planner: str = "gallocr") -> Rows:
    """Return the rows of a planned recipe."""
    with LibraryWorkspace(library) as ws:
        built = build(ws, recipe)
        place(ws, built, mode=mode, planner=planner)
        return walk(library, built.graph, known=True, meta={"name": recipe.name, "mode": mode})


def guard_planned(
    library: Library, recipe: GraphRecipe, names: Collection[str], *, threads: Sequence[int]
) -> list[tuple[str, Guarded]]:
    """Run the ops of these names of a planned recipe alone and guarded; return what each did."""
    ops = [one for one in single_ops(plan_rows(library, recipe)) if one.op in names]
    found = guard(library, ops, seed=recipe.seed, threads=threads, reads=False)
    return [(one.op, did) for one, did in zip(ops, found, strict=True)]
