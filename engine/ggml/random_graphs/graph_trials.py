"""Tasks that plan and run random graphs in a fork: what each did, which plans are left to judge.

Contract: `try_all` tries recipes one after the other and writes each `TriedGraph` to a file as soon
as it is there, so that a graph which ends the fork takes no other with it. A graph is built once,
run in memory of its own for each tensor, and planned in every way of `WAYS`; its outputs are
compared byte by byte. A way is run only where that can show something new: not where it places
every tensor as the way before did, nor where no two roots share a byte. One graph in `SPLIT_EVERY`,
by its seed, runs on two backends as well.

A `TriedGraph` has the rows of its plan only where S may find something in it
(`placed_graph.surely_sound`), or its numbers differ.

What this module does not see: what is wrong (`engine.ggml.random_graphs.graph_fuzzing`).
"""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.ggml.access.library import Library
from engine.ggml.access.workspace import LibraryWorkspace
from engine.ggml.capture.graph_rows import Rows, nodes_and_leafs, walk
from engine.ggml.random_graphs.graph_recipes import Built, GraphRecipe, build, compute, fill, outputs, place
from engine.ggml.random_graphs.placed_graph import placed_graph, shares_bytes, surely_sound
from engine.ggml.random_graphs.split_graphs import SplitRun, split_run

WAYS: Final[dict[str, tuple[str, str]]] = {
    "gallocr": ("default", "gallocr"),
    "sched": ("default", "sched"),
    "pinned": ("pinned", "gallocr"),
}
"""How a graph is planned, beside memory of its own for each tensor: mode and planner."""

SPLIT_EVERY: Final = 4
"""One graph in so many is run on two backends as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedGraph:
    """What one graph did."""

    rows: Rows | None
    """As gallocr planned it, where that is to be judged."""
    different: dict[str, list[int]]
    """For each way of planning the outputs that differ."""
    split: SplitRun | None
    """What it did on two backends, where it was run there."""

    @property
    def doubtful(self) -> list[Rows]:
        """The plans in which S may find something."""
        return [rows for rows in (self.rows, self.split and self.split.rows) if rows]

    @property
    def right(self) -> bool:
        """Whether all numbers were."""
        return not self.different and not (self.split and self.split.differing)


def try_all(library: Library, recipes: Sequence[GraphRecipe], path: str) -> None:
    """Task: try each recipe, and append what was found to a file."""
    with Path(path).open("wb") as file:
        for recipe in recipes:
            file.write(pickle.dumps(try_one(library, recipe)))
            file.flush()


def try_one(library: Library, recipe: GraphRecipe) -> TriedGraph:
    """Task: for each way of planning the outputs that differ from a run without reuse, and the rows
    of a recipe's plan where they are needed.
    """
    split = None
    with LibraryWorkspace(library, threads=recipe.threads) as ws:
        built = build(ws, recipe)
        unplanned = built.context.saved()
        place(ws, built, mode="apart")
        apart = _ran(ws, built, 0)
        different, sound, before = {}, True, None
        for way, (mode, planner) in WAYS.items():
            built.context.restore(unplanned)
            scheduler = place(ws, built, mode=mode, planner=planner)
            placed = placed_graph(library, *nodes_and_leafs(library, built.graph))
            sound = sound and (way != "gallocr" or surely_sound(placed))
            where = placed.addresses
            if where == before or not shares_bytes(placed):
                continue
            before = where
            found = _ran(ws, built, scheduler)
            wrong = [index for index in apart if found[index] != apart[index]]
            if wrong:
                different[way] = wrong
        if recipe.seed % SPLIT_EVERY == SPLIT_EVERY - 1:
            built.context.restore(unplanned)
            split = split_run(ws, built, recipe.seed, apart, every_plan=False)
        built.context.restore(unplanned)
        rows = None if sound and not different else _rows(ws, built)
    return TriedGraph(rows=rows, different=different, split=split)


def _ran(ws: LibraryWorkspace, built: Built, scheduler: int) -> dict[int, bytes]:
    fill(ws, built)
    compute(ws, built, scheduler)
    return outputs(ws, built)


def _rows(ws: LibraryWorkspace, built: Built) -> Rows:
    place(ws, built)
    about = {"name": built.recipe.name, "mode": "default"}
    return walk(ws.library, built.graph, known=True, meta=about)


def first_differing(library: Library, recipe: GraphRecipe, runs: int) -> int:
    """Task: the first of so many planned runs that differs from a run without reuse, from 1 on; 0
    where none does.
    """
    with LibraryWorkspace(library, threads=recipe.threads) as ws:
        built = build(ws, recipe)
        unplanned = built.context.saved()
        place(ws, built, mode="apart")
        apart = _ran(ws, built, 0)
        built.context.restore(unplanned)
        place(ws, built)
        return next((number for number in range(1, runs + 1) if _ran(ws, built, 0) != apart), 0)
