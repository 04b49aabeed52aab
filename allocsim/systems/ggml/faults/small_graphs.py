"""Four faults of ggml's graph allocator, each in a graph of a few nodes of eight elements.

Contract: every function is a task for a child process (`allocsim.systems.ggml.access.child`) and
returns a `FaultObservation`: the numbers with the fault and without it, and the rows of both runs.
`allocsim.systems.ggml.faults` has the table.

Source: reading and measuring ggml 0.13.1 to 0.26.0; llama.cpp issue 28448.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.structs import FLAGS, TENSOR
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rows import Rows, walk
from allocsim.systems.ggml.faults.observation import PLANNED, RIGHT, RUN, FaultObservation

N: Final = 8
"""Elements of the small graphs' tensors: one full vector register."""


def flag_alone(tensor: int, flag: int) -> None:
    """Set a flag in the tensor itself, as a binding or a copy of the struct does."""
    flags = ctypes.c_int32.from_address(tensor + TENSOR.fields["flags"][1])  # type: ignore[index]
    flags.value |= flag


class _Small:
    """A workspace with one context of eight-element tensors, one input x and a graph."""

    def __init__(self, ws: LibraryWorkspace) -> None:
        self.ws, self.library = ws, ws.library
        self.ctx = ws.context(tensors=64, graph_size=64)
        self.x = self.ctx.tensor("f32", N, name="x", flag="input")
        self.graph = self.ctx.graph(size=64)

    def op(self, builder: str, *arguments: Any, name: str = "") -> int:
        return self.ctx.op(builder, *arguments, name=name)

    def expand(self, *tensors: int) -> None:
        for tensor in tensors:
            self.library.ggml_build_forward_expand(self.graph, tensor)

    def compute(self, x: float) -> None:
        self.ws.put(self.x, np.full(N, x, dtype=np.float32))
        self.ws.compute(self.graph)

    def read(self, tensor: int) -> float:
        return float(self.ws.get(tensor).ravel()[0])


def stale_plan(library: Library) -> FaultObservation:
    """10 * n2 + n1, then 10 * n2 + n0 on the same allocator.

    N0's bytes went to n2 in the first plan, and still do.
    """

    def rewired(ws: LibraryWorkspace, *, last: str) -> tuple[_Small, int]:
        g = _Small(ws)
        n0 = g.op("cont", g.x, name="n0")
        n1 = g.op("add", n0, n0, name="n1")
        n2 = g.op("cont", g.x, name="n2")
        n3 = g.op("add", g.op("scale", n2, 10.0, name="10 n2"), n0 if last == "n0" else n1, name="n3")
        g.expand(n1, n3)
        return g, n3

    with LibraryWorkspace(library) as ws:
        planner = ws.planner()
        first, _ = rewired(ws, last="n1")
        ws.allocate(planner, first.graph)
        first_rows = walk(library, first.graph)
        second, result = rewired(ws, last="n0")
        ws.allocate(planner, second.graph)
        second.compute(3.0)
        found, rows = second.read(result), walk(library, second.graph)
        fresh, result = rewired(ws, last="n0")
        ws.allocate(ws.planner(), fresh.graph)
        fresh.compute(3.0)
        right = walk(library, fresh.graph)
        return FaultObservation(
            found=found, wanted=fresh.read(result), rows={PLANNED: first_rows, RUN: rows, RIGHT: right}
        )


def late_output(library: Library) -> FaultObservation:
    """`ggml_set_output` between reserve and alloc: the plan was made without it and is kept."""

    def doubled(ws: LibraryWorkspace) -> tuple[_Small, int]:
        g = _Small(ws)
        a = g.op("scale", g.x, 2.0, name="a")
        g.expand(g.op("scale", a, 15.0, name="b"))
        return g, a

    with LibraryWorkspace(library) as ws:
        g, a = doubled(ws)
        planner = ws.planner()
        library.ggml_gallocr_reserve(planner, g.graph)
        ws.pin([a])
        ws.allocate(planner, g.graph)
        g.compute(1.0)
        found, rows = g.read(a), walk(library, g.graph)
        told, a = doubled(ws)
        ws.pin([a])
        ws.allocate(ws.planner(), told.graph)
        told.compute(1.0)
        right = walk(library, told.graph)
        return FaultObservation(found=found, wanted=told.read(a), rows={RUN: rows, RIGHT: right}, untold=("a",))


def none_view(library: Library) -> FaultObservation:
    """The last reader of an op-NONE view gives back a count that was never taken.

    The root is freed under another view.
    """

    def viewed(ws: LibraryWorkspace, *, counted: bool) -> tuple[_Small, int]:
        g = _Small(ws)
        root = g.op("cont", g.x, name="root")
        view = g.op("view_1d", root, N, 0, name="view")
        other_view = g.op("view_1d", root, N, 0) if counted else g.op("view_tensor", root, name="op-NONE view")
        early = g.op("neg", other_view, name="early")
        other = g.op("scale", g.op("cont", g.x, name="other"), 10.0, name="10 other")
        late = g.op("add", view, other, name="late")
        g.expand(view, early, other, late)
        return g, late

    with LibraryWorkspace(library) as ws:
        g, late = viewed(ws, counted=False)
        ws.allocate(ws.planner(), g.graph)
        g.compute(3.0)
        found, rows = g.read(late), walk(library, g.graph)
        right, late = viewed(ws, counted=True)
        ws.allocate(ws.planner(), right.graph)
        right.compute(3.0)
        return FaultObservation(
            found=found, wanted=right.read(late), rows={RUN: rows, RIGHT: walk(library, right.graph)}
        )


def output_on_view(library: Library) -> FaultObservation:
    """OUTPUT on a view alone protects nothing.

    The root is freed. `by_setter` says what `ggml_set_output(view)` gives.
    """

    def viewed(ws: LibraryWorkspace, flag: Callable[[_Small, int, int], Any]) -> tuple[float, Rows]:
        g = _Small(ws)
        a = g.op("scale", g.x, 2.0, name="a")
        view = g.op("view_1d", a, N, 0, name="view")
        b = g.op("dup", view, name="b")
        flag(g, a, view)
        d = g.op("scale", g.op("dup", g.x, name="x again"), 100.0, name="d")
        g.expand(g.op("add", b, d, name="e"))
        ws.allocate(ws.planner(), g.graph)
        g.compute(3.0)
        return g.read(view), walk(library, g.graph)

    with LibraryWorkspace(library) as ws:
        found, rows = viewed(ws, lambda _, __, view: flag_alone(view, FLAGS["output"]))
        by_setter, _ = viewed(ws, lambda g, _, view: g.ws.pin([view]))
        wanted, right = viewed(ws, lambda g, a, view: g.ws.pin([a, view]))
        return FaultObservation(
            found=found, wanted=wanted, rows={RUN: rows, RIGHT: right}, detail={"by_setter": by_setter}
        )
