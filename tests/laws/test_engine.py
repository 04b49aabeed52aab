"""Laws of the engine on generated graphs: meaning, derivatives, and that a sound plan is invisible.

A graph is a list of small recipes (an op and three numbers that choose among the tensors it fits), so that a failing one shrinks to
the few ops that matter. Graphs have views of views, strided operands, broadcasts, tensors read often and tensors never read.
"""

from math import prod

import engine_oracle
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from allocsim.allocators import ALLOCATORS, find
from allocsim.judge.fast import check
from allocsim.model import Document, Role, Run
from allocsim.programs.builder import plan_of
from engine.autodiff import backward, jvp
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.ops.shapes import repeats_into
from engine.p_sanitizer import Sanitizer
from engine.runtime import Runtime

SHAPES = ((2, 3, 4), (3, 4), (4, 4), (4,), (1, 4), (6, 2), (1, 1), (4, 1, 4))

UNARY = {
    "silu": {},
    "scale": {"s": -1.5},
    "rms_norm": {"eps": 0.5},
    "soft_max": {"scale": 0.7},
    "cont": {},
    "tanh": {},
    "gelu": {},
    "sigmoid": {},
    "clamp": {"low": -0.5, "high": 0.8},
    "norm": {"eps": 0.5},
    "log_soft_max": {},
    "stop_gradient": {},
}


def one(kind):
    return lambda graph, x, i, j: graph.op(kind, x(i), **UNARY[kind])


def same_shape(kind):
    def build(graph, x, i, j):
        a = x(i)
        b = x(j, lambda t: t.shape == a.shape)
        return graph.op(kind, a, b)

    return build


def broadcast(kind):
    def build(graph, x, i, j):
        a = x(i)
        return graph.op(kind, a, x(j, lambda t: repeats_into(t.shape, a.shape)))

    return build


def product(kind, axis):
    def build(graph, x, i, j):
        b = x(i, lambda t: len(t.shape) >= 2)

        def fits(t):
            return len(t.shape) >= 2 and t.shape[axis] == b.shape[axis] and repeats_into(t.shape[:-2], b.shape[:-2])

        return graph.op(kind, x(j, fits), b)

    return build


def turned(graph, x, i, j):
    a = x(i)
    shift = j % len(a.shape)
    return graph.op("permute", a, axes=tuple((axis + shift) % len(a.shape) for axis in range(len(a.shape))))


def transposed(graph, x, i, j):
    return graph.op("transpose", x(i, lambda t: len(t.shape) >= 2))


def repeated(graph, x, i, j):
    a = x(i, lambda t: len(t.shape) < 3)
    return graph.op("repeat", a, shape=(1 + j % 3, *a.shape))


def flat(graph, x, i, j):
    a = x(i, lambda t: t.contiguous)
    half = next((n for n in (3, 2) if prod(a.shape) % n == 0), 1)
    return graph.op("reshape", a, shape=(prod(a.shape),) if j % 2 else (half, prod(a.shape) // half))


def slab(graph, x, i, j):
    a = x(i, lambda t: t.contiguous)
    strides = tuple(prod(a.shape[axis + 1 :]) for axis in range(len(a.shape)))
    start = j % a.shape[0]
    return graph.op("view", a, shape=(a.shape[0] - start, *a.shape[1:]), strides=strides, offset=start * strides[0])


def folded(graph, x, i, j):
    a = x(i)
    return graph.op("repeat_back", a, shape=(1, *a.shape[1:]) if j % 2 else a.shape[-1:])


def over_axes(kind):
    def build(graph, x, i, j):
        a = x(i)
        return graph.op(kind, a, axes=j % len(a.shape), keepdims=bool(j & 4))

    return build


def window(graph, x, i, j):
    a = x(i)
    starts = tuple((j + axis) % n for axis, n in enumerate(a.shape))
    return graph.op(
        "slice", a, starts=starts, lengths=tuple(n - start for n, start in zip(a.shape, starts, strict=True))
    )


def padded(graph, x, i, j):
    a = x(i, lambda t: prod(t.shape) < 40)
    before = tuple(int(axis == j % len(a.shape)) for axis in range(len(a.shape)))
    return graph.op("pad", a, before=before, after=before[::-1], value=0.5 * (j % 3))


def joined(graph, x, i, j):
    a = x(i, lambda t: prod(t.shape) < 40)
    axis = j % len(a.shape)
    apart = lambda t: (*t.shape[:axis], *t.shape[axis + 1 :])  # noqa: E731
    return graph.op("concat", a, x(j, lambda t: len(t.shape) == len(a.shape) and apart(t) == apart(a)), axis=axis)


def inserted(kind):
    def build(graph, x, i, j):
        a = x(i)
        fits = lambda t: len(t.shape) == len(a.shape) and all(m <= n for n, m in zip(a.shape, t.shape, strict=True))  # noqa: E731
        b = x(j, fits)
        return graph.op(kind, a, b, starts=tuple(n - m for n, m in zip(a.shape, b.shape, strict=True)))

    return build


def looked_up(graph, x, i, j):
    """Elements by the places of the largest, which are data; in f32 and f64 the same, since the oracle finds them too."""
    a = x(i, lambda t: len(t.shape) >= 2)
    axis = j % len(a.shape)
    ids = graph.op("argmax", a, axis=axis)
    kept = tuple(1 if k == axis else n for k, n in enumerate(a.shape))
    return graph.op("gather", a, graph.op("reshape", ids, shape=kept), axis=axis)


def attended(graph, x, i, j):
    q = x(i, lambda t: len(t.shape) == 2)
    k = x(j, lambda t: len(t.shape) == 2 and t.shape[1] == q.shape[1])
    return graph.op("attention", q, k, k, scale=0.5)


def chosen(graph, x, i, j):
    a = x(i)
    b = x(j, lambda t: t.shape == a.shape)
    return graph.op("where", graph.op("step", b), a, b)


def pooled(graph, x, i, j):
    a = x(i, lambda t: t.contiguous and prod(t.shape) % 4 == 0)
    image = graph.op("reshape", a, shape=(1, prod(a.shape) // 4, 2, 2))
    return graph.op("avg_pool", image, kernel=(1 + j % 2, 2), stride=1)


def columns(graph, x, i, j):
    a = x(i, lambda t: t.contiguous and prod(t.shape) % 4 == 0 and prod(t.shape) <= 48)
    image = graph.op("reshape", a, shape=(1, prod(a.shape) // 4, 2, 2))
    return graph.op("im2col", image, kernel=2, padding=j % 2)


def filtered(graph, x, i, j):
    a = x(i, lambda t: t.contiguous and prod(t.shape) % 4 == 0 and prod(t.shape) <= 48)
    image = graph.op("reshape", a, shape=(prod(a.shape) // 4, 1, 2, 2))
    return graph.op(
        "conv_2d",
        image,
        graph.op("slice", image, starts=(0,) * 4, lengths=(1, 1, 2, 1 + j % 2)),
        padding=1,
        stride=1 + j % 3,
    )


def rounded(graph, x, i, j):
    a = x(i)
    return graph.op("cast", graph.op("cast", a, dtype=("bf16", "f16")[j % 2]), dtype=a.dtype)


RECIPES = (
    *(one(kind) for kind in UNARY),
    same_shape("swiglu"),
    *(broadcast(kind) for kind in ("add", "sub", "mul", "maximum")),
    product("mul_mat", -1),
    product("out_prod", -2),
    turned,
    transposed,
    flat,
    slab,
    folded,
    repeated,
    over_axes("sum_axes"),
    over_axes("mean"),
    window,
    padded,
    joined,
    inserted("acc"),
    inserted("set"),
    looked_up,
    attended,
    chosen,
    pooled,
    columns,
    filtered,
)

STORED = (*RECIPES, rounded)
"""With 16-bit storage, for laws that compare runs with runs; the oracle in float64 rounds nothing."""

numbers = st.integers(0, 7)
recipes = st.lists(st.tuples(st.integers(0, len(RECIPES) - 1), numbers, numbers), min_size=1, max_size=10)
with_stored = st.lists(st.tuples(st.integers(0, len(STORED) - 1), numbers, numbers), min_size=1, max_size=10)


def build(steps, dtype, *, differentiable=True):
    """Return (graph, loss): of eight leafs four are trained; every result that nothing reads counts in the loss.

    With `differentiable`, nothing reads the result of an op that has no derivative.
    """
    graph = Graph("generated")
    tensors = [
        graph.parameter(f"w{i}", shape, dtype, trainable=True) if i % 2 else graph.input(f"x{i}", shape, dtype)
        for i, shape in enumerate(SHAPES)
    ]

    def usable(tensor):
        return not differentiable or tensor.is_leaf or bool(tensor.rule.derivatives)

    def choose(number, fits=lambda _: True):
        found = [tensor for tensor in tensors if usable(tensor) and fits(tensor)]
        return found[-1 - number % len(found)]

    for recipe, i, j in steps:
        tensors.append(STORED[recipe](graph, choose, i, j))
    read = {source for tensor in tensors for source in tensor.sources}
    ends = [tensor for tensor in tensors if usable(tensor) and (tensor not in read or tensor.trainable)]
    parts = [graph.op("sum", graph.op("rms_norm", tensor, eps=1.0)) for tensor in ends]
    loss = parts[0]
    for part in parts[1:]:
        loss = graph.op("add", loss, part)
    graph.expand(loss, *(tensor for tensor in tensors if not usable(tensor)))
    return graph, loss


def data_for(graph, seed):
    generator = np.random.default_rng(seed)
    dtypes = {"f32": np.float32, "f64": np.float64}
    return {leaf.name: generator.standard_normal(leaf.shape).astype(dtypes[leaf.dtype]) for leaf in graph.leafs}


def run(lowered, plan, data, executor="calls"):
    roles = {leaf.name: leaf.role for leaf in lowered.graph.leafs}
    parameters = {n: a for n, a in data.items() if roles[n] == Role.PARAMETER}
    runtime = Runtime(lowered, plan, parameters=parameters, threads=None, executor=executor, suspect=True)
    return runtime.run({n: a for n, a in data.items() if roles[n] == Role.INPUT})


def random_plan(program, seed):
    """Place buffers in random order at the lowest free offset, from the accesses of the ops and nothing else."""
    generator = np.random.default_rng(seed)
    count = len(program.buffers)
    first, last = np.full(count, len(program.ops)), np.full(count, -1)
    for op in program.ops:
        if op.kind != "view":
            for value in (*op.operands, *op.results):
                buffer = program.values[value].buffer
                first[buffer], last[buffer] = min(first[buffer], op.step), max(last[buffer], op.step)
    offsets, placed = {}, []
    for buffer in generator.permutation(np.flatnonzero(~program.buffers.persistent)).tolist():
        nbytes = int(program.buffers.nbytes[buffer])
        blocks = sorted((o, e) for b, o, e in placed if first[b] <= last[buffer] and first[buffer] <= last[b])
        offset = 32 * int(generator.integers(0, 3))
        for start, end in blocks:
            if start < offset + nbytes and offset < end:
                offset = -(-end // 32) * 32
        offsets[buffer] = offset
        placed.append((buffer, offset, offset + nbytes))
    return plan_of(program, offsets)


@given(steps=recipes, seed=st.integers(0, 99))
def test_a_graph_means_what_its_ops_mean(steps, seed):
    """Loss and gradients in f64 are those of the plain interpretation and of HIPS autograd."""
    graph, loss = build(steps, "f64")
    data = data_for(graph, seed)
    expected_loss = engine_oracle.interpret(graph, data)[loss]
    expected = engine_oracle.gradients(graph, loss, graph.trainable, data)
    found = backward(graph, loss)
    lowered = lower(graph, [loss, *found.values()])
    out = run(lowered, find("reference").plan(lowered.program), {**data, "loss_grad": np.ones(1)})

    np.testing.assert_allclose(out[loss.name], expected_loss, rtol=1e-9, atol=1e-9)
    for parameter, gradient in found.items():
        np.testing.assert_allclose(out[gradient.name], expected[parameter], rtol=1e-8, atol=1e-9)


@given(steps=with_stored, seed=st.integers(0, 99))
def test_a_sound_plan_is_invisible(steps, seed):
    """Under random sound plans and under ggml's, with its in-place reuse, results in f32 are bit for bit those without reuse."""
    graph, loss = build(steps, "f32")
    found = backward(graph, loss)
    lowered = lower(graph, [loss, *found.values()])
    data = data_for(graph, seed)
    expected = run(lowered, find("reference").plan(lowered.program), data)
    for plan in (find("ggml").plan(lowered.program), random_plan(lowered.program, seed)):
        out = run(lowered, plan, data)

        assert all(np.array_equal(out[name], expected[name], equal_nan=True) for name in expected), plan


@given(steps=recipes, seed=st.integers(0, 99))
@settings(max_examples=20)
def test_forward_mode_is_the_transpose_of_backward_and_second_derivatives_are_symmetric(steps, seed):
    """Along v the loss changes by its gradient times v; and u times the change of the gradient along v is v times that along u."""
    graph, loss = build(steps, "f64")
    found = backward(graph, loss)
    u, v = ({p: graph.input(f"{name}.{p.name}", p.shape, "f64") for p in found} for name in "uv")
    (slope,) = jvp(graph, [loss], v)
    along = [jvp(graph, found.values(), direction) for direction in (u, v)]
    dots = [
        graph.op("sum", graph.op("mul", h, d))
        for hs, ds in zip(along, (v, u), strict=True)
        for h, d in zip(hs, ds.values(), strict=True)
    ]
    graph.expand(*dots)
    lowered = lower(graph, [slope, *found.values(), *dots])
    data = {**data_for(graph, seed), "loss_grad": np.ones(1)}
    plans = {"calls": "reference", "tape": "ggml"}
    out, again = (run(lowered, find(plan).plan(lowered.program), data, executor) for executor, plan in plans.items())
    expected = sum(np.sum(out[gradient.name] * data[v[p].name]) for p, gradient in found.items())
    half = len(dots) // 2
    vhu, uhv = (np.array([out[dot.name][0] for dot in part]) for part in (dots[:half], dots[half:]))

    assert all(out[name].tobytes() == again[name].tobytes() for name in out)
    np.testing.assert_allclose(out[slope.name][0], expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(vhu.sum(), uhv.sum(), rtol=1e-7, atol=1e-8 * (1 + np.abs(vhu).sum()))


def careless_plan(program, seed):
    """Place buffers anywhere in as much memory as the largest two take."""
    generator = np.random.default_rng(seed)
    temporary = np.flatnonzero(~program.buffers.persistent).tolist()
    nbytes = program.buffers.nbytes
    room = int(np.sort(nbytes[temporary])[-2:].sum())
    return plan_of(program, {b: 8 * int(generator.integers(0, (room - int(nbytes[b])) // 8 + 1)) for b in temporary})


@given(steps=with_stored, seed=st.integers(0, 99), dtype=st.sampled_from(["f32", "f64"]))
def test_both_executors_leave_the_same_bits_under_any_plan(steps, seed, dtype):
    """The tape and the list of calls agree in all memory, not only in what is read: with sound plans, and with one that is not."""
    graph, loss = build(steps, dtype)
    found = backward(graph, loss)
    lowered = lower(graph, [loss, *found.values()])
    data = data_for(graph, seed)
    parameters = {leaf.name: data[leaf.name] for leaf in graph.leafs if leaf.role == Role.PARAMETER}
    inputs = {name: array for name, array in data.items() if name not in parameters}
    plans = [find(name).plan(lowered.program) for name in ("reference", "ggml")]
    for plan in (*plans, random_plan(lowered.program, seed), careless_plan(lowered.program, seed)):
        calls, tape = (
            Runtime(lowered, plan, parameters=parameters, threads=None, executor=e, suspect=True)
            for e in ("calls", "tape")
        )
        for _ in range(2):
            expected, out = calls.run(inputs), tape.run(inputs)

            assert all(out[name].tobytes() == expected[name].tobytes() for name in expected), plan
        for mine, right in zip(tape.blocks, calls.blocks, strict=True):
            assert mine[0].tobytes() == right[0].tobytes(), plan


@given(steps=with_stored, seed=st.integers(0, 99))
@settings(max_examples=10)
def test_the_sanitizer_leaves_sound_plans_and_honest_kernels_alone(steps, seed):
    """Under every allocator, run twice in guarded memory, results are bit for bit those of a plain run, and nobody is accused."""
    graph, loss = build(steps, "f32")
    found = backward(graph, loss)
    lowered = lower(graph, [loss, *found.values()])
    data = data_for(graph, seed)
    expected = run(lowered, find("reference").plan(lowered.program), data)
    parameters = {leaf.name: data[leaf.name] for leaf in graph.leafs if leaf.role == Role.PARAMETER}
    inputs = {name: array for name, array in data.items() if name not in parameters}
    for plan in (*(find(name).plan(lowered.program) for name in ALLOCATORS), random_plan(lowered.program, seed)):
        with Sanitizer(lowered, plan, parameters=parameters) as sanitizer:
            for _ in range(2):
                out = sanitizer.run(inputs)
                assert all(np.array_equal(out[name], expected[name], equal_nan=True) for name in expected), plan
            sanitizer.finish()
            assert sanitizer.incidents == ()


@given(steps=with_stored, seed=st.integers(0, 99), accumulate=st.booleans())
@settings(max_examples=25)
def test_lowered_programs_are_clean(steps, seed, accumulate):
    """Run twice, with resets or without, the judge finds nothing: not in the program, not in a sound plan, not in ggml's belief."""
    graph, loss = build(steps, "f32")
    found = backward(graph, loss, accumulate=accumulate)
    lowered = lower(graph, [loss, *found.values()])
    kept = lowered.skip(*(f"acc.{parameter.name}" for parameter in found)) if accumulate else ()
    for plan in (
        find("reference").plan(lowered.program),
        find("ggml").plan(lowered.program),
        random_plan(lowered.program, seed),
    ):
        report = check(Document.of(Run.of(plan), Run.of(plan, skip=kept)))

        assert report.violations == ()


@given(steps=with_stored)
@settings(max_examples=25)
def test_every_op_that_runs_comes_after_what_it_reads(steps):
    """The order is topological, complete and without repeats, in the graph and in its program."""
    graph, _ = build(steps, "f32", differentiable=False)
    order = {tensor: place for place, tensor in enumerate((*graph.leafs, *graph.nodes))}
    lowered = lower(graph)

    assert len(order) == len(graph.leafs) + len(graph.nodes)
    assert all(order[source] < order[node] for node in graph.nodes for source in node.sources)
    for node in graph.nodes:
        op = lowered.program.ops[lowered.step_of[node]]
        assert op.operands == tuple(lowered.value_of[source] for source in node.sources)
        assert op.results == (lowered.value_of[node],)
