"""Seven ways in which current ggml gives wrong numbers without a kernel being at fault, each on the real library.

Contract: `FAULTS[name]` holds what happens, whose fault it is in the terms of the verdict, and a task for a child process. A task returns
a `Finding`: the number found, the number wanted (the same graph, planned as it should have been), and the rows of every graph that ran, with
the addresses it really had, so that the checks can find the fault again without ggml.

Source: reading and measuring ggml 0.13.1 to 0.26.0; llama.cpp issue 28448, ggml PR 999, bugs.md 1.1.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from allocsim.allocators import ALLOCATORS, Constraints
from allocsim.model import Document, Run
from engine.ggml.capture import document
from engine.ggml.graph import Context, Workspace
from engine.ggml.layout import FLAGS, TENSOR, graph_record, pointers, records
from engine.ggml.library import Library
from engine.ggml.rows import Rows, compute_buffers, walk
from engine.ggml.transformer import TINY, build, differentiate, feed, initial, upload

N: Final = 8
"""Elements of the small graphs' tensors: one full vector register."""


@dataclass(slots=True, kw_only=True)
class Finding:
    """What one fault looks like."""

    found: float
    """The number the host reads."""
    wanted: float
    """The number it would read from a right plan."""
    rows: dict[str, Rows] = field(default_factory=dict)
    """Graphs that ran, by name, with their real addresses."""
    untold: tuple[str, ...] = ()
    """Tensors flagged OUTPUT after the plan was made: the host reads them, the planner did not know."""
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def wrong(self) -> bool:
        """Whether the fault shows."""
        return not abs(self.found - self.wanted) <= 1e-3 * abs(self.wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row of `FAULTS`."""

    summary: str
    party: str
    """At fault: plan or caller."""
    root_cause: str
    """Class of the catalogue, C01 to C15."""
    task: Callable[[Library], Finding]


def evidence(finding: Finding) -> Document | None:
    """Return what a check needs to find the fault again: the run, with what its planner was told; None where no graph was walked.

    A plan made for another program is a session: the program that ran, with the slots of the plan it was given.
    """
    if "run" not in finding.rows:
        return None
    ran = document(finding.rows["run"])
    if "planned" in finding.rows:
        plan = document(finding.rows["planned"]).plans[0]
        return Document.of(Run.of(plan, program=ran.programs[0]))
    if not finding.untold:
        return ran
    plan, program = ran.plans[0], ran.programs[0]
    assert plan.problem is not None
    told = np.array([name not in finding.untold for name in program.buffers.names]) & plan.problem.pinned
    believed = ALLOCATORS["ggml"].believe(program, Constraints.of(program, pins=told, own=plan.problem.own))
    return Document.of(replace(plan, problem=believed))


class _Small:
    """A workspace with one context of eight-element tensors, one input x and a graph."""

    def __init__(self, ws: Workspace) -> None:
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


def stale_plan(library: Library) -> Finding:
    """10 * n2 + n1, then 10 * n2 + n0 on the same allocator: n0's bytes went to n2 in the first plan, and still do."""

    def rewired(ws: Workspace, *, last: str) -> tuple[_Small, int]:
        g = _Small(ws)
        n0 = g.op("cont", g.x, name="n0")
        n1 = g.op("add", n0, n0, name="n1")
        n2 = g.op("cont", g.x, name="n2")
        n3 = g.op("add", g.op("scale", n2, 10.0, name="10 n2"), n0 if last == "n0" else n1, name="n3")
        g.expand(n1, n3)
        return g, n3

    with Workspace(library) as ws:
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
        return Finding(found=found, wanted=fresh.read(result), rows={"planned": first_rows, "run": rows})


def late_output(library: Library) -> Finding:
    """`ggml_set_output` between reserve and alloc: the plan was made without it and is kept."""

    def doubled(ws: Workspace) -> tuple[_Small, int]:
        g = _Small(ws)
        a = g.op("scale", g.x, 2.0, name="a")
        g.expand(g.op("scale", a, 15.0, name="b"))
        return g, a

    with Workspace(library) as ws:
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
        return Finding(found=found, wanted=told.read(a), rows={"run": rows}, untold=("a",))


def none_view(library: Library) -> Finding:
    """The last reader of an op-NONE view gives back a count that nobody took: the root is freed under another view."""

    def viewed(ws: Workspace) -> tuple[_Small, int]:
        g = _Small(ws)
        root = g.op("cont", g.x, name="root")
        view = g.op("view_1d", root, N, 0, name="view")
        early = g.op("neg", g.op("view_tensor", root, name="op-NONE view"), name="early")
        other = g.op("scale", g.op("cont", g.x, name="other"), 10.0, name="10 other")
        late = g.op("add", view, other, name="late")
        g.expand(view, early, other, late)
        return g, late

    with Workspace(library) as ws:
        g, late = viewed(ws)
        ws.allocate(ws.planner(), g.graph)
        g.compute(3.0)
        found, rows = g.read(late), walk(library, g.graph)
        apart, late = viewed(ws)
        ws.apart(apart.ctx)
        apart.compute(3.0)
        return Finding(found=found, wanted=apart.read(late), rows={"run": rows})


def output_on_view(library: Library) -> Finding:
    """OUTPUT on a view alone protects nothing: the root is freed. `by_setter` says what `ggml_set_output(view)` gives."""

    def viewed(ws: Workspace, flag: Callable[[_Small, int, int], Any]) -> tuple[float, Rows]:
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

    with Workspace(library) as ws:
        found, rows = viewed(ws, lambda _, __, view: _flag_alone(view, FLAGS["output"]))
        by_setter, _ = viewed(ws, lambda g, _, view: g.ws.pin([view]))
        wanted, _ = viewed(ws, lambda g, a, view: g.ws.pin([a, view]))
        return Finding(found=found, wanted=wanted, rows={"run": rows}, detail={"by_setter": by_setter})


def _flag_alone(tensor: int, flag: int) -> None:
    """Set a flag in the tensor itself, as a binding or a copy of the struct does."""
    flags = ctypes.c_int32.from_address(tensor + TENSOR.fields["flags"][1])  # type: ignore[index]
    flags.value |= flag


def shared_gradient(library: Library) -> Finding:
    """The gradient of a bias is the upstream gradient's own tensor, which the next op of the chain takes in place."""

    def biased(ws: Workspace, *, pinned: bool) -> tuple[float, Rows]:
        rng = np.random.default_rng(7)
        static, ctx = ws.context(tensors=8), ws.context(tensors=256, graph_size=128, gradients=True)
        weight = static.tensor("f32", N, N, name="weight", flag="param")
        bias = static.tensor("f32", N, 4, name="bias", flag="param")
        ws.apart(static)
        x = ctx.tensor("f32", N, 4, name="x", flag="input")
        labels = ctx.tensor("f32", N, 4, name="labels", flag="input")
        scores = ctx.op("add", ctx.op("scale", ctx.op("mul_mat", weight, x), 10.0), bias)
        loss = ctx.op("cross_entropy_loss", scores, labels, name="loss", flag="loss output")
        graph = ctx.graph(size=128, gradients=True)
        library.ggml_build_forward_expand(graph, loss)
        library.ggml_build_backward_expand(ctx.pointer, graph, None)
        gradient = library.ggml_graph_get_grad(graph, bias)
        if pinned:
            ws.pin([gradient])
        ws.allocate(ws.planner(), graph)
        library.ggml_graph_reset(graph)
        ws.put(weight, rng.standard_normal((N, N), dtype=np.float32))
        ws.put(bias, np.zeros((4, N), dtype=np.float32))
        ws.put(x, rng.standard_normal((4, N), dtype=np.float32))
        ws.put(labels, np.eye(N, dtype=np.float32)[:4])
        ws.compute(graph)
        found = float(np.linalg.norm(ws.get(gradient)))
        if not pinned:
            _flag_alone(gradient, FLAGS["output"])  # what the host reads, for the document; the plan is made
        return found, walk(library, graph)

    with Workspace(library) as ws:
        found, rows = biased(ws, pinned=False)
        wanted, _ = biased(ws, pinned=True)
        return Finding(
            found=found,
            wanted=wanted,
            rows={"run": rows},
            untold=("grad for bias",),
            detail={"relative_error": abs(found - wanted) / wanted},
        )


def opt_accumulates(library: Library) -> Finding:
    """`ggml-opt`, graphs built anew for every step, period 1: gradients add up from step to step. Found and wanted are of step 3."""
    with Workspace(library) as ws:
        static = ws.context(tensors=8)
        weight = static.tensor("f32", N, 3, name="weight", flag="param")
        ws.apart(static)
        rng = np.random.default_rng(3)
        ws.put(weight, rng.standard_normal((3, N), dtype=np.float32))
        scheduler = ws.scheduler(graph_size=1024)
        constants = (ctypes.c_float * 64)(
            1e-30, 0.9, 0.999, 1e-8, 0.0, 1e-30, 0.0
        )  # adamw: alpha, betas, eps, wd; sgd: alpha, wd
        params = library.ggml_opt_default_params(scheduler, CROSS_ENTROPY)
        params.get_opt_pars = library.address("ggml_opt_get_constant_optimizer_params")
        params.get_opt_pars_ud = ctypes.addressof(constants)
        opt = ws.own(library.ggml_opt_init(params), library.ggml_opt_free, "optimization context")
        norms = [_opt_step(ws, opt, weight) for _ in range(3)]
    return Finding(found=norms[2], wanted=norms[0], detail={"gradient_norms": norms})


CROSS_ENTROPY: Final = 2
"""`GGML_OPT_LOSS_TYPE_CROSS_ENTROPY`."""


def _opt_step(ws: Workspace, opt: int, weight: int) -> float:
    """Build, allocate and run one step on the same data and (but for 1e-30) the same weights; return the norm of the gradient."""
    library = ws.library
    ctx: Context = ws.context(tensors=256, graph_size=256, gradients=True)
    x = ctx.tensor("f32", N, 2, name="x", flag="input")
    outputs = ctx.op("mul_mat", weight, x, name="outputs", flag="output")
    graph = ctx.graph(size=256, gradients=True)
    library.ggml_build_forward_expand(graph, outputs)
    library.ggml_opt_prepare_alloc(opt, ctx.pointer, graph, x, outputs)
    library.ggml_opt_alloc(opt, True)
    ws.put(x, np.arange(2 * N, dtype=np.float32).reshape(2, N) / N)
    ws.put(library.ggml_opt_labels(opt), np.eye(3, dtype=np.float32)[:2])
    gradient = library.ggml_opt_grad_acc(opt, weight)
    library.ggml_opt_eval(opt, None)
    return float(np.linalg.norm(ws.get(gradient)))


def forward_then_backward(library: Library) -> Finding:
    """A forward graph planned alone, then its backward graph planned over the same tensors. Numbers are gradient norms."""

    def norm(ws: Workspace, *, apart: bool) -> tuple[float, dict[str, Rows]]:
        arrays = initial(TINY, 0)
        model = build(ws, TINY, kind="forward")
        rows = {}
        if not apart:
            ws.allocate(ws.planner(), model.graph)
            rows["forward"] = walk(library, model.graph)
        differentiate(model)
        if apart:
            ws.apart(model.contexts[1])
        else:
            ws.allocate(ws.planner(), model.graph)
            raw = graph_record(model.graph)
            table = records([*pointers(int(raw["leafs"]), int(raw["n_leafs"])), *model.nodes()])
            rows["run"] = walk(library, model.graph, buffers=compute_buffers(library, table))
        upload(model, arrays)
        feed(model, arrays)
        model.run()
        gradients = [ws.get(tensor).ravel() for tensor in model.gradients.values()]
        return float(np.linalg.norm(np.concatenate(gradients))), rows

    with Workspace(library) as ws:
        found, rows = norm(ws, apart=False)
        wanted, _ = norm(ws, apart=True)
        return Finding(found=found, wanted=wanted, rows=rows)


FAULTS: Final[dict[str, Fault]] = {
    "stale-plan": Fault(
        summary="a plan is keyed by node count and sizes only; a rewired graph reuses it", party="plan", root_cause="C08", task=stale_plan
    ),
    "late-output": Fault(
        summary="ggml_set_output after the plan is made is silently ignored", party="caller", root_cause="C05", task=late_output
    ),
    "none-view": Fault(
        summary="a view of op NONE is counted off its root without ever being counted on", party="plan", root_cause="C02", task=none_view
    ),
    "output-on-view": Fault(
        summary="OUTPUT on a view alone does not protect its root", party="plan", root_cause="C05", task=output_on_view
    ),
    "shared-gradient": Fault(
        summary="a bias shares the upstream gradient's tensor, which is then taken in place", party="caller", root_cause="C05",
        task=shared_gradient,
    ),
    "opt-accumulators": Fault(
        summary="ggml-opt with dynamic graphs and period 1 never zeroes its accumulators", party="caller", root_cause="C07",
        task=opt_accumulates,
    ),
    "forward-then-backward": Fault(
        summary="a backward graph is planned over forward tensors that were planned without it", party="caller", root_cause="C08",
        task=forward_then_backward,
    ),
}  # fmt: skip
"""The seven, by name."""
