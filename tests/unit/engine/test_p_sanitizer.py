"""The sanitized engine: invisible where all is well, exact about who did what where it is not."""

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS, find
from allocsim.model import Document, Role, Run
from allocsim.p_sanitizer import describe
from allocsim.programs.builder import plan_of
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence, load, save
from engine.d_differential import HostRun, origins
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.kernels import KERNELS, Kernel
from engine.models.llama import LlamaConfig, batch, init_parameters, training_graph
from engine.p_sanitizer import Sanitizer
from engine.runtime import Runtime

TINY = LlamaConfig(
    layers=2,
    hidden=16,
    ffn=24,
    heads=4,
    kv_heads=2,
    vocab=20,
    seq=8,
    rope_theta=1e4,
    eps=1e-5,
    rank=2,
    alpha=4.0,
    targets=("q", "v"),
)


@pytest.fixture(scope="module")
def training():
    made = training_graph(TINY)
    return lower(made.graph, (made.loss,)), init_parameters(TINY, seed=1, learning_rate=0.1), batch(TINY, seed=1)


@pytest.mark.parametrize("name", ALLOCATORS)
def test_training_is_clean_and_the_same_to_the_bit_under_every_allocator(training, name):
    lowered, parameters, inputs = training
    plan = find(name).plan(lowered.program)
    with (
        Runtime(lowered, plan, parameters=parameters) as plain,
        Sanitizer(lowered, plan, parameters=parameters) as sanitizer,
    ):
        for _ in range(3):
            right, seen = plain.run(inputs), sanitizer.run(inputs)
            assert all(np.array_equal(right[key], seen[key]) for key in right)
        sanitizer.finish()
        assert sanitizer.incidents == ()
        assert sanitizer.monitor.traced == 2  # the third run began as the second


def with_kernel(kind, misdeed, variant="planted"):
    """Return a kernel table in which `kind` does its work and then `misdeed(operands, results)`."""
    honest = next(iter(KERNELS[kind].values()))

    def bind(params, operands, results):
        function, args = honest.bind(params, operands, results)

        def call():
            function(*args)
            misdeed(operands, results)

        return call, ()

    return {**KERNELS, kind: {variant: Kernel(bind=bind, in_place=honest.in_place)}}


def poke(array, offset, byte=0x3F):
    """Write four bytes at `offset` from the first byte of an array, wherever that is."""
    import ctypes  # noqa: PLC0415 - what a kernel in C can do

    ctypes.memset(array.__array_interface__["data"][0] + offset, byte, 4)


def chain(kernels=None, count=16):
    """Return a lowered x -> silu -> scale -> mul, read by the host; mul reads x again."""
    graph = Graph("chain")
    x = graph.input("x", (count,))
    w = graph.parameter("w", (count,), trainable=False)
    h = graph.op("silu", x)
    y = graph.op("scale", h, s=2.0)
    z = graph.op("mul", y, w)
    out = graph.op("add", z, x)
    graph.expand(out)
    return lower(graph, (out,), registry=kernels), {"x": np.linspace(-1, 1, count, dtype=np.float32)}


def slots(lowered, **offsets):
    """Return a plan by buffer name; the rest is kept apart."""
    names = lowered.program.buffers.names
    return plan_of(
        lowered.program, ["own" if name == "w" else offsets.get(name, 4096 + 64 * i) for i, name in enumerate(names)]
    )


def watched(lowered, plan, inputs, runs=2, **options):
    weights = {"w": np.ones(16, np.float32)}
    with Sanitizer(lowered, plan, parameters=weights, **options) as sanitizer:
        for _ in range(runs):
            sanitizer.run(inputs)
        sanitizer.finish()
        return sanitizer.incidents


def said(incidents):
    return {(i.kind, i.op, i.run) for i in incidents}


def step_of(lowered, kind):
    return next(op.step for op in lowered.program.ops if op.kind == kind)


def test_a_write_behind_the_result_is_pinned_on_its_kernel():
    lowered, inputs = chain(with_kernel("scale", lambda _, results: poke(results[0], 64)))
    found = watched(lowered, slots(lowered), inputs)
    step = step_of(lowered, "scale")
    assert said(found) == {("Overrun", step, 0), ("Overrun", step, 1)}
    assert found[0].bytes[0][1] - found[0].bytes[0][0] == 4
    assert "writes bytes" in found[0].message


def test_an_overrun_into_a_neighbour_names_whose_bytes_they_were():
    lowered, inputs = chain(with_kernel("scale", lambda _, results: poke(results[0], 64)))
    names = lowered.program.buffers.names
    plan = slots(lowered, x=64, **{names[3]: 0})
    (first, *_) = watched(lowered, plan, inputs)
    assert (first.kind, names[first.buffer], first.bytes) == ("Overrun", "x", ((0, 4),))
    assert first.held_op == 0
    assert "written by op 0 (x, host.write)" in describe(lowered.program, first)


def test_a_wild_write_far_away_is_found_and_pinned_in_the_second_run():
    """Nothing guards live bytes a kilobyte away, but they are verified when next used."""
    lowered, inputs = chain(with_kernel("silu", lambda operands, _: poke(operands[0], 4), variant="far"))
    names = lowered.program.buffers.names
    plan = slots(lowered, x=1024, **{names[2]: 0})
    found = watched(lowered, plan, inputs)
    assert said(found) >= {("OperandWritten", step_of(lowered, "silu"), 1)}


def test_verifying_after_every_op_pins_it_in_the_first_run():
    lowered, inputs = chain(with_kernel("silu", lambda operands, _: poke(operands[0], 4)))
    found = watched(lowered, slots(lowered), inputs, runs=1, every_op=True)
    assert said(found) == {("OperandWritten", step_of(lowered, "silu"), 0)}


def test_a_write_into_a_read_only_parameter_is_found():
    lowered, inputs = chain(with_kernel("mul", lambda operands, _: poke(operands[1], 8)))
    found = watched(lowered, slots(lowered), inputs, runs=3)
    # once written it holds what is written again: the change shows in the first run only
    assert [(i.kind, lowered.program.buffers.names[i.buffer], i.run) for i in found] == [("ReadOnlyWritten", "w", 0)]
    low, high = found[0].suspects
    assert low <= step_of(lowered, "mul") < high


def test_a_result_left_unwritten_is_found():
    def bind(_params, operands, results):
        return np.multiply, (operands[0][:8], np.float32(2), results[0][:8])

    table = {**KERNELS, "scale": {"half": Kernel(bind=bind)}}
    lowered, inputs = chain(table)
    (first, *_) = watched(lowered, slots(lowered), inputs)
    assert (first.kind, first.op, first.bytes) == ("ResultUnwritten", step_of(lowered, "scale"), ((32, 64),))


def test_a_result_left_unwritten_over_an_input_is_found():
    """What was live there is filled before the op: the numbers of an input could pass for a result."""

    def bind(_params, operands, results):
        return np.multiply, (operands[0][:8], np.float32(2), results[0][:8])

    graph = Graph("over")
    out = graph.op("scale", graph.op("silu", graph.input("x", (16,))), s=2.0)
    graph.expand(out)
    lowered = lower(graph, (out,), registry={**KERNELS, "scale": {"half": Kernel(bind=bind)}})
    with Sanitizer(lowered, plan_of(lowered.program, [0, 64, 0])) as sanitizer:
        sanitizer.run({"x": np.ones(16, np.float32)})
        (first, *_) = sanitizer.incidents
    assert (first.kind, first.op, first.bytes) == ("ResultUnwritten", step_of(lowered, "scale"), ((32, 64),))


def test_in_place_nothing_is_filled():
    graph = Graph("in place")
    out = graph.op("scale", graph.op("silu", graph.input("x", (16,))), s=2.0)
    graph.expand(out)
    lowered = lower(graph, (out,))
    plan = plan_of(lowered.program, [0, 0, 0])
    inputs = {"x": np.linspace(-1, 1, 16, dtype=np.float32)}
    with Runtime(lowered, plan) as plain, Sanitizer(lowered, plan) as sanitizer:
        assert all(np.array_equal(data, sanitizer.run(inputs)[name]) for name, data in plain.run(inputs).items())
        assert sanitizer.incidents == ()


def test_a_kernel_that_reads_a_released_slot_is_told_by_the_poison():
    kept = []

    def bind(_params, operands, results):
        kept.append(operands[0])

        def call():
            np.add(operands[0], kept[0], out=results[0])  # the first call's operand, long released in the second

        return call, ()

    graph = Graph("late")
    x = graph.input("x", (16,))
    h = graph.op("silu", graph.op("silu", x))
    out = graph.op("scale", graph.op("silu", graph.op("scale", h, s=2.0)), s=1.0)
    graph.expand(out)
    lowered = lower(graph, (out,), registry={**KERNELS, "scale": {"late": Kernel(bind=bind)}})
    plan = plan_of(lowered.program, [64 * i for i in range(len(lowered.program.buffers))])
    with Sanitizer(lowered, plan) as sanitizer:
        sanitizer.run({"x": np.ones(16, np.float32)})
        (found,) = sanitizer.incidents
    names = lowered.program.values.names
    assert (found.kind, lowered.program.ops.kinds[lowered.program.ops.kind[found.op]]) == ("PoisonRead", "scale")
    assert names[found.held_value] == h.name
    assert found.released_op == lowered.program.producer[found.held_value] + 1


def test_a_plan_that_takes_bytes_early_shows_the_late_reader():
    lowered, inputs = chain()
    names = lowered.program.buffers.names
    found = watched(lowered, slots(lowered, x=0, **{names[2]: 0}), inputs, runs=1)
    assert [(i.kind, i.op, names[i.buffer]) for i in found] == [("StaleRead", step_of(lowered, "add"), "x")]
    assert found[0].held_op == step_of(lowered, "silu")
    assert found[0].want_op == 0


def test_inputs_may_be_written_once_and_states_live_across_runs():
    graph = Graph("accumulate")
    x = graph.input("x", (8,))
    total = graph.state("total", (8,), reset=True)
    out = graph.op("add_inplace", total, x)
    graph.expand(out)
    lowered = lower(graph, (out,))
    plan = plan_of(
        lowered.program, ["own" if role == Role.STATE else 0 for role in lowered.program.buffers.role.tolist()]
    )
    with Sanitizer(lowered, plan) as sanitizer:
        sanitizer.run({"x": np.ones(8, np.float32)})
        result = sanitizer.run({}, skip=("x", "total"))
        assert np.array_equal(result[out.name], np.full(8, 2, np.float32))
        assert sanitizer.incidents == ()


def test_an_overrunning_kernel_is_the_kernels_fault_and_the_plan_is_legal(tmp_path):
    """C12, fault of the kernel: canaries speak, S has nothing to say, and the late reader D sees is no second cause."""
    lowered, inputs = chain(with_kernel("scale", lambda _, results: poke(results[0], 64)))
    names = lowered.program.buffers.names
    plan = slots(lowered, x=64, **{names[3]: 0})
    weights = {"w": np.ones(16, np.float32)}
    found = watched(lowered, plan, inputs)
    with (
        Runtime(lowered, plan, parameters=weights) as one,
        Runtime(lowered, find("reference").plan(lowered.program), parameters=weights) as other,
    ):
        differs = origins(one, other, [HostRun(inputs=inputs)] * 2)
    assert differs
    evidence = Evidence(
        document=Document.of(*[Run.of(plan)] * 2), audit=(), origins=differs, sanitizer=found, diverges=True
    )
    save(evidence, tmp_path)
    verdict = judge(load(tmp_path))
    assert verdict.classes == {("C12", "kernel")}
    assert verdict.detectors["S"]["status"] == "clean"
    assert verdict.detectors["P"]["status"] == "violations"
    assert verdict.joint[0].writer.op == step_of(lowered, "scale")
    assert verdict.joint[0].victim.buffer_name == "x"
    assert judge(Evidence(document=evidence.document, origins=differs, diverges=True)).classes == {
        ("unknown", "unknown")
    }
