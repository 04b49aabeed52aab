"""Three faults of training with ggml: gradients that share a tensor, accumulators that are never
zeroed, and a graph that is planned twice.

Contract: each fault is a function that a child process runs, as in
`allocsim.systems.ggml.faults.small_graphs`. The two numbers of a `FaultObservation` of these faults
are norms of gradients.

The faults were found by reading and measuring ggml 0.13.1 to 0.26.0, and in ggml PR 999.
"""

import ctypes
from typing import Final

import numpy as np

from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.structs import FLAGS, graph_record, pointers, records
from allocsim.systems.ggml.access.workspace import Context, LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rows import Rows, compute_buffers, observe, walk, walk_nodes
from allocsim.systems.ggml.faults.observation import RIGHT, RUN, FaultObservation
from allocsim.systems.ggml.faults.small_graphs import N, flag_alone
from allocsim.systems.ggml.lora_training.transformer import TINY, build, differentiate, feed, initial, upload


def shared_gradient(library: Library) -> FaultObservation:
    """Read the gradient of a bias, which is the upstream gradient's own tensor.

    The next op of the backward pass overwrites this tensor in place before the host reads it.
    """

    def biased(ws: LibraryWorkspace, *, pinned: bool) -> tuple[float, Rows]:
        rng = np.random.default_rng(7)
        static, ctx = ws.context(tensors=8), ws.context(tensors=256, graph_size=128, gradients=True)
        weight = static.tensor("f32", N, N, name="weight", flag="param")
        bias = static.tensor("f32", N, 4, name="bias", flag="param")
        ws.apart(static)
        x = ctx.tensor("f32", N, 4, name="x", flag="input")
        labels = ctx.tensor("f32", N, 4, name="labels", flag="input")
        scores = ctx.op("add", ctx.op("scale", ctx.op("mul_mat", weight, x), 10.0), bias)
        loss = ctx.op("cross_entropy_loss", scores, labels, name="loss", flag="loss output")
        graph = ctx.graph(loss, size=128, gradients=True)
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
            flag_alone(gradient, FLAGS["output"])  # set after planning, so that only the document has it
        return found, walk(library, graph)

    with LibraryWorkspace(library) as ws:
        found, rows = biased(ws, pinned=False)
        wanted, right = biased(ws, pinned=True)
        return FaultObservation(
            found=found,
            wanted=wanted,
            rows={RUN: rows, RIGHT: right},
            untold=("grad for bias",),
            detail={"relative_error": abs(found - wanted) / wanted},
        )


def opt_accumulates(library: Library) -> FaultObservation:
    """Train with `ggml-opt`, period 1, and a graph that is built again for each step. The
    accumulators are never zeroed, so the gradients add up from step to step. The numbers `found`
    and `wanted` are those of step 3.
    """

    def gradients(*, zeroed: bool) -> tuple[list[float], Rows]:
        with LibraryWorkspace(library) as ws:
            static = ws.context(tensors=8)
            weight = static.tensor("f32", N, 3, name="weight", flag="param")
            ws.apart(static)
            rng = np.random.default_rng(3)
            ws.put(weight, rng.standard_normal((3, N), dtype=np.float32))
            scheduler = ws.scheduler(graph_size=1024)
            constants = (ctypes.c_float * 64)(
                1e-30, 0.9, 0.999, 1e-8, 0.0, 1e-30, 0.0
            )  # for adamw: alpha, betas, eps, wd; for sgd: alpha, wd
            params = library.ggml_opt_default_params(scheduler, CROSS_ENTROPY)
            params.get_opt_pars = library.address("ggml_opt_get_constant_optimizer_params")
            params.get_opt_pars_ud = ctypes.addressof(constants)
            opt = ws.own(library.ggml_opt_init(params), library.ggml_opt_free, "optimization context")
            ran = [_opt_step(ws, scheduler, opt, weight, zeroed=zeroed) for _ in range(STEPS)]
            return [norm for norm, _ in ran], ran[-1][1]

    norms, rows = gradients(zeroed=False)
    right, right_rows = gradients(zeroed=True)
    return FaultObservation(
        found=norms[-1], wanted=right[-1], rows={RUN: rows, RIGHT: right_rows}, owed=(ACCUMULATOR,), runs=STEPS,
        detail={"gradient_norms": norms},
    )  # fmt: skip


STEPS: Final = 3
ACCUMULATOR: Final = "accumulator of weight"
CROSS_ENTROPY: Final = 2
"""The value of `GGML_OPT_LOSS_TYPE_CROSS_ENTROPY`."""


def _opt_step(ws: LibraryWorkspace, scheduler: int, opt: int, weight: int, *, zeroed: bool) -> tuple[float, Rows]:
    """Build, allocate and run one training step; return the norm of the gradient, and rows.

    Each step has the same data. The learning rate is 1e-30, so the weights stay the same. The graph
    of ggml-opt is private, so the rows are made from the nodes that the scheduler reports.
    """
    library = ws.library
    ctx: Context = ws.context(tensors=256, graph_size=256, gradients=True)
    x = ctx.tensor("f32", N, 2, name="x", flag="input")
    outputs = ctx.op("mul_mat", weight, x, name="outputs", flag="output")
    graph = ctx.graph(outputs, size=256, gradients=True)
    library.ggml_opt_prepare_alloc(opt, ctx.pointer, graph, x, outputs)
    library.ggml_opt_alloc(opt, True)
    ws.put(x, np.arange(2 * N, dtype=np.float32).reshape(2, N) / N)
    ws.put(library.ggml_opt_labels(opt), np.eye(3, dtype=np.float32)[:2])
    gradient = library.ggml_opt_grad_acc(opt, weight)
    library.ggml_set_name(gradient, ACCUMULATOR.encode())
    if zeroed:
        ws.put(gradient, np.zeros((3, N), dtype=np.float32))
    with observe(library, scheduler) as nodes:
        library.ggml_opt_eval(opt, None)
    return float(np.linalg.norm(ws.get(gradient))), walk_nodes(library, nodes)


def forward_then_backward(library: Library) -> FaultObservation:
    """Plan a forward graph alone, then plan the graph with its backward pass over the same tensors.

    The numbers `found` and `wanted` are gradient norms.
    """

    def norm(ws: LibraryWorkspace, *, twice: bool) -> tuple[float, Rows, int]:
        arrays = initial(TINY, 0)
        model = build(ws, TINY, kind="forward")
        if twice:
            ws.allocate(ws.planner(), model.graph)
        differentiate(model)
        ws.allocate(ws.planner(), model.graph)
        raw = graph_record(model.graph)
        table = records([*pointers(int(raw["leafs"]), int(raw["n_leafs"])), *model.nodes()])
        rows = walk(library, model.graph, buffers=compute_buffers(library, table))
        upload(model, arrays)
        feed(model, arrays)
        model.run()
        gradients = [ws.get(tensor).ravel() for tensor in model.gradients.values()]
        return float(np.linalg.norm(np.concatenate(gradients))), rows, model.forward_nodes

    with LibraryWorkspace(library) as ws:
        found, rows, forward_nodes = norm(ws, twice=True)
        wanted, right, _ = norm(ws, twice=False)
        return FaultObservation(found=found, wanted=wanted, rows={RUN: rows, RIGHT: right}, planned_nodes=forward_nodes)
