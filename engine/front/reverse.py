"""Backward of the front: the recorded history as an engine graph, extended, planned, run.

The history of the tensor becomes a `Graph`, node for node; `engine.autodiff.backward` extends it. The forward values exist already,
so what is run is the part the extension added: every forward value it reads becomes an input of that program. Such a value must still
be what it was when it was recorded; a version that is gone is refused, with the names of the tensor and of the op that needs it. Forward values that
no derivative reads may change freely.

The program is lowered, planned by any allocator and bound to a `Runtime`. The bound program is kept by structure (ops, parameters, shapes,
dtypes, which leaves want gradients, allocator), for the `KEPT` latest structures of at most `KEPT_NODES` nodes: a training loop
plans once. A kept program keeps its arena. Not safe to call from several threads at once.

Gradients of gradients are not taken here: what comes back is data.
"""

import gc
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocsim.allocators import find
from allocsim.errors import EngineError
from engine.autodiff import SEED, backward
from engine.front.record import Node, history
from engine.graph import Graph, Tensor
from engine.kernels.binding import Array
from engine.lower import lower
from engine.runtime import Runtime

KEPT: Final = 16
KEPT_NODES: Final = 20_000

DEFAULT_ALLOCATOR: Final = "ggml"

BACKWARD: Final = "backward"
"""The stage of what `engine.autodiff.backward` adds."""

ONE: Final = "one"
"""Input that seeds the weighted sum of a tensor of several elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """A bound backward program; positions count the nodes of the history."""

    runtime: Runtime
    saved: tuple[tuple[int, str, str], ...]
    """Each forward value it reads: (position, name of the input, op whose derivative reads it)."""
    seeds: tuple[str, ...]
    """Which of `SEED` and `ONE` it reads."""
    gradients: tuple[tuple[int, str], ...]
    """Each leaf that wants a gradient: (position, name of what is read)."""


_kept: OrderedDict[Hashable, _Program] = OrderedDict()


def gradients(end: Node, seed: Array, allocator: str = DEFAULT_ALLOCATOR) -> list[tuple[Node, Array]]:
    """Return (leaf, gradient of sum(end * seed)) for each leaf `end` depends on that needs one.

    Args:
        end: what to differentiate; it needs a gradient.
        seed: shaped like the array of `end`.
        allocator: plans the memory of the backward pass; a name or `package.module:function`.

    Raises:
        EngineError: a derivative is missing, or a value it needs was changed in place.
    """
    if end.kind is None:
        return [(end, seed.copy())]
    order = history(end)
    program = _find(order, allocator)
    inputs: dict[str, Array] = {}
    for position, name, op in program.saved:
        node = order[position]
        if node.stale:
            raise EngineError(
                f"the derivative of {op} needs {node} as it was at version {node.version}; "
                f"{node.storage.changed_by} changed it in place (version {node.storage.version} now)"
            )
        inputs[name] = node.array
    for name in program.seeds:
        inputs[name] = seed if name == SEED else np.ones(1, seed.dtype)
    found = program.runtime.run(inputs)
    return [(order[position], found[name]) for position, name in program.gradients]


def _find(order: list[Node], allocator: str) -> _Program:
    if len(order) > KEPT_NODES:
        return _build(order, allocator)
    index = {node: position for position, node in enumerate(order)}
    key = (
        allocator,
        *(
            (n.kind, *(index[s] for s in n.sources), repr(n.params) if n.params else "")
            if n.kind is not None
            else (n.shape, n.dtype, n.needs_grad)
            for n in order
        ),
    )
    program = _kept.get(key)
    if program is None:
        program = _kept[key] = _build(order, allocator)
        if len(_kept) > KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return program


@contextmanager
def _without_collections() -> Iterator[None]:
    """Pause the collector of cycles: all that is built here stays, and looking through it again and again takes a fifth of the time."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@_without_collections()
def _build(order: list[Node], allocator: str) -> _Program:
    graph = Graph("front")
    tensors: dict[Node, Tensor] = {}
    for position, node in enumerate(order):
        if node.kind is None:
            tensors[node] = graph.input(f"leaf_{position}", node.shape, node.dtype)
        else:
            tensors[node] = graph.op(node.kind, *[tensors[s] for s in node.sources], **node.params)
    end = tensors[order[-1]]
    wanted = [position for position, node in enumerate(order) if node.kind is None and node.needs_grad]
    seed = graph.input(SEED, end.shape, end.dtype)
    if end.shape == (1,):
        found = backward(graph, end, parameters=[tensors[order[p]] for p in wanted], seed=seed)
    else:
        weighted = graph.op("sum", graph.op("mul", end, seed))
        one = graph.input(ONE, (1,), end.dtype)
        found = backward(graph, weighted, parameters=[tensors[order[p]] for p in wanted], seed=one)
    run, images, read = _cut(graph)
    results = {position: images[found[tensors[order[position]]]] for position in wanted}
    lowered = lower(run, results.values())
    runtime = Runtime(lowered, find(allocator).plan(lowered.program), threads=None)
    positions = {tensors[node].name: position for position, node in enumerate(order)}
    return _Program(
        runtime=runtime,
        saved=tuple((positions[name], name, op) for name, op in read.items() if name in positions),
        seeds=tuple(name for name in read if name not in positions),
        gradients=tuple((position, tensor.name) for position, tensor in results.items()),
    )


def _cut(graph: Graph) -> tuple[Graph, dict[Tensor, Tensor], dict[str, str]]:
    """Return what the extension added as a graph of its own, its tensors by the original ones, and name -> op of each input."""
    run = Graph("front.backward")
    images: dict[Tensor, Tensor] = {}
    read: dict[str, str] = {}
    added = [node for node in graph.nodes if node.stage == BACKWARD]
    users: dict[Tensor, list[Tensor]] = {}
    for node in graph.nodes:
        if node.stage != BACKWARD:
            for source in node.sources:
                users.setdefault(source, []).append(node)
    with run.scope(stage=BACKWARD):
        for node in added:
            for source in node.sources:
                if source not in images:
                    images[source] = run.input(source.name, source.shape, source.dtype)
                    read[source.name] = _differentiated(users.get(source, []), source, node)
            images[node] = run.op(node.kind or "", *[images[s] for s in node.sources], name=node.name, **node.params)
    for gradient in graph.gradients.values():
        if gradient not in images:  # the seed itself, handed through
            images[gradient] = run.input(gradient.name, gradient.shape, gradient.dtype)
            read[gradient.name] = ""
        run.expand(images[gradient])
    return run, images, read


def _differentiated(users: list[Tensor], value: Tensor, reader: Tensor) -> str:
    """Return the kind of the forward op whose derivative `reader` belongs to, as it reads `value`, which `users` use.

    The name of what a derivative adds starts with `grad.` and the tensor differentiated by: the op made `value` from that tensor, or
    has both among its sources.
    """
    by = reader.name.split(".")[1]
    makers = (value, *users) if value.kind is not None else users
    return next((node.kind or "" for node in makers if any(source.name == by for source in node.sources)), "")
