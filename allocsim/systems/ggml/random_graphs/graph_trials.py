"""Tasks that plan and run random graphs in a fork, and return the plans that remain to be judged.

Contract: `try_all` tries recipes one after another and writes each `TriedGraph` to a file at once,
so a graph that crashes the fork loses no earlier result. A graph is built once, run in memory of
its own for each tensor, and planned in every way of `WAYS`; its outputs are compared byte by byte.
A way is not run if it places every tensor as the way before did, or if no two roots share a byte,
since the run could show nothing new. One graph in `SPLIT_EVERY`, by its seed, runs on two backends
as well.

With known causes, a faulty graph is run once more without them
(`allocsim.systems.ggml.random_graphs.explained_graphs`), at a hundredth of the price of naming the
cause. A `TriedGraph` has the rows of its plan only if S may find a violation in it
(`placed_graph.surely_sound`) or its numbers differ, and no known cause explains that.

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
"""How a graph is planned, beside memory of its own for each tensor: mode and planner."""

JUDGED: Final = "gallocr"
"""The way whose plan S is asked about."""

SPLIT_EVERY: Final = 4
"""One graph in so many is run on two backends as well."""


table_cases()  # when the server imports this module, else each of its forks makes the table again


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedGraph:
    """What one graph did."""

    rows: Rows | None
    """As gallocr planned it, where that is to be judged."""
    different: dict[str, list[int]]
    """For each way of planning the outputs that differ."""
    split: SplitRun | None
    """What it did on two backends, where it was run there."""
    explained: tuple[str, ...] = ()
    """Known causes without which nothing is wrong with it."""

    @property
    def doubtful(self) -> list[Rows]:
        """The plans in which S may find something that is not explained."""
        if self.explained:
            return []
        return [rows for rows in (self.rows, self.split and self.split.rows) if rows]

    @property
    def right(self) -> bool:
        """Whether all numbers were."""
        return not self.different and not (self.split and self.split.differing)


Draw = Callable[[], GraphRecipe]
"""Makes a recipe: to send the recipe itself to another process takes as long as to run it."""


def try_all(library: Library, draws: Sequence[Draw], path: str, known: Collection[str] = ()) -> None:
    """Task: try each recipe, and append what was found to a file."""
    with Path(path).open("wb") as file:
        for draw in draws:
            file.write(pickle.dumps(try_one(library, draw(), known)))
            file.flush()


def try_one(library: Library, recipe: GraphRecipe, known: Collection[str] = ()) -> TriedGraph:
    """Task: for each way of planning the outputs that differ from a run without reuse, whether the
    `known` causes explain that, and the rows of a recipe's plan where they are needed.
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
    """Return what is known of a built graph before it is planned."""
    nodes, leafs = nodes_and_leafs(ws.library, built.graph)
    return ArrangedGraph(scheduler=0, addresses=[*leafs, *nodes], placed=placed_graph(ws.library, nodes, leafs))


def first_differing(library: Library, recipe: GraphRecipe, runs: int) -> int:
    """Task: the first of so many planned runs that differs from a run without reuse, from 1 on; 0
    where none does.
    """
    with LibraryWorkspace(library, threads=recipe.threads) as ws:
        built = build(ws, recipe)
        apart, _ = ran_apart(ws, built)
        place(ws, built)
        return next((number for number in range(1, runs + 1) if ran(ws, built, 0) != apart), 0)


def guard_planned(
    library: Library, recipe: GraphRecipe, names: Collection[str], *, threads: Sequence[int]
) -> list[tuple[str, Guarded]]:
    """Task: run the ops of these names of a planned recipe alone and guarded; say what each did."""
    ops = [one for one in single_ops(plan_rows(library, recipe)) if one.op in names]
    found = guard(library, ops, seed=recipe.seed, threads=threads, reads=False)
    return [(one.op, did) for one, did in zip(ops, found, strict=True)]
