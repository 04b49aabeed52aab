"""Four faults of ggml's graph allocator, each in a graph of a few nodes of eight elements.

Contract: each fault is a function that a child process runs (`allocsim.systems.ggml.access.child`).
Each function returns a `FaultObservation`: the numbers with the fault and without it, and the rows
of both runs. The table of faults is `FAULTS` in `allocsim.systems.ggml.faults`.

The faults were found by reading and measuring ggml 0.13.1 to 0.26.0, and in llama.cpp issue 28448.
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
"""The number of elements of each tensor of the small graphs: one full vector register."""


def flag_alone(tensor: int, flag: int) -> None:
    """Set a flag in the struct of a tensor, without ggml's setter. A binding may do the same."""
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

    def ran(self, x: float, read: int, planner: int = 0) -> tuple[float, Rows]:
        """Plan and run the graph on inputs `x`; return the first element of `read`, and rows."""
        self.ws.allocate(planner or self.ws.planner(), self.graph)
        self.ws.put(self.x, np.full(N, x, dtype=np.float32))
        self.ws.compute(self.graph)
        return float(self.ws.get(read).ravel()[0]), walk(self.library, self.graph)


def stale_plan(library: Library) -> FaultObservation:
    """Compute 10 * n2 + n1, then 10 * n2 + n0 with the same allocator. In the first plan n2 gets
    the bytes of n0. The allocator keeps this plan for the second graph, in which n0 is still
    needed.
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
        found, rows = second.ran(3.0, result, planner)
        fresh, result = rewired(ws, last="n0")
        wanted, right = fresh.ran(3.0, result)
        return FaultObservation(found=found, wanted=wanted, rows={PLANNED: first_rows, RUN: rows, RIGHT: right})


def late_output(library: Library) -> FaultObservation:
    """Call `ggml_set_output` between reserve and alloc: the plan without the flag is kept."""

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
        found, rows = g.ran(1.0, a, planner)
        told, a = doubled(ws)
        ws.pin([a])
        wanted, right = told.ran(1.0, a)
        return FaultObservation(found=found, wanted=wanted, rows={RUN: rows, RIGHT: right}, untold=("a",))


def none_view(library: Library) -> FaultObservation:
    """Read a tensor through a view after the planner has freed the tensor too early. A view of op
    NONE never increments the view count of its root, but its last reader decrements that count. The
    planner therefore frees the root while another view is still needed.
    """

    def viewed(ws: LibraryWorkspace, *, counted: bool) -> tuple[float, Rows]:
        g = _Small(ws)
        root = g.op("cont", g.x, name="root")
        view = g.op("view_1d", root, N, 0, name="view")
        other_view = g.op("view_1d", root, N, 0) if counted else g.op("view_tensor", root, name="op-NONE view")
        early = g.op("neg", other_view, name="early")
        other = g.op("scale", g.op("cont", g.x, name="other"), 10.0, name="10 other")
        late = g.op("add", view, other, name="late")
        g.expand(view, early, other, late)
        return g.ran(3.0, late)

    with LibraryWorkspace(library) as ws:
        (found, rows), (wanted, right) = viewed(ws, counted=False), viewed(ws, counted=True)
        return FaultObservation(found=found, wanted=wanted, rows={RUN: rows, RIGHT: right})


def output_on_view(library: Library) -> FaultObservation:
    """Flag only a view as OUTPUT, not its root: the planner frees the root before the host reads
    the view. The flag is set in the struct. `detail["by_setter"]` is the number that the host reads
    if `ggml_set_output(view)` sets the flag.
    """

    def viewed(ws: LibraryWorkspace, flag: Callable[[_Small, int, int], Any]) -> tuple[float, Rows]:
        g = _Small(ws)
        a = g.op("scale", g.x, 2.0, name="a")
        view = g.op("view_1d", a, N, 0, name="view")
        b = g.op("dup", view, name="b")
        flag(g, a, view)
        d = g.op("scale", g.op("dup", g.x, name="x again"), 100.0, name="d")
        g.expand(g.op("add", b, d, name="e"))
        return g.ran(3.0, view)

    with LibraryWorkspace(library) as ws:
        found, rows = viewed(ws, lambda _, __, view: flag_alone(view, FLAGS["output"]))
        by_setter, _ = viewed(ws, lambda g, _, view: g.ws.pin([view]))
        wanted, right = viewed(ws, lambda g, a, view: g.ws.pin([a, view]))
        return FaultObservation(
            found=found, wanted=wanted, rows={RUN: rows, RIGHT: right}, detail={"by_setter": by_setter}
        )
