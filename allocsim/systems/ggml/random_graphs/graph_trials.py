"""Tasks that plan and run random graphs in a fork, and return the plans that remain to be judged.

Contract: `try_all` tries recipes one after another and writes each `TriedGraph` to a file at once,
so a graph that crashes the fork loses no earlier result. A graph is built once, run without memory
reuse, and planned in every way of `WAYS`. The outputs are compared byte by byte with the run
without reuse. A way is not run if it places every tensor as the way run before did, or if no two
roots share a byte, since the run could show nothing new. One graph in `SPLIT_EVERY`, chosen by its
seed, runs on two backends as well.

If causes are known, a faulty graph runs once more with these avoided
(`allocsim.systems.ggml.random_graphs.explained_graphs`), in a hundredth of the time that naming the
cause takes. A `TriedGraph` has the rows of its plan only if a fault is possible that no known cause
explains: S may find a violation in the plan (`placed_graph.surely_sound`), or the numbers differ.

What this module does not see: the cause (`allocsim.systems.ggml.random_graphs.graph_fuzzing`).
"""

import pickle
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rows import Rows, nodes_and_leafs, walk
from allocsim.systems.ggml.k_audit.guarded_kernels import Guarded, guard, single_ops
from allocsim.systems.ggml.random_graphs.explained_graphs import Arrange, ArrangedGraph, explained
from allocsim.systems.ggml.random_graphs.graph_generator import table_cases
from allocsim.systems.ggml.random_graphs.graph_recipes import (
    Built,
    GraphRecipe,
    build,
    place,
    plan_rows,
    ran,
    ran_apart,
)
from allocsim.systems.ggml.random_graphs.placed_graph import placed_again, placed_graph, shares_bytes, surely_sound
from allocsim.systems.ggml.random_graphs.split_graphs import SplitRun, arrange_split, split_run

PINNED: Final = "pinned"

WAYS: Final[dict[str, tuple[str, str]]] = {
    "gallocr": ("default", "gallocr"),
    "sched": ("default", "sched"),
    PINNED: ("pinned", "gallocr"),
}
"""Name of a way to plan a graph -> mode and planner, as `graph_recipes.place` takes them."""

JUDGED: Final = "gallocr"
"""The way whose plan detector S judges."""

SPLIT_EVERY: Final = 4
"""One graph in this number of graphs runs on two backends as well."""


table_cases()  # computed once when the server imports this module, so that no fork computes it again


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedGraph:
    """The results of planning and running one graph."""

    rows: Rows | None
    """The rows of gallocr's plan; None if the plan need not be judged."""
    different: dict[str, list[int]]
    """Way of planning -> the outputs that differ from the run without reuse."""
    split: SplitRun | None
    """The results on two backends; None if the graph did not run there."""
    explained: tuple[str, ...] = ()
    """Known causes that explain every fault of the graph."""

    @property
    def doubtful(self) -> list[Rows]:
        """The plans in which S may find a violation that no known cause explains."""
        if self.explained:
            return []
        return [rows for rows in (self.rows, self.split and self.split.rows) if rows]

    @property
    def right(self) -> bool:
        """Whether all outputs had the bytes of the run without reuse."""
        return not self.different and not (self.split and self.split.differing)


Draw = Callable[[], GraphRecipe]
"""A function that makes a recipe. Another process gets this function instead of the recipe, because
sending a recipe takes as long as running its graph."""


def try_all(library: Library, draws: Sequence[Draw], path: str, known: Collection[str] = ()) -> None:
    """Task: try each recipe, and write each `TriedGraph` to a file as soon as it is known."""
    with Path(path).open("wb") as file:
        for draw in draws:
            file.write(pickle.dumps(try_one(library, draw(), known)))
            file.flush()


def try_one(library: Library, recipe: GraphRecipe, known: Collection[str] = ()) -> TriedGraph:
    """Task: plan and run a recipe in every way; return the outputs that differ from a run without
    reuse, the `known` causes if they explain all faults, and otherwise the rows of the plan.
    """
    split = None
    with LibraryWorkspace(library, threads=recipe.threads) as ws:
        built = build(ws, recipe)
        apart, unplanned = ran_apart(ws, built)
        unplaced = _unplaced(ws, built)
        different, before = {}, None
        wrong: list[Arrange] = []
        for way in WAYS:
            arrange = partial(_arranged, ws, built, unplanned, unplaced, way)
            arranged = arrange()
            doubtful = way == JUDGED and not surely_sound(arranged.placed)
            where = arranged.placed.addresses
            if where != before and shares_bytes(arranged.placed):
                before = where
                found = ran(ws, built, arranged.scheduler)
                outputs_wrong = [index for index in apart if found[index] != apart[index]]
                if outputs_wrong:
                    different[way] = outputs_wrong
            if doubtful or way in different:
                wrong.append(arrange)
        on_one_backend = bool(wrong)
        if recipe.seed % SPLIT_EVERY == SPLIT_EVERY - 1:
            built.context.restore(unplanned)
            split = split_run(ws, built, recipe.seed, apart, every_plan=False)
            if split.rows is not None:
                wrong.append(partial(arrange_split, ws, built, recipe.seed, unplanned))
        by = [explained(ws, built, apart, known, arrange) for arrange in wrong] if known else []
        causes = tuple(dict.fromkeys(cause for one in by for cause in one)) if all(by) else ()
        built.context.restore(unplanned)
        rows = None
        if on_one_backend and not causes:
            place(ws, built)
            rows = walk(library, built.graph, known=True, meta={"name": recipe.name, "mode": "default"})
    return TriedGraph(rows=rows, different=different, split=split, explained=causes)


def _arranged(
    ws: LibraryWorkspace, built: Built, unplanned: bytes, unplaced: ArrangedGraph, way: str, *, pins: Sequence[int] = ()
) -> ArrangedGraph:
    built.context.restore(unplanned)
    ws.pin(pins)
    mode, planner = WAYS[way]
    scheduler = place(ws, built, mode=mode, planner=planner)
    placed = placed_again(unplaced.placed, unplaced.addresses)
    return replace(unplaced, scheduler=scheduler, placed=placed, judged=way == JUDGED)


def _unplaced(ws: LibraryWorkspace, built: Built) -> ArrangedGraph:
    """Return a built graph with its tensors' addresses and arrays, before it is planned."""
    nodes, leafs = nodes_and_leafs(ws.library, built.graph)
    return ArrangedGraph(scheduler=0, addresses=[*leafs, *nodes], placed=placed_graph(ws.library, nodes, leafs))


def first_differing(library: Library, recipe: GraphRecipe, runs: int) -> int:
    """Task: return the number, from 1, of the first planned run that differs from a run without
    reuse; 0 if none of `runs` runs differs.
    """
    with LibraryWorkspace(library, threads=recipe.threads) as ws:
        built = build(ws, recipe)
        apart, _ = ran_apart(ws, built)
        place(ws, built)
        return next((number for number in range(1, runs + 1) if ran(ws, built, 0) != apart), 0)


def guard_planned(
    library: Library, recipe: GraphRecipe, names: Collection[str], *, threads: Sequence[int]
) -> list[tuple[str, Guarded]]:
    """Task: run each op of a planned recipe that has one of these names alone between red zones.

    Return (op, measured accesses) for each op.
    """
    ops = [one for one in single_ops(plan_rows(library, recipe)) if one.op in names]
    found = guard(library, ops, seed=recipe.seed, threads=threads, reads=False)
    return [(one.op, did) for one, did in zip(ops, found, strict=True)]
