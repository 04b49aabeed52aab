"""Laws of detector D: a sound plan is invisible in every mode, and float64 tells corruption of small magnitude from rounding."""

from functools import cache

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS, PINS, Constraints, find
from allocsim.errors import EngineError
from engine.d_differential import HostRun, side_comparison
from engine.d_differential.distance import gap_of
from engine.d_differential.side_comparison import Side, SideExecutor, compare
from engine.graph.lowering import lower
from engine.graph.widening import in_float64, widened
from engine.kernels import KERNELS, Kernel
from engine.models.llama import LlamaConfig, batch, init_parameters, training_graph
from engine.runtime import Runtime

CONFIG = LlamaConfig(layers=2, hidden=32, ffn=48, heads=4, kv_heads=2, vocab=48, seq=8)
STEPS = 3


def reversed_sums(kind, flips):
    """A matrix product that adds in the opposite order: as right as the other, and other bits."""
    plain = KERNELS[kind]["blas"].bind

    def bind(params, operands, results):
        turned = [np.empty(x.shape, x.dtype) for x in operands]
        function, arguments = plain(params, tuple(turned), results)

        def call():
            for target, source, axis in zip(turned, operands, flips, strict=True):
                np.copyto(target, np.flip(source, axis))
            function(*arguments)

        return call, ()

    return Kernel(bind=bind)


def spoiled(kind, variant, size):
    """The kernel with one element off by `size` of the largest."""
    plain = KERNELS[kind][variant].bind

    def bind(params, operands, results):
        function, arguments = plain(params, operands, results)

        def call():
            function(*arguments)
            out = results[0].reshape(-1)
            out[out.size // 2] += np.abs(out).max() * out.dtype.type(size)

        return call, ()

    return Kernel(bind=bind, in_place=KERNELS[kind][variant].in_place)


@cache
def graph():
    return training_graph(CONFIG)


def lowered(kind=None, kernel=None):
    registry = dict(KERNELS)
    if kind is not None:
        registry[kind] = {"other": kernel}
    return lower(graph().graph, (graph().loss,), registry=registry)


@cache
def data(seed):
    return init_parameters(CONFIG, seed=seed, lora_std=0.3), batch(CONFIG, seed=seed + 1)


def courses(*sides, seed=0, lockstep=1, truth=True, steps=STEPS):
    """Compare (name, lowered, plan) sides with the reference and the truth of the plain program."""
    parameters, inputs = data(seed)
    plain = lowered()
    wide = in_float64(plain)
    reference = Side(name="reference", lowered=plain, plan=find("reference").plan(plain.program), parameters=parameters)
    exact = Side(
        name="float64", lowered=wide, plan=find("reference").plan(wide.program), parameters=widened(parameters)
    )
    made = [
        side if isinstance(side, Side) else Side(name=side[0], lowered=side[1], plan=side[2], parameters=parameters)
        for side in sides
    ]
    return compare(
        made,
        reference=reference,
        truth=exact if truth else None,
        runs=[HostRun(inputs=inputs)] * steps,
        lockstep=lockstep,
    )


def test_a_sound_plan_of_any_allocator_is_invisible():
    plain = lowered()
    sides = []
    for number, name in enumerate(ALLOCATORS):
        pins = tuple(PINS)[number % 3]  # not `none`: the host does read
        plan = find(name).plan(plain.program, Constraints.of(plain.program, pins=pins))
        sides.append((f"{name} {pins}", plain, plan))
    for course in courses(*sides, lockstep=0, truth=False, steps=2):
        assert (course.name, course.nature, course.first_step) == (course.name, "equal", None)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_another_order_of_sums_is_rounding_and_never_corruption(seed):
    sides = [
        (kind, turned, find("ggml").plan(turned.program))
        for kind, flips in (("mul_mat", (-1, -1)), ("out_prod", (-2, -2)))
        for turned in (lowered(kind, reversed_sums(kind, flips)),)
    ]
    for course in courses(*sides, seed=seed):
        assert course.nature == "rounding"
        assert course.origins
        assert {origin.nature for origin in course.origins} == {"rounding"}


@pytest.mark.parametrize("size", [1e-1, 1e-3, 1e-4])
@pytest.mark.parametrize(
    ("kind", "variant"),
    [("rms_norm_back", "one_pass"), ("mul", "numpy"), ("mul_mat", "blas"), ("silu_back", "one_pass")],
)
def test_one_element_off_by_little_is_corruption_at_the_op_that_did_it(kind, variant, size):
    bad = lowered(kind, spoiled(kind, variant, size))
    (course,) = courses((kind, bad, find("ggml").plan(bad.program)))
    assert course.nature == "corruption"
    assert {bad.program.ops[origin.op].kind for origin in course.origins} == {kind}
    assert {(origin.what, origin.nature) for origin in course.origins} == {("result", "corruption")}
    assert course.first_step == 1
    assert course.first_op == course.origins[0].op  # nothing before it differs


def test_the_smallest_corruption_told_is_within_the_bound_of_rounding():
    """What is four bits above rounding is seen, whatever the tensor."""
    (exact,) = courses(float64())
    for row in exact.rows:
        assert row.reference_error is None or row.reference_error < 1e-4
    bad = lowered("mul", spoiled("mul", "numpy", 5e-5))
    (course,) = courses(("mul", bad, find("reference").plan(bad.program)))
    assert course.nature == "corruption"
    assert all(origin.max_error < 1e-4 for origin in course.origins)


def float64(allocator="reference", kind=None, kernel=None):
    wide = in_float64(lowered(kind, kernel))
    return Side(
        name=f"float64 {allocator}",
        lowered=wide,
        plan=find(allocator).plan(wide.program),
        parameters=widened(data(0)[0]),
    )


def test_in_float64_too_a_sound_plan_is_invisible_and_a_fault_is_none():
    right, wrong = courses(float64("ggml"), float64("ggml", "rms_norm_back", KERNELS["rms_norm_back"]["two_pass"]))
    assert right.nature == "equal"
    assert wrong.nature == "corruption"


def test_without_float64_a_difference_is_not_called_anything():
    bad = lowered("rms_norm_back", KERNELS["rms_norm_back"]["two_pass"])
    (course,) = courses(("default", bad, find("ggml").plan(bad.program)), truth=False)
    assert course.nature is None
    assert course.first_step == 1
    assert {origin.nature for origin in course.origins} == {None}
    assert all(origin.ulp for origin in course.origins)


def test_being_compared_changes_nothing():
    """Taps stand beside the run: losses and plan are those of a run that nobody watches."""
    bad = lowered("rms_norm_back", KERNELS["rms_norm_back"]["two_pass"])
    plan, (parameters, inputs) = find("ggml").plan(bad.program), data(0)
    (course,) = courses(("default", bad, plan))
    with Runtime(bad, plan, parameters=parameters) as plain:
        losses = [plain.run(inputs)["loss"] for _ in range(STEPS)]
    assert [loss.tobytes() for loss in losses] == [loss.tobytes() for loss in course.outputs["loss"]]
    assert course.plan is plan


def test_an_executor_that_cannot_be_watched_is_compared_by_what_it_leaves(monkeypatch):
    monkeypatch.setattr(
        side_comparison, "EXECUTORS", {**side_comparison.EXECUTORS, "blind": SideExecutor(bind=Runtime, observed=False)}
    )
    plain, bad = lowered(), lowered("rms_norm_back", KERNELS["rms_norm_back"]["two_pass"])
    parameters, _ = data(0)
    right, wrong = courses(
        *(Side(name=name, lowered=it, plan=find("ggml").plan(it.program), parameters=parameters, executor="blind") for name, it in (("right", plain), ("wrong", bad)))
    )  # fmt: skip
    assert right.nature == "equal"
    assert sum(row.tensors for row in right.rows) == STEPS * (len(graph().updates) + 1)  # and the loss
    assert (wrong.nature, wrong.first_step, wrong.first_op, wrong.origins) == ("corruption", 1, None, None)
    assert {row.stage for row in wrong.rows if row.step == 1 and row.differing} == {"update"}


def test_what_is_compared_with_must_keep_buffers_apart():
    plain, parameters = lowered(), data(0)[0]
    reused = Side(name="default", lowered=plain, plan=find("ggml").plan(plain.program), parameters=parameters)
    with pytest.raises(EngineError, match="keeps buffers apart"):
        compare([reused], reference=reused, runs=[HostRun(inputs=data(0)[1])])


def test_float64_is_the_same_program_with_doubled_floats():
    plain = lowered()
    wide = in_float64(plain)
    floats = np.array([value.dtype == "f32" for value in plain.program.values])
    assert [value.dtype for value in wide.program.values] == ["f64" if f else "i32" for f in floats]
    grown = wide.program.buffers.nbytes / plain.program.buffers.nbytes
    assert set(grown.tolist()) == {1.0, 2.0}
    for column in ("operands", "results", "operand_starts", "kind", "in_place"):
        assert np.array_equal(getattr(wide.program.ops, column), getattr(plain.program.ops, column))
    views = [(plain.program.values[v], wide.program.values[v]) for v in range(len(floats)) if floats[v]]
    assert all(w.strides == tuple(2 * s for s in p.strides) and w.offset == 2 * p.offset for p, w in views)


def test_float64_is_more_exact_by_half_of_its_digits():
    """The truth is one: against a run in longer steps of precision, its error is as small beside float32's as its digits promise."""
    parameters, inputs = data(0)
    plain, wide = lowered(), in_float64(lowered())
    turned = in_float64(lowered("mul_mat", reversed_sums("mul_mat", (-1, -1))))
    outputs = []
    for program, convert in ((plain, dict), (wide, widened), (turned, widened)):
        plan = find("reference").plan(program.program)
        with Runtime(program, plan, parameters=convert(parameters)) as runtime:
            runtime.run(convert(inputs))
            outputs.append([runtime.array(plain.value_of[g]).copy() for g in graph().gradients.values()])
    single, double, other = outputs
    rounding = max(gap_of(a, b).error for a, b in zip(single, double, strict=True))
    finer = max(gap_of(a, b).error for a, b in zip(other, double, strict=True))
    assert 1e-8 < rounding < 1e-4
    assert finer < rounding * 1e-6
