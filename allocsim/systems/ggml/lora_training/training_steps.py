"""Train an engine graph on real ggml step by step; find where a plan first differs from the
reference.

Contract
--------
* `train_steps` trains in one mode of `allocsim.systems.ggml.lora_training.plan_modes.MODES` and
  returns, for every step, the loss and every parameter gradient, and the rows of the planned graph.
  Gradients are read after the step; the rows show that their bytes survive it.
* `origins` runs the default plan (or another mode) in lockstep with the reference, which has memory
  of its own for each tensor (`allocsim.systems.ggml.d_lockstep`).
* `pinned_donors` names the sources to flag as OUTPUT so that no result of a kind of op lies over
  them; the search of a cure uses it.

What this module does not see: documents (`allocsim.systems.ggml.capture.graph_document`) and
verdicts.
"""

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.structs import records
from allocsim.systems.ggml.access.workspace import ELEMENTS, LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rebuilding import UNEXECUTED
from allocsim.systems.ggml.capture.graph_rows import Rows, walk
from allocsim.systems.ggml.d_lockstep import Departure, NodeSide, lockstep
from allocsim.systems.ggml.lora_training.forward_lowering import HYPER, Arrays, Forward, build
from allocsim.systems.ggml.lora_training.plan_modes import plan
from allocsim.systems.ggml.lora_training.transformer import LibraryTransformer, feed, upload

KIND: Final = "train+sgd"
Unsafe = tuple[str, int]
"""An op and one of its source slots."""


@dataclass(slots=True, kw_only=True)
class Steps:
    """What one training run gave."""

    nbytes: int
    """Of the compute buffer."""
    losses: list[float]
    gradients: list[dict[str, NDArray[Any]]]
    rows: Rows


def train_steps(
    library: Library, rows: Forward, parameters: Arrays, inputs: Arrays, mode: str, *,
    steps: int, rate: float, threads: int = 1, deny: Sequence[Unsafe] = (),
) -> Steps:  # fmt: skip
    """Task: train for `steps` steps.

    `deny` are pairs kept apart by pinning the source (`pinned_donors`).
    """
    arrays = _arrays(parameters, inputs, rate)
    with LibraryWorkspace(library, threads=threads) as ws:
        model = build(ws, rows, kind=KIND)
        ws.pin(pinned_donors(model, deny))
        size = plan(model, mode)
        upload(model, arrays)
        walked = walk(library, model.graph, meta={"name": "training step", "mode": mode})
        if mode != "apart":
            _require_survival(model, walked)
        losses, gradients = [], []
        for _ in range(steps):
            feed(model, arrays)
            model.run()
            losses.append(float(ws.get(model.loss).item()))
            gradients.append({name: ws.get(tensor) for name, tensor in model.gradients.items()})
        return Steps(nbytes=size, losses=losses, gradients=gradients, rows=walked)


def origins(
    library: Library,
    rows: Forward,
    parameters: Arrays,
    inputs: Arrays,
    mode: str,
    *,
    runs: int,
    rate: float,
    threads: int = 1,
) -> list[Departure]:
    """Task: run `mode` against memory of its own for each tensor in lockstep.

    Return where it departs, in order of execution.
    """
    arrays = _arrays(parameters, inputs, rate)
    with LibraryWorkspace(library, threads=threads) as planned, LibraryWorkspace(library, threads=threads) as reference:
        sides = []
        for ws, how in ((planned, mode), (reference, "apart")):
            model = build(ws, rows, kind=KIND)
            plan(model, how)
            upload(model, arrays)
            sides.append(_Side(model))
        found: list[Departure] = []
        for run in range(runs):
            for side in sides:
                feed(side.model, arrays)
            nodes = [node for node in range(len(sides[0].nodes)) if not sides[0].skipped[node]]
            steps = (lockstep(run, node, sides[0].ops[node], *(side.at(node) for side in sides)) for node in nodes)
            found.extend(departure for departure in steps if departure is not None)
        return found


def pinned_donors(model: LibraryTransformer, deny: Iterable[Unsafe]) -> list[int]:
    """Return the tensors in the denied source slots; a pinned tensor is never taken in place."""
    library, wanted = model.workspace.library, frozenset(deny)
    nodes = model.nodes() if wanted else []
    table = records(nodes) if nodes else ()
    return list(
        dict.fromkeys(
            int(row["src"][slot])
            for row in table
            for op, slot in wanted
            if library.op_names[int(row["op"])] == op and row["src"][slot]
        )
    )


class _Side:
    """One of the two graphs, with a graph of one node for each node.

    Elements are arrays over ggml's memory.
    """

    def __init__(self, model: LibraryTransformer) -> None:
        ws = model.workspace
        self.model, self.ws = model, ws
        self.nodes = model.nodes()
        self.table = records(self.nodes)
        sources = list(dict.fromkeys(int(s) for row in self.table["src"] for s in row if s))
        self.views = dict(zip(sources, (_elements(ws.library, row) for row in records(sources)), strict=True))
        self.results = [_elements(ws.library, row) for row in self.table]
        room = ws.library.ggml_graph_overhead_custom(1, False) * (len(self.nodes) + 1)
        ctx = ws.context(tensors=1 + room // ws.library.ggml_tensor_overhead())
        self.ops = [ws.library.op_names[int(row["op"])] for row in self.table]
        self.skipped = [op in UNEXECUTED for op in self.ops]
        self.single = [0 if skip else ctx.graph(size=1) for skip in self.skipped]
        for node, graph in zip(self.nodes, self.single, strict=True):
            if graph:
                ws.library.ggml_graph_add_node(graph, node)

    def at(self, node: int) -> NodeSide:
        """Return one node of this side."""
        operands = [self.views.get(int(source)) for source in self.table["src"][node]]
        return NodeSide(operands, self.results[node], partial(self.ws.compute, self.single[node]))


def _elements(library: Library, row: Any) -> NDArray[Any]:
    """Return a tensor's elements as an array over ggml's memory, in numpy's order of dimensions."""
    kind = bytes(library.ggml_type_name(int(row["type"]))).decode()
    dtype = np.dtype(ELEMENTS[kind])
    shape, strides = tuple(int(n) for n in row["ne"][::-1]), tuple(int(n) for n in row["nb"][::-1])
    span = dtype.itemsize + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * span).from_address(int(row["data"])))
    return np.ndarray(shape, dtype=dtype, buffer=memory, strides=strides)


def _arrays(parameters: Arrays, inputs: Arrays, rate: float) -> dict[str, NDArray[Any]]:
    return {**parameters, **inputs, HYPER: np.array([rate, 0], dtype=np.float32)}


def _require_survival(model: LibraryTransformer, rows: Rows) -> None:
    """Raise EngineError where a later node writes into the bytes of a gradient.

    What the host would read is not the gradient.
    """
    nodes: list[Mapping[str, Any]] = rows["nodes"]
    index = {tensor: number for number, tensor in enumerate(model.nodes())}
    writes = [n for n, row in enumerate(nodes) if row["off"] is not None and row["op"] not in UNEXECUTED]
    start = np.array([nodes[n]["off"] for n in writes])
    stop = start + np.array([nodes[n]["nbytes"] for n in writes])
    for name, tensor in model.gradients.items():
        at = index[tensor]
        row = nodes[at]
        later = (np.array(writes) > at) & (start < row["off"] + row["nbytes"]) & (stop > row["off"])
        if later.any():
            raise EngineError(
                f"the gradient of {name!r} is overwritten before the step ends; it cannot be read after it"
            )
