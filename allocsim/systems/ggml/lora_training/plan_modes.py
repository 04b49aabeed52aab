"""Train the transformer on real ggml under several plans of the same graph.

The module reproduces ggml issue 1501 step by step.

Contract: `train(library, shape, mode, ...)` is a task for a child process. The task builds the
graph, plans it in one of `MODES`, and runs SGD steps inside ggml. Before every compute the task
writes the inputs and resets the gradients. The modes differ only in the plan; arrays, ops and order
are the same. `gradients` computes the gradient of every adapter once, in a graph without optimizer
steps. No op of that graph reads an adapter's gradient, so the planner does not reuse the bytes of
such a gradient before the host reads them.

What this module does not see: which mode is right. Compare a mode with `apart`, where no byte is
reused.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import UnknownNameError
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rows import Rows, walk
from allocsim.systems.ggml.lora_training.transformer import (
    HYPER,
    LibraryTransformer,
    Shape,
    build,
    feed,
    initial,
    pins,
    upload,
)

MODES: Final[dict[str, str]] = {
    "default": "none",
    "pinned": "all",
    "backward": "backward",
    "gradients": "gradients",
    "apart": "none",
}
"""Mode -> the tensors flagged as OUTPUT before planning (a name that `transformer.pins` takes); the
mode `apart` makes no plan and gives every tensor memory of its own."""

PLANNERS: Final = ("gallocr", "sched")


def plan(model: LibraryTransformer, mode: str, *, planner: str = "gallocr") -> int:
    """Flag outputs as `mode` says, plan the graph, and return the compute buffer's size in bytes.

    Raises UnknownNameError for an unknown mode or planner.
    """
    if mode not in MODES:
        raise UnknownNameError("mode", mode, MODES)
    if planner not in PLANNERS:
        raise UnknownNameError("planner", planner, PLANNERS)
    ws, library = model.workspace, model.workspace.library
    ws.pin(pins(model, MODES[mode]))
    if mode == "apart":
        return int(library.ggml_backend_buffer_get_size(ws.apart(model.contexts[1])))
    if planner == "sched":
        model.scheduler = ws.scheduler(graph_size=library.ggml_graph_size(model.graph))
        ws.schedule(model.scheduler, model.graph)
        return int(library.ggml_backend_sched_get_buffer_size(model.scheduler, ws.backend))
    galloc = ws.planner()
    ws.allocate(galloc, model.graph)
    return int(library.ggml_gallocr_get_buffer_size(galloc, 0))


def train(
    library: Library,
    shape: Shape,
    mode: str,
    *,
    steps: int = 20,
    rate: float = 0.01,
    seed: int = 0,
    planner: str = "gallocr",
) -> dict[str, Any]:
    """Task: build the graph and train for `steps` steps; return the dictionary of `descend`."""
    arrays = initial(shape, seed)
    arrays[HYPER] = np.array([rate, 0], dtype=np.float32)
    with LibraryWorkspace(library) as ws:
        return descend(build(ws, shape, kind="train+sgd"), arrays, mode, steps=steps, planner=planner)


def descend(
    model: LibraryTransformer, arrays: dict[str, NDArray[Any]], mode: str, *, steps: int, planner: str
) -> dict[str, Any]:
    """Plan a graph with optimizer steps and run it `steps` times.

    Return `nodes`, `forward_nodes`, `buffer_size`, and as `losses` the loss before each step.
    """
    size = plan(model, mode, planner=planner)
    upload(model, arrays)
    losses = []
    for _ in range(steps):
        feed(model, arrays)
        model.run()
        losses.append(float(model.workspace.get(model.loss).item()))
    return {"nodes": len(model.nodes()), "forward_nodes": model.forward_nodes, "buffer_size": size, "losses": losses}


def gradients(
    library: Library, shape: Shape, mode: str, *, seed: int = 0, planner: str = "gallocr"
) -> dict[str, NDArray[np.float32]]:
    """Task: return name -> gradient for every adapter, at the initial weights."""
    arrays = initial(shape, seed)
    with LibraryWorkspace(library) as ws:
        return first_gradients(build(ws, shape, kind="train"), arrays, mode, planner=planner)


def first_gradients(
    model: LibraryTransformer, arrays: dict[str, NDArray[Any]], mode: str, *, planner: str
) -> dict[str, NDArray[Any]]:
    """Plan a graph without optimizer steps, run it once, and return its gradients by name."""
    plan(model, mode, planner=planner)
    upload(model, arrays)
    feed(model, arrays)
    model.run()
    return {name: model.workspace.get(tensor) for name, tensor in model.gradients.items()}


def transformer_rows(
    library: Library, shape: Shape, *, kind: str = "train", mode: str = "default", some: tuple[int, ...] = ()
) -> Rows:
    """Task: return the rows of a planned training step; `some` lists more nodes to flag OUTPUT."""
    with LibraryWorkspace(library) as ws:
        model = build(ws, shape, kind=kind)
        nodes = model.nodes()
        ws.pin([*pins(model, MODES[mode]), *(nodes[index] for index in some if index < len(nodes))])
        ws.allocate(ws.planner(), model.graph)
        return walk(library, model.graph, meta={"name": f"transformer of {shape.layers} layers, {kind}", "mode": mode})
