"""Small tasks for a child process: the questions to a library that tests, fuzzing and captures
share.

Contract: every function takes the library first and returns plain data or arrays; see
`allocsim.systems.ggml.access.child`. Each builds its own workspace and frees it.

What this module does not see: verdicts. It returns evidence.
"""

from typing import Any

from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rows import Rows, walk
from allocsim.systems.ggml.lora_training.plan_modes import MODES
from allocsim.systems.ggml.lora_training.transformer import Shape, pins
from allocsim.systems.ggml.lora_training.transformer import build as build_transformer


def versions(library: Library) -> dict[str, Any]:
    """Return the version and the in-place list."""
    return {"version": library.version, "in_place": sorted(library.in_place_ops)}


def transformer_rows(
    library: Library, shape: Shape, *, kind: str = "train", mode: str = "default", some: tuple[int, ...] = ()
) -> Rows:
    """Return the rows of a planned transformer step; `some` are further nodes to flag as OUTPUT."""
    with LibraryWorkspace(library) as ws:
        model = build_transformer(ws, shape, kind=kind)
        nodes = model.nodes()
        ws.pin([*pins(model, MODES[mode]), *(nodes[index] for index in some if index < len(nodes))])
        ws.allocate(ws.planner(), model.graph)
        return walk(library, model.graph, meta={"name": f"transformer of {shape.layers} layers, {kind}", "mode": mode})
