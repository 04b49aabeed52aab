"""Memory, binding and the host's part of a run."""

import tracemalloc

import numpy as np
import pytest

from allocsim.allocators import find
from allocsim.errors import EngineError, PlannerError
from allocsim.model import Plan
from allocsim.programs.builder import plan_of
from engine.autodiff import backward
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.kernels import KERNELS, Kernel
from engine.kernels.binding import Workspace, scratch
from engine.models.llama import LlamaConfig, batch, init_parameters, training_graph
from engine.runtime import Runtime
from engine.runtime.plan_memory import BLOCK_ALIGNMENT, block


@pytest.fixture
def chain():
    """y = silu(2x), z = y + w, with x, y and z in the arena."""
    graph = Graph("chain")
    x, w = graph.input("x", (4,)), graph.parameter("w", (4,))
    double = graph.op("scale", x, s=2.0, name="double")
    y = graph.op("silu", double, name="y")
    z = graph.op("add", y, w, name="z")
    graph.expand(z)
    return lower(graph, [z])


ONES = np.ones(4, dtype=np.float32)


def offsets(lowered, **slots):
    names = lowered.program.buffers.names
    return plan_of(lowered.program, {names.index(name): offset for name, offset in slots.items()})


def test_run_returns_copies_by_name(chain):
    """What the host reads does not change with the next run."""
    with Runtime(chain, offsets(chain, x=0, double=32, y=64, z=96), parameters={"w": ONES}) as runtime:
        first = runtime.run({"x": ONES})["z"]
        kept = first.copy()
        second = runtime.run({"x": 2 * ONES})["z"]

    np.testing.assert_array_equal(first, kept)
    np.testing.assert_allclose(first, 2 / (1 + np.exp(-2)) + 1, rtol=1e-6)
    assert (second > first).all()


def test_an_unsound_plan_is_refused_in_one_line_that_names_the_first_violation(chain):
    """The same plan that runs as a suspect."""
    plan = offsets(chain, x=0, double=32, y=64, w=64, z=96)
    with pytest.raises(PlannerError, match=r"the plan of program '.*' is not sound: \w+: ") as raised:
        Runtime(chain, plan, parameters={"w": ONES})
    assert "\n" not in str(raised.value)
    assert "Violation(" not in str(raised.value)


def test_a_suspect_runs_as_it_is_placed(chain):
    """An overlap does to the numbers what it does to the bytes, and raises nothing: y over w makes z = y + y."""
    over = Runtime(chain, offsets(chain, x=0, double=32, y=64, w=64, z=96), parameters={"w": ONES}, suspect=True)

    np.testing.assert_allclose(over.run({"x": ONES})["z"], 2 * 2 / (1 + np.exp(-2)), rtol=1e-6)


def test_memory_is_kept_between_runs(chain):
    """An input that is skipped holds what the last run left in its bytes: its own data, or another's."""
    apart = Runtime(chain, offsets(chain, x=0, double=32, y=64, z=96), parameters={"w": ONES})
    reused = Runtime(chain, offsets(chain, x=0, double=32, y=64, z=0), parameters={"w": ONES})
    first = [runtime.run({"x": ONES})["z"] for runtime in (apart, reused)]
    again = [runtime.run({}, skip={"x"})["z"] for runtime in (apart, reused)]

    np.testing.assert_array_equal(*first)
    np.testing.assert_array_equal(again[0], first[0])
    assert not np.array_equal(again[1], first[1])


def test_read_only_parameters_are_not_copied_and_trained_ones_are():
    """Frozen weights are shared by address; a training step leaves the caller's array alone, in the arena or out of it."""
    graph = Graph("sgd")
    w, frozen = graph.parameter("w", (2,), trainable=True), graph.parameter("frozen", (2,))
    gradient = backward(graph, graph.op("sum", graph.op("mul", w, frozen)))[w]
    step = graph.op("opt_step_sgd", w, gradient, graph.parameter("hp", (2,)), name="step")
    graph.expand(step)
    lowered = lower(graph, [step])
    data = {"w": ONES[:2].copy(), "frozen": 3 * ONES[:2], "hp": np.array([0.5, 0.0], dtype=np.float32)}
    inputs = {"loss_grad": np.ones(1, dtype=np.float32)}
    placed = {name: 64 * i for i, name in enumerate(lowered.program.buffers.names)}
    for plan in (find("reference").plan(lowered.program), offsets(lowered, **placed)):
        runtime = Runtime(lowered, plan, parameters=data)
        shared = np.shares_memory(runtime.array(lowered.value_of[frozen]), data["frozen"])

        assert shared == (plan.source == "reference")
        assert runtime.run(inputs)["step"].tolist() == [-0.5, -0.5]
        assert runtime.run(inputs)["step"].tolist() == [-2.0, -2.0]
        assert data["w"].tolist() == [1.0, 1.0]


def test_accumulators_start_at_zero_and_reset_unless_skipped():
    """Gradients add up over the runs that skip the reset; the host may also give content."""
    graph = Graph("acc")
    w = graph.parameter("w", (2,), trainable=True)
    gradient = backward(graph, graph.op("sum", w), accumulate=True)[w]
    lowered = lower(graph, [gradient])
    runtime = Runtime(lowered, find("reference").plan(lowered.program), parameters={"w": ONES[:2]})
    seed = {"loss_grad": np.ones(1, dtype=np.float32)}

    def value(inputs, skip=()):
        return runtime.run(inputs, skip=skip)[gradient.name].tolist()

    assert value(seed, skip={"acc.w"}) == [1, 1]
    assert value(seed, skip={"acc.w"}) == [2, 2]
    assert value(seed) == [1, 1]
    assert value({**seed, "acc.w": 5 * ONES[:2]}) == [6, 6]


def test_observer_sees_every_step_and_the_bound_memory(chain):
    """One call for each op in order, with arrays that are the memory itself, and the same results as without."""
    plan = offsets(chain, x=0, double=32, y=64, z=96)
    plain = Runtime(chain, plan, parameters={"w": ONES}).run({"x": ONES})
    runtime = Runtime(chain, plan, parameters={"w": ONES})
    seen = []
    watched = runtime.run(
        {"x": ONES}, observer=lambda step, reads, writes: seen.append((step, len(reads), len(writes)))
    )

    assert seen == [(0, 0, 1), (1, 1, 1), (2, 1, 1), (3, 2, 1), (4, 1, 0)]
    np.testing.assert_array_equal(plain["z"], watched["z"])
    assert np.shares_memory(runtime.results(1)[0], runtime.arenas[0])
    assert runtime.results(1)[0] is runtime.operands(2)[0]


def test_stepwise_execution_is_a_run(chain):
    """Executing every step by hand gives what a run gives."""
    plan = offsets(chain, x=0, double=32, y=64, z=96)
    whole = Runtime(chain, plan, parameters={"w": ONES}).run({"x": ONES})
    runtime = Runtime(chain, plan, parameters={"w": ONES})
    for step in range(len(runtime.program.ops)):
        runtime.execute(step, {"x": ONES})

    np.testing.assert_array_equal(runtime.outputs()["z"], whole["z"])
    runtime.execute(0, {}, skip={"x"})
    with pytest.raises(EngineError, match="'x' is not given"):
        runtime.execute(0, {})


def test_a_run_takes_no_memory():
    """Between the host's copies, a run allocates less than the smallest tensor of the model."""
    config = LlamaConfig(layers=2, seq=16, vocab=1024)
    lowered = lower(training_graph(config).graph)
    runtime = Runtime(lowered, find("reference").plan(lowered.program), parameters=init_parameters(config, seed=0))
    data = batch(config, seed=0)
    runtime.run(data)
    tracemalloc.start()
    runtime.run(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < config.seq * config.hidden * 4


def test_calls_share_their_scratch():
    """Ops over operands that lie permuted copy them first: all into the same bytes, and the results are those of ops by themselves."""
    rng = np.random.default_rng(5)
    data = {f"x{i}": rng.standard_normal((3, 8 + i, 64), np.float32) for i in range(5)}
    graph = Graph("permuted")
    turned = [graph.op("permute", graph.input(name, x.shape), axes=(1, 0, 2)) for name, x in data.items()]
    found = [graph.op("soft_max", x, scale=0.5, name=f"y{i}") for i, x in enumerate(turned)]
    for y in found:
        graph.expand(y)
    lowered = lower(graph, found)
    with Runtime(lowered, find("reference").plan(lowered.program)) as runtime:
        out = runtime.run(data)

    for i, x in enumerate(data.values()):
        function, args = KERNELS["soft_max"]["one_pass"].bind(
            {"scale": 0.5}, (x.transpose(1, 0, 2),), (y := np.empty_like(out[f"y{i}"]),)
        )
        function(*args)
        np.testing.assert_array_equal(out[f"y{i}"], y)
    assert runtime._workspace.nbytes == 8192 + 16384, "copies of 6,144 to 9,216 bytes, in blocks of powers of two"


def test_scratch_of_one_call_is_apart_and_that_of_two_is_shared():
    """What a call asks for while it is bound is its own; the next call gets the same bytes."""
    taken = []

    def bind(params, operands, results):
        taken.append([scratch((n,), np.dtype(np.float64)) for n in (100, 3, 100, 0)])
        return len, (taken,)

    workspace, kernel = Workspace(), Kernel(bind=bind)
    for _ in range(2):
        workspace.bind(kernel, {}, (), ())
    bind({}, (), ())

    first, second, without = taken
    assert not any(np.shares_memory(a, b) for i, a in enumerate(first) for b in first[:i])
    assert all(a.ctypes.data == b.ctypes.data for a, b in zip(first, second, strict=True))
    assert not any(np.shares_memory(a, b) for a in first for b in without)
    assert all(a.ctypes.data % 64 == 0 for a in first if a.size)


def test_scratch_is_handed_out_anew_after_a_kernel_refused_its_operands():
    """A bind that fails leaves nothing behind."""

    def refuse(params, operands, results):
        raise EngineError("no")

    workspace = Workspace()
    with pytest.raises(EngineError, match="no"):
        workspace.bind(Kernel(bind=refuse), {}, (), ())
    scratch((8,), np.dtype(np.float32))

    assert workspace.nbytes == 0


def test_arenas_are_aligned_and_as_large_as_the_plan_says(chain):
    """One block up to the highest end of a slot, on a cache line."""
    (arena,) = Runtime(chain, offsets(chain, x=0, double=32, y=64, z=96), parameters={"w": ONES}).arenas

    assert arena.nbytes == 112
    assert arena.ctypes.data % 64 == 0


def slots(lowered, **changed):
    """Return a plan with x, double, y, z apart and the columns of z changed."""
    plan = offsets(lowered, x=0, double=32, y=64, z=96)
    index = lowered.program.buffers.names.index("z")
    columns = {name: getattr(plan, name).copy() for name in ("arena", "offset", "nbytes")}
    for name, number in changed.items():
        columns[name][index] = number
    return Plan(program=lowered.program, **columns)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"offset": -16}, "from -16"),
        ({"nbytes": 4}, r"value 'z' \[96, 112\) lies outside its memory of 100 bytes"),
        ({"arena": -2}, "buffer 'z' has no slot"),
        ({"offset": 97}, "not aligned to its item size 4"),
        ({"offset": 1 << 60}, "cannot be allocated"),
    ],
)
def test_slots_that_cannot_be_bound_are_refused(chain, changed, said):
    """A slot outside the arena, too small a one at its end, none, or an odd address."""
    with pytest.raises(EngineError, match=said):
        Runtime(chain, slots(chain, **changed), parameters={"w": ONES}, suspect=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "parameter w f32.4. is not given"),
        ({"w": ONES, "v": ONES}, "'v' is no parameter"),
        ({"w": ONES[:3]}, r"'w' is float32\[3\]; float32\[4\] is needed"),
        ({"w": ONES.astype(np.float64)}, "float64"),
        ({"w": [1.0] * 4}, "'w' is list"),
        ({"w": np.ones(8, dtype=np.float32)[::2]}, "not C-contiguous"),
    ],
)
def test_parameters_must_fit(chain, given, said):
    """Each parameter is given once, with its shape and dtype, dense."""
    with pytest.raises(EngineError, match=said):
        Runtime(chain, find("reference").plan(chain.program), parameters=given)


@pytest.mark.parametrize(
    ("inputs", "skip", "said"),
    [
        ({}, (), "'x' is not given and not skipped"),
        ({"x": ONES, "y": ONES}, (), "'y' is no input of .*; there are x"),
        ({"x": ONES}, ("y",), "'y' is no input"),
        ({"x": ONES[:3]}, (), r"float32\[3\]"),
    ],
)
def test_inputs_must_fit(chain, inputs, skip, said):
    """Inputs are checked before anything is written."""
    runtime = Runtime(chain, find("reference").plan(chain.program), parameters={"w": ONES})
    with pytest.raises(EngineError, match=said):
        runtime.run(inputs, skip=skip)


def test_plan_of_another_program_is_refused(chain):
    """Equal shapes do not make a plan fit; identity does."""
    twin = lower(chain.graph, chain.reads)
    with pytest.raises(EngineError, match="is not a plan of"):
        Runtime(chain, find("reference").plan(twin.program), parameters={"w": ONES})


def test_empty_tensors_run():
    """A shape with a zero takes no bytes and no part."""
    graph = Graph("empty")
    x = graph.input("x", (0, 4))
    total = graph.op("sum", graph.op("silu", x), name="total")
    graph.expand(total)
    lowered = lower(graph, [total])
    runtime = Runtime(lowered, find("reference").plan(lowered.program))

    assert runtime.run({"x": np.empty((0, 4), dtype=np.float32)})["total"].tolist() == [0]


@pytest.mark.parametrize("nbytes", [1, 63, 64, 100])
def test_a_block_has_bytes_on_both_sides_that_belong_to_nobody(nbytes):
    """A kernel under suspicion that misses by a few ruins no one's heap."""
    made = block(nbytes)
    before = made.ctypes.data - made.base.ctypes.data
    assert made.ctypes.data % BLOCK_ALIGNMENT == 0
    assert made.nbytes == nbytes
    assert before >= BLOCK_ALIGNMENT
    assert made.base.nbytes - before - nbytes >= BLOCK_ALIGNMENT
