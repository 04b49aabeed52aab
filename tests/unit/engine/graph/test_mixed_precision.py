"""16-bit storage through casts, float32 master copies, a scaled loss, and steps that an overflow leaves out."""

import ml_dtypes
import numpy as np
import pytest

from allocsim.allocators import find
from allocsim.errors import EngineError
from engine.autodiff import backward
from engine.graph import Graph, mixed_precision
from engine.graph.lowering import lower
from engine.runtime import Runtime

STORED = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("wide", ["f32", "f64"])
def test_a_cast_rounds_to_nearest_even_and_its_gradient_comes_back(execute, rng, dtype, wide):
    """Values and gradients go through the 16-bit format both ways."""
    graph = Graph("cast")
    floats = {"f32": np.float32, "f64": np.float64}[wide]
    w, weights = graph.parameter("w", (5, 7), wide, trainable=True), graph.parameter("weights", (5, 7), wide)
    y = mixed_precision.stored(w, dtype)
    found = backward(graph, graph.op("sum", graph.op("mul", y, weights)))
    data = {name: rng.standard_normal((5, 7)).astype(floats) for name in ("w", "weights")}
    value, narrow, gradient = execute(graph, {**data, "loss_grad": np.ones(1, floats)}, y, y.sources[0], found[w])

    assert narrow.dtype == STORED[dtype]
    assert np.array_equal(value, data["w"].astype(STORED[dtype]).astype(floats))
    assert np.array_equal(gradient, data["weights"].astype(STORED[dtype]).astype(floats))


@pytest.mark.parametrize("dtype", STORED)
def test_stored_values_are_viewed_and_moved_but_not_computed_with(execute, rng, dtype):
    """Reshape, permute, slice, concat, pad and cont take any dtype; arithmetic wants a cast, and says so."""
    graph = Graph("moves")
    x = graph.op("cast", graph.parameter("x", (4, 6), "f32"), dtype=dtype)
    turned = graph.op("cont", graph.op("permute", x, axes=(1, 0)))
    part = graph.op("slice", turned, starts=(1, 0), lengths=(2, 4))
    both = graph.op("concat", part, graph.op("pad", part, before=(0, 1), after=(0, 0)), axis=1)
    graph.expand(both)
    data = rng.standard_normal((4, 6)).astype(np.float32)
    (found,) = execute(graph, {"x": data}, both)
    part = data.T.astype(STORED[dtype])[1:3]

    assert np.array_equal(found, np.concatenate([part, np.zeros((2, 1), part.dtype), part], axis=1))
    with pytest.raises(EngineError, match=rf"exp\(x .*{dtype}.*must be f32 or all f64"):
        graph.op("exp", x)
    with pytest.raises(EngineError, match="'i32'"):
        graph.op("cast", x, dtype="i32")


def test_gradients_of_a_16_bit_tensor_that_is_read_twice_are_summed_wide(execute):
    """Two contributions of 1 and 2^-9: the sum is rounded once, after an addition in float32."""
    graph = Graph("twice")
    w = graph.parameter("w", (1,), "f32", trainable=True)
    half = graph.op("cast", w, dtype="bf16")
    first, second = (graph.op("scale", graph.op("cast", half, dtype="f32"), s=s) for s in (1.0, 1.0 + 2**-7))
    found = backward(graph, graph.op("add", first, second))
    (gradient,) = execute(graph, {"w": np.ones(1, np.float32), "loss_grad": np.ones(1, np.float32)}, found[w])

    assert gradient[0] == np.float32(ml_dtypes.bfloat16(2 + 2**-7))
    assert [node.dtype for node in graph.nodes if node.kind == "add"] == ["f32", "f32"]


def trainer():
    """Return a step of SGD with bf16 weights, a scaled loss and a guard, bound."""
    graph = Graph("mixed")
    x, t = graph.input("x", (8, 4)), graph.input("t", (8, 3))
    master = graph.parameter("w", (3, 4), trainable=True)
    y = graph.op("mul_mat", mixed_precision.stored(master, "bf16"), x)
    loss = graph.op("mean_squared_error", y, t, name="loss")
    scale = graph.input("scale", (1,))
    found = backward(graph, loss)
    safe = mixed_precision.unscaled(graph, found, scale)
    hyper = mixed_precision.guarded(graph.parameter("hp", (2,)), graph.parameter("still", (2,)), safe.finite)
    step = graph.op("opt_step_sgd", master, safe.gradients[master], hyper, name="new")
    graph.expand(step)
    reads = (loss, safe.finite, safe.gradients[master], step)
    lowered = lower(graph, reads)
    return lowered, [r.name for r in reads]


def test_a_scaled_loss_gives_the_gradient_of_the_loss_and_an_overflow_changes_nothing(rng):
    """Powers of two scale without rounding; with an infinity the flag is 0 and the weights keep every bit."""
    lowered, (loss, finite, gradient, new) = trainer()
    w = rng.standard_normal((3, 4)).astype(np.float32)
    parameters = {"w": w, "hp": np.array([0.1, 0.01], np.float32), "still": np.zeros(2, np.float32)}
    inputs = {"x": rng.standard_normal((8, 4)).astype(np.float32), "t": rng.standard_normal((8, 3)).astype(np.float32)}

    def step(scale, **changed):
        with Runtime(lowered, find("ggml").plan(lowered.program), parameters=parameters) as runtime:
            seed = np.full(1, scale, np.float32)
            return runtime.run({**inputs, "loss_grad": seed, "scale": seed, **changed})

    plain, scaled = step(1.0), step(2.0**12)
    assert np.array_equal(plain[gradient], scaled[gradient])
    assert plain[finite][0] == scaled[finite][0] == 1
    assert not np.array_equal(plain[new], w)

    broken = step(2.0**12, loss_grad=np.full(1, np.inf, np.float32))
    assert broken[finite][0] == 0
    assert np.array_equal(broken[new], w)
    assert broken[loss][0] == plain[loss][0]


def test_the_master_copy_remembers_what_16_bits_cannot(rng):
    """Updates below half a bf16 step of the weight add up in float32, and the loss falls; added to the 16-bit weight they would be lost."""
    lowered, (loss, *_, new) = trainer()
    x = rng.standard_normal((8, 4)).astype(np.float32)
    t = x @ np.full((4, 3), 1.5, np.float32)
    parameters = {
        "w": np.ones((3, 4), np.float32),
        "hp": np.array([2e-3, 0], np.float32),
        "still": np.zeros(2, np.float32),
    }
    one = np.ones(1, np.float32)
    with Runtime(lowered, find("ggml").plan(lowered.program), parameters=parameters) as runtime:
        losses, weights = [], []
        for _ in range(600):
            out = runtime.run({"x": x, "t": t, "loss_grad": one, "scale": one})
            losses.append(out[loss][0])
            weights.append(out[new].copy())
    first = weights[0].astype(ml_dtypes.bfloat16)

    assert np.array_equal(first, np.ones((3, 4), first.dtype)), "one step alone is below the resolution of bf16"
    assert losses[-1] < 0.3 * losses[0]


def test_the_loss_scale_halves_at_an_overflow_and_doubles_after_an_interval():
    """Within its bounds."""
    scale = mixed_precision.LossScale(value=8.0, interval=3, least=4.0, most=16.0)
    seen = []
    for finite in (False, False, True, True, True, True, True, True, False):
        scale = scale.after(finite=finite)
        seen.append(scale.value)

    assert seen == [4, 4, 4, 4, 8, 8, 8, 16, 8]
    with pytest.raises(EngineError, match="least <= value"):
        mixed_precision.LossScale(value=0.5)
    with pytest.raises(EngineError, match="no gradients"):
        mixed_precision.unscaled(Graph("empty"), {}, Graph("empty").input("s", (1,)))
