"""The tape against the list of calls: every kernel, every layout, every way a result can lie over an operand; what cannot be put on it."""

import ctypes

import numpy as np
import pytest
from numba import njit

from allocsim.allocators import find
from allocsim.errors import EngineError, UnknownNameError
from allocsim.programs.builder import ProgramBuilder
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.k_audit import default_cases
from engine.kernels import KERNELS, compiled
from engine.kernels.binding import Kernel
from engine.models.llama import LlamaConfig, batch, init_parameters, training_graph
from engine.runtime import Runtime
from engine.runtime.plan_memory import NUMPY_DTYPES
from engine.tape import Tape, loops

VARIANTS = [(kind, variant) for kind, variants in KERNELS.items() for variant in variants]
GAP = 256


def memory_of(shapes, shift):
    """Return (start of element 0 of each, bytes in all): apart where `shift` is None, else the last `shift` bytes after the first."""
    starts, end = [], GAP
    for dtype, shape, strides in shapes:
        starts.append(end)
        end += sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + NUMPY_DTYPES[dtype].itemsize
        end = -(-end // 64) * 64 + GAP
    if shift is not None:
        starts[-1] = starts[0] + shift
    return starts, end + GAP


def fill(memory, shapes, starts, seed):
    """Random numbers everywhere, small indices in the int32 operands."""
    generator = np.random.default_rng(seed)
    memory.view(np.float32)[:] = generator.standard_normal(len(memory) // 4)
    for (dtype, shape, strides), start in zip(shapes, starts, strict=True):
        array = np.ndarray(shape, NUMPY_DTYPES[dtype], memory.data, start, strides)
        array[...] = generator.integers(0, 3, shape) if dtype.startswith("i") else generator.standard_normal(shape)


def both(kernel, params, operands, results, shift, seed):  # noqa: PLR0917 - one case of a table
    """Return the memory after a call from Python and after the tape, and how many entries the tape has; None where `bind` refuses."""
    shapes = [*operands, *results]
    starts, size = memory_of(shapes, shift)
    builder = ProgramBuilder("one")
    buffer = builder.buffer("all", size)
    values = [
        builder.value(str(i), buffer, dtype, shape, strides=strides, offset=start)
        for i, ((dtype, shape, strides), start) in enumerate(zip(shapes, starts, strict=True))
    ]
    builder.op("it", values[: len(operands)], values[len(operands) :])
    program = builder.build()
    left = []
    for executor in ("calls", "tape"):
        memory = np.zeros(size, np.uint8)
        fill(memory, shapes, starts, seed)
        arrays = [
            np.ndarray(s, NUMPY_DTYPES[d], memory.data, at, strides)
            for (d, s, strides), at in zip(shapes, starts, strict=True)
        ]
        call = lambda _, a=arrays: kernel.bind(params, tuple(a[: len(operands)]), tuple(a[len(operands) :]))  # noqa: E731
        if executor == "calls":
            try:
                calls, entries = (call(0),), 0
            except EngineError:
                return None
        else:
            address = np.array([memory.ctypes.data + start for start in starts])
            tape = Tape(
                program,
                kernels=[(kernel, params)],
                kernel_of=np.zeros(1, np.int32),
                address=address,
                call=call,
                dtypes=NUMPY_DTYPES,
            )
            calls, entries = tape.calls, tape.entries
        with np.errstate(all="ignore"):
            for _ in range(2):
                for function, args in calls:
                    function(*args)
        left.append(memory.tobytes())
    return (*left, entries)


def strided(layout):
    """The same lengths with the axes in the opposite order in memory, and a gap after each element of the first of them."""
    dtype, shape, _ = layout
    step, strides = 2 * NUMPY_DTYPES[dtype].itemsize, []
    for n in shape:
        strides.append(step)
        step *= max(n, 1)
    return dtype, shape, tuple(strides)


@pytest.mark.parametrize(("kind", "variant"), VARIANTS)
def test_every_kernel_leaves_the_same_bits_from_the_tape(kind, variant):
    """Apart, exactly over the first operand, and a little off it; dense and strided."""
    kernel, seed, tried = KERNELS[kind][variant], 0, 0
    cases = default_cases({kind: KERNELS[kind]})
    for case in cases[:: max(len(cases) // 7, 1)]:
        laid = [[(la.dtype, la.shape, la.strides) for la in part] for part in (case.operands, case.results)]
        for operands, results in (laid, ([strided(la) for la in laid[0]], laid[1])):
            for shift in (None, 0, 32):
                seed += 1
                found = both(kernel, case.params, operands, results, shift, seed)
                if found is not None:
                    tried += 1
                    assert found[0] == found[1], (operands, results, shift)

    assert tried > 0


def training():
    """A small Llama's training step."""
    config = LlamaConfig(layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, vocab=96, seq=16)
    step = training_graph(config)
    return (
        lower(step.graph, reads=(step.loss,)),
        init_parameters(config, seed=1, learning_rate=0.05),
        batch(config, seed=1),
    )


@pytest.mark.parametrize("allocator", ["ggml", "reference"])
def test_training_on_the_tape_is_the_same_to_the_bit(allocator):
    """Losses of several steps, and the weights they leave."""
    lowered, parameters, inputs = training()
    plan = find(allocator).plan(lowered.program)
    calls, tape = (Runtime(lowered, plan, parameters=parameters, executor=executor) for executor in ("calls", "tape"))
    losses = [[runtime.run(inputs)["loss"].tobytes() for _ in range(3)] for runtime in (calls, tape)]

    assert losses[0] == losses[1]
    assert len(set(losses[0])) == 3
    assert all(mine[0].tobytes() == right[0].tobytes() for mine, right in zip(tape.blocks, calls.blocks, strict=True))


def test_ops_looked_at_one_by_one_are_the_same_ops(monkeypatch):
    """A runtime with a tape shows an observer every op, and `execute` does one."""
    lowered, parameters, inputs = training()
    plan = find("ggml").plan(lowered.program)
    seen = {}
    for executor in ("calls", "tape"):
        with Runtime(lowered, plan, parameters=parameters, executor=executor) as runtime:
            steps = seen[executor] = []
            runtime.run(
                inputs, observer=lambda step, _, results, s=steps: s.append((step, *(r.tobytes() for r in results)))
            )

    assert seen["calls"] == seen["tape"]
    assert len(seen["tape"]) == len(lowered.program.ops)


def scalars(turns=100):
    """A chain of scalars with its backward pass."""
    from engine.autodiff import backward  # noqa: PLC0415 - one test

    graph = Graph("chain")
    given = {"x": np.full(1, 0.25), "w": np.full(1, 0.9)}
    x, w = (graph.parameter(name, (1,), "f64", trainable=True) for name in given)
    y = x
    for _ in range(turns):
        y = graph.op("tanh", graph.op("mul", graph.op("add", y, x), w))
    return lower(graph, [y, *backward(graph, y).values()]), given


def test_a_graph_of_scalars_is_one_call():
    """All ops are on one stretch of tape, with one entry each."""
    lowered, parameters = scalars()
    runtime = Runtime(lowered, find("ggml").plan(lowered.program), parameters=parameters, executor="tape")

    assert len(runtime._calls) == 1
    assert runtime._calls[0][1][1] == sum(kernel is not None for kernel in lowered.kernels)


def test_an_op_that_has_no_form_is_called_where_it_stands(monkeypatch):
    """A kernel that is any Python function splits the tape in two, and the bits stay."""
    lowered, parameters = scalars(10)

    def python(x, y):
        np.tanh(x, out=y)

    table = {
        **KERNELS,
        "tanh": {
            "python": Kernel(in_place=((0, 0),), bind=lambda _, operands, results: (python, (*operands, *results)))
        },
    }
    strange = lower(lowered.graph, lowered.reads, registry=table)
    seed = {"loss_grad": np.ones(1)}
    expected = Runtime(lowered, find("ggml").plan(lowered.program), parameters=parameters).run(seed)
    runtime = Runtime(strange, find("ggml").plan(strange.program), parameters=parameters, executor="tape")
    out = runtime.run(seed)

    assert [call[0] for call in runtime._calls].count(python) == 10
    assert len(runtime._calls) == 21
    assert all(out[name].tobytes() == expected[name].tobytes() for name in expected)


def test_without_numpys_loops_ufuncs_are_called(monkeypatch):
    """A numpy whose structs do not read as expected costs speed and no bit."""
    lowered, parameters = scalars(10)
    plan, seed = find("ggml").plan(lowered.program), {"loss_grad": np.ones(1)}
    expected = Runtime(lowered, plan, parameters=parameters, executor="tape").run(seed)
    monkeypatch.setattr(loops, "readable", lambda: False)
    runtime = Runtime(lowered, plan, parameters=parameters, executor="tape")
    out = runtime.run(seed)

    assert len(runtime._calls) == sum(kernel is not None for kernel in lowered.kernels)
    assert all(out[name].tobytes() == expected[name].tobytes() for name in expected)


def test_a_kernel_that_raises_is_named():
    """A numba kernel with an exception stops the tape at its op."""

    @njit
    def refuse(x, y):
        if x[0] > 0:
            raise ValueError
        y[0] = x[0]

    table = {
        **KERNELS,
        "tanh": {"bad": Kernel(in_place=((0, 0),), bind=lambda _, o, r: (compiled.entry(refuse, (*o, *r)), (*o, *r)))},
    }
    graph = Graph("bad")
    y = graph.op("tanh", graph.op("neg", graph.input("x", (1,), "f64")), name="culprit")
    graph.expand(y)
    lowered = lower(graph, [y], registry=table)
    runtime = Runtime(lowered, find("ggml").plan(lowered.program), executor="tape")

    assert runtime.run({"x": np.ones(1)})["culprit"].tolist() == [-1.0]
    with pytest.raises(EngineError, match=r"the kernel of op 2 \('culprit'\) raised an exception"):
        runtime.run({"x": -np.ones(1)})


def test_an_unknown_executor_is_refused():
    """One line names it and those there are."""
    lowered, parameters = scalars(4)
    with pytest.raises(UnknownNameError, match="executor"):
        Runtime(lowered, find("ggml").plan(lowered.program), parameters=parameters, executor="disc")


def test_sums_are_numpys_at_every_length():
    """Pairwise, from the same neutral element: nothing, one, and lengths on both sides of numpy's blocks; signed zeros too."""
    for n in (0, 1, 7, 8, 127, 128, 129, 1000, 8191, 8192, 8193, 70_000):
        for name, dtype in (("f32", np.float32), ("f64", np.float64)):
            step = (np.dtype(dtype).itemsize,)
            found = both(KERNELS["sum"]["numpy"], {}, [(name, (n,), step)], [(name, (1,), step)], None, n)

            assert found is not None
            assert found[0] == found[1]
            assert found[2] == 2
    for n in (0, 1, 9):
        zeros, total = np.full(n, -0.0), np.empty(())
        expected = np.add.reduce(zeros)
        for driver, words, arrays, _ in loops.sum_call(zeros, total):
            shared, own = np.array(words), np.array([array.ctypes.data for array in arrays])
            ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)(driver)(
                shared.ctypes.data, own.ctypes.data
            )

        assert np.signbit(total) == np.signbit(expected)
