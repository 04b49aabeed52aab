"""Train an engine graph on real ggml step by step, and find the ops at which a plan's results
differ from the reference.

Contract
--------
* `train_steps` trains in one mode of `allocsim.systems.ggml.lora_training.plan_modes.MODES`. The
  result has the rows of the planned graph, and for every step the loss and each parameter's
  gradient. Gradients are read after the step. If a later node overwrites a gradient's bytes,
  EngineError is raised.
* `origins` runs one mode in lockstep with the reference, in which each tensor has memory of its own
  (`allocsim.systems.ggml.d_lockstep`).
* `pinned_donors` returns the sources to flag as OUTPUT so that no result of a given op is placed
  over them. The search for a cure uses this function.

What this module does not see: documents (`allocsim.systems.ggml.capture.graph_document`) and
verdicts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.structs import records
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rebuilding import UNEXECUTED, elements_at
from allocsim.systems.ggml.capture.graph_rows import Rows, walk
from allocsim.systems.ggml.d_lockstep import Departure, NodeSide, lockstep
from allocsim.systems.ggml.lora_training.forward_lowering import Arrays, Forward, build
from allocsim.systems.ggml.lora_training.plan_modes import plan
from allocsim.systems.ggml.lora_training.transformer import HYPER, LibraryTransformer, feed, upload

KIND: Final = "train+sgd"
Unsafe = tuple[str, int]
"""An op and one of its source slots."""


@dataclass(slots=True, kw_only=True)
class Steps:
    """The results of one training run."""

    nbytes: int
    """Size of the compute buffer in bytes."""
    losses: list[float]
    gradients: list[dict[str, NDArray[Any]]]
    rows: Rows


def train_steps(
    library: Library, rows: Forward, parameters: Arrays, inputs: Arrays, mode: str, *,
    steps: int, rate: float, threads: int = 1, deny: Sequence[Unsafe] = (),
) -> Steps:  # fmt: skip
    """Task: train for `steps` steps and return the results.

    `deny` lists (op, source slot) pairs that pinning the source keeps apart (`pinned_donors`).
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
    """Task: run the plan of `mode` in lockstep with a reference that reuses no memory.

    Return the nodes at which the results differ, in order of execution.
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
    """Return the tensors in the denied source slots; ggml writes no result over a pinned tensor."""
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
    """One of the two compared graphs; the elements of tensors are arrays over ggml's memory."""

    def __init__(self, model: LibraryTransformer) -> None:
        ws = model.workspace
        self.model, self.ws = model, ws
        self.nodes = model.nodes()
        self.table = records(self.nodes)
        sources = dict.fromkeys(int(s) for row in self.table["src"] for s in row if s)
        self.views = {source: _elements(ws.library, source) for source in sources}
        self.results = [_elements(ws.library, node) for node in self.nodes]
        self.single = ws.context(tensors=1, graph_size=1).graph(size=1)
        ws.library.ggml_graph_add_node(self.single, self.nodes[0])
        self.ops = [ws.library.op_names[int(row["op"])] for row in self.table]
        self.skipped = [op in UNEXECUTED for op in self.ops]

    def at(self, node: int) -> NodeSide:
        """Return operands, result and compute function of one node of this graph."""
        operands = [self.views.get(int(source)) for source in self.table["src"][node]]
        return NodeSide(operands, self.results[node], partial(self.ws.compute_node, self.single, self.nodes[node]))


def _elements(library: Library, tensor: int) -> NDArray[Any]:
    record = records([tensor])[0]
    row = {column: record[column].tolist() for column in ("ne", "nb")}
    row |= {"type": bytes(library.ggml_type_name(int(record["type"]))).decode(), "nbytes": library.ggml_nbytes(tensor)}
    return elements_at(row, int(record["data"]))


def _arrays(parameters: Arrays, inputs: Arrays, rate: float) -> dict[str, NDArray[Any]]:
    return {**parameters, **inputs, HYPER: np.array([rate, 0], dtype=np.float32)}


def _require_survival(model: LibraryTransformer, rows: Rows) -> None:
    """Raise EngineError if a later node writes into the bytes of a gradient.

    Otherwise the host would read other bytes than the gradient.
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
                f"the gradient of {name!r} is overwritten before the step ends; the host cannot read it afterwards"
            )
