"""Random graphs on two backends: planned by ggml's scheduler, split and copied, run, captured.

Contract: `place_split(ws, built, seed)` gives each tensor of a built recipe to one of two backends,
at random by the seed, views to that of their root, and plans the graph with a scheduler. Neighbours
stay together more or less often. Leafs in memory of their own stay where they are. `run_split` is
the task that plans, captures and runs a recipe so and says which outputs differ from a run in
memory of its own for each tensor; `split_run` does it for a graph that is built and unplanned.

What this module does not see: whether the plan is right (`allocsim.checks`).
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from engine.ggml.access.library import Library
from engine.ggml.access.second_backend import second_backend
from engine.ggml.access.structs import records
from engine.ggml.access.workspace import LibraryWorkspace
from engine.ggml.capture.graph_rows import Rows, walk
from engine.ggml.random_graphs.graph_recipes import GRAPH_SIZE, Built, GraphRecipe, build, fill, run


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRun:
    """What one graph on two backends did."""

    rows: Rows
    splits: int
    differing: tuple[int, ...]
    """Outputs, by step, whose bytes differ from a run without reuse and without splits."""


def place_split(ws: LibraryWorkspace, built: Built, seed: int, *, pipelined: bool = False) -> int:
    """Plan a graph on two backends; return its scheduler."""
    library, second = ws.library, second_backend(ws)
    scheduler = ws.scheduler(graph_size=GRAPH_SIZE, before=(second.backend, second.buffer_type), pipelined=pipelined)
    rng = random.Random(f"split {seed}")  # noqa: S311 - reproducible, not secret
    keep, backends = rng.choice((0.9, 0.7, 0.5)), [second.backend, ws.backend]
    given: dict[int, int] = {}
    for tensor in built.tensors:
        if rng.random() >= keep:
            backends.reverse()
        root = int(records([tensor])[0]["view_src"]) or tensor
        given.setdefault(root, backends[0])
        if not library.ggml_get_data(root):
            library.ggml_backend_sched_set_tensor_backend(scheduler, tensor, given[root])
    ws.schedule(scheduler, built.graph)
    return scheduler


def run_split(library: Library, recipe: GraphRecipe, seed: int, *, pipelined: bool = False) -> SplitRun:
    """Task: plan, capture and run a recipe on two backends, and run it apart."""
    with LibraryWorkspace(library, threads=recipe.threads) as ws:
        apart = run(ws, recipe, mode="apart")
    with LibraryWorkspace(library, threads=recipe.threads) as ws:
        return split_run(
            ws, build(ws, recipe), seed, {index: found.tobytes() for index, found in apart.items()}, pipelined=pipelined
        )


def split_run(
    ws: LibraryWorkspace, built: Built, seed: int, apart: Mapping[int, bytes], *, pipelined: bool = False
) -> SplitRun:
    """Plan, capture and run a built graph on two backends; `apart` are the bytes of its outputs
    without reuse and without splits.
    """
    scheduler = place_split(ws, built, seed, pipelined=pipelined)
    about = {"name": f"{built.recipe.name}, split"}
    rows = walk(ws.library, built.graph, known=True, scheduler=scheduler, meta=about)
    fill(ws, built)
    ws.compute_scheduled(scheduler, built.graph)
    differing = tuple(index for index, before in apart.items() if ws.get(built.tensors[index]).tobytes() != before)
    return SplitRun(rows=rows, splits=ws.library.ggml_backend_sched_get_n_splits(scheduler), differing=differing)
