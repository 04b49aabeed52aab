"""Random graphs on two backends: ggml's scheduler plans and splits a graph, and this module runs
and captures the graph.

Contract: `place_split(ws, built, seed)` assigns each tensor of a built recipe to one of two
backends, at random by the seed, and each view to the backend of its root. Then a scheduler plans
the graph. How often neighbours are on one backend varies with the seed. Leafs in memory of their
own keep their backend. `run_split` is a task that plans, captures and runs a recipe on two
backends, and returns the outputs that differ from a run without memory reuse. `split_run` does the
same for a graph that is built and not planned.

What this module does not see: whether the plan is right (`allocsim.judge`).
"""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.second_backend import second_backend
from allocsim.systems.ggml.access.structs import records
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rows import Rows, nodes_and_leafs, walk
from allocsim.systems.ggml.capture.scheduled_graph import scheduled_graph
from allocsim.systems.ggml.random_graphs.explained_graphs import ArrangedGraph, explained
from allocsim.systems.ggml.random_graphs.graph_recipes import Built, GraphRecipe, build, graph_size, ran, ran_apart
from allocsim.systems.ggml.random_graphs.placed_graph import placed_graph, surely_sound


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRun:
    """The results of one graph on two backends."""

    rows: Rows | None
    """The rows of the planned graph; None if the plan is surely sound and the numbers are right,
    unless every plan was requested."""
    splits: int
    differing: tuple[int, ...]
    """Outputs, by step, whose bytes differ from a run without reuse and without splits."""
    explained: tuple[str, ...] = ()
    """Known causes that explain every fault of the graph."""


def place_split(ws: LibraryWorkspace, built: Built, seed: int, *, pipelined: bool = False) -> int:
    """Plan a graph on two backends; return the scheduler that planned it."""
    library, second = ws.library, second_backend(ws)
    size = graph_size(built.recipe)
    scheduler = ws.scheduler(graph_size=size, before=(second.backend, second.buffer_type), pipelined=pipelined)
    rng = random.Random(f"split {seed}")  # noqa: S311 - reproducible, not secret
    keep, backends = rng.choice((0.9, 0.7, 0.5)), [second.backend, ws.backend]
    given: dict[int, int] = {}
    roots = records(built.tensors)["view_src"].tolist()
    for tensor, view_of in zip(built.tensors, roots, strict=True):
        if rng.random() >= keep:
            backends.reverse()
        root = view_of or tensor
        given.setdefault(root, backends[0])
        if not library.ggml_get_data(root):
            library.ggml_backend_sched_set_tensor_backend(scheduler, tensor, given[root])
    ws.schedule(scheduler, built.graph)
    return scheduler


def run_split(
    library: Library, recipe: GraphRecipe, seed: int, *, pipelined: bool = False, known: Collection[str] = ()
) -> SplitRun:
    """Task: plan, capture and run a recipe on two backends, and compare it with a run without
    memory reuse; the result names the `known` causes that explain a fault.
    """
    with LibraryWorkspace(library, threads=recipe.threads) as ws:
        built = build(ws, recipe)
        apart, unplanned = ran_apart(ws, built)
        found = split_run(ws, built, seed, apart, pipelined=pipelined)
        arrange = partial(arrange_split, ws, built, seed, unplanned, pipelined=pipelined)
        return replace(found, explained=explained(ws, built, apart, known, arrange) if known else ())


def split_run(
    ws: LibraryWorkspace,
    built: Built,
    seed: int,
    apart: Mapping[int, bytes],
    *,
    pipelined: bool = False,
    every_plan: bool = True,
) -> SplitRun:
    """Plan, capture and run a built graph on two backends; `apart` maps each output's step to its
    bytes without reuse and without splits.

    Without `every_plan`, rows are made only if S may find a violation or the numbers differ.
    """
    library = ws.library
    arranged = arrange_split(ws, built, seed, built.context.saved(), pipelined=pipelined)
    scheduler = arranged.scheduler
    found = ran(ws, built, scheduler)
    differing = tuple(index for index, before in apart.items() if found[index] != before)
    wanted = every_plan or differing or not surely_sound(arranged.placed)
    about = {"name": f"{built.recipe.name}, split"}
    rows = walk(library, built.graph, known=True, scheduler=scheduler, meta=about) if wanted else None
    return SplitRun(rows=rows, splits=library.ggml_backend_sched_get_n_splits(scheduler), differing=differing)


def arrange_split(
    ws: LibraryWorkspace,
    built: Built,
    seed: int,
    unplanned: bytes,
    *,
    pipelined: bool = False,
    pins: Sequence[int] = (),
) -> ArrangedGraph:
    """Drop a graph's plan, flag `pins` OUTPUT, and plan the graph on two backends; return the
    scheduler, and the tensors of the scheduled graph with their places.
    """
    built.context.restore(unplanned)
    ws.pin(pins)
    library = ws.library
    scheduler = place_split(ws, built, seed, pipelined=pipelined)
    nodes, _ = nodes_and_leafs(library, built.graph)
    runs = scheduled_graph(library, scheduler, nodes, word=_WORDS.get(library.path))
    _WORDS[library.path] = runs.word
    placed = placed_graph(library, runs.nodes, runs.leafs, runs.copies)
    return ArrangedGraph(scheduler=scheduler, addresses=[*runs.leafs, *runs.nodes], placed=placed)


_WORDS: Final[dict[Path, int]] = {}
"""Path of a library -> the word of a scheduler struct at which its graph was found, searched for
once in a process."""
