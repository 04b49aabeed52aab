"""A step over ranks whose weights are read in 16 bits: one rounding of each weight and of each gradient, whatever the stage."""

import importlib.util
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.diagnostics import check
from allocsim.errors import EngineError
from allocsim.model import Document, Role
from engine.autodiff import backward
from engine.graph.lowering import lower
from engine.runtime import Runtime
from engine.sharding import Simulation, shard

_spec = importlib.util.spec_from_file_location("sharding_steps", Path(__file__).with_name("steps.py"))
steps = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(steps)

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def by_hand(recorded, dtype):
    """Losses and weights of SGD in float32, each rank's gradients of rounded weights rounded, added in float32 and rounded."""
    graph, loss = recorded.forward()
    gradients = backward(graph, loss)
    lowered = lower(graph, (loss, *dict.fromkeys(gradients.values())))
    plan = ALLOCATORS["reference"].plan(lowered.program)
    weights, losses = {name: array.copy() for name, array in recorded.weights.items()}, []
    for rows in recorded.data:
        read = dict(weights)
        read |= {w.name: weights[w.name].astype(dtype).astype(np.float32) for w in gradients}
        total, mean = {}, None
        with Runtime(lowered, plan, parameters=read) as runtime:
            for one in rows:
                found = runtime.run({**one, "loss_grad": np.full(1, 1 / len(rows), np.float32)})
                share = found[loss.name] * np.float32(1 / len(rows))
                mean = share if mean is None else mean + share
                for weight, gradient in gradients.items():
                    mine = found[gradient.name].astype(dtype).astype(np.float32)
                    total[weight.name] = total[weight.name] + mine if weight.name in total else mine
        for name, gradient in total.items():
            weights[name] = weights[name] - np.float32(0.1) * gradient.astype(dtype).astype(np.float32)
        losses.append(float(mean[0]))
    return losses, weights


def trained(recorded, step, **options):
    with Simulation(step, step.planned(), recorded.weights) as world:
        read = [world.run(rows, hyper={"alpha": 0.1}, **options)[0] for rows in recorded.data]
        held = {n: w for n, w in world.weights().items() if n in recorded.weights}
    return [float(one["loss.mean"][0]) for one in read], held


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("make", [steps.perceptron, steps.lora])
def test_weights_and_gradients_are_rounded_once_whatever_the_stage(make, zero, dtype):
    recorded = make(4)
    losses, weights = by_hand(recorded, TYPES[dtype])
    found, held = trained(recorded, shard(*recorded.forward(), zero=zero, ranks=4, weights=dtype))

    assert found == losses
    assert {name for name in held if not np.array_equal(held[name], weights[name])} == set()
    assert all(held[name].dtype == recorded.weights[name].dtype for name in held)


@pytest.mark.parametrize(
    "more", [{"hybrid": (2, 2), "zero": 3}, {"reshard": False, "zero": 3}, {"zero": 1, "prefetch": 2}]
)
def test_how_parts_are_kept_and_asked_for_changes_no_rounding(more):
    recorded = steps.perceptron(4)
    found, held = trained(recorded, shard(*recorded.forward(), ranks=4, weights="bf16", **more), seed=3)
    if "hybrid" in more:  # sums within a copy come first
        wanted = by_hand(recorded, np.float32)[0]
        assert np.allclose(found, wanted, rtol=2**-6)
    else:
        assert found == by_hand(recorded, ml_dtypes.bfloat16)[0]
    assert all(np.isfinite(array).all() for array in held.values())


@pytest.mark.parametrize("planner", ["best_fit", "greedy_by_size", "ggml"])
def test_plans_are_clean_and_what_travels_is_of_16_bits(planner):
    recorded = steps.perceptron(4)
    step = shard(*recorded.forward(), zero=3, ranks=4, weights="bf16")
    nodes = step.lowered.graph.nodes

    assert check(Document.of(step.planned(planner))).clean
    assert {n.dtype for n in nodes if n.kind in {"all_gather", "reduce_scatter"}} == {"bf16"}
    plain = shard(*recorded.forward(), zero=3, ranks=4).lowered.graph.nodes
    kinds = {"all_gather", "reduce_scatter"}
    assert [(n.kind, n.shape) for n in nodes if n.kind in kinds] == [
        (n.kind, n.shape) for n in plain if n.kind in kinds
    ]


def test_gradients_of_a_step_that_reads_16_bits_live_in_two_bytes():
    recorded = steps.perceptron(4)
    step = shard(*recorded.forward(), zero=2, ranks=4, optimizer="adamw", weights="bf16")
    program, places = step.lowered.program, step.lowered.value_of
    reduced = [n for n in step.lowered.graph.nodes if n.kind == "reduce_scatter"]
    wide = [n for n in step.lowered.graph.nodes if n.kind == "cast" and n.sources[0] in reduced]

    assert len(wide) == len(reduced) == len(step.lowered.graph.trainable)
    for node in wide:  # widened by the op before the one that steps it
        readers = [op.step for op in program.ops if places[node] in op.operands]
        assert step.lowered.step_of[node] + 1 == min(readers)


def test_parameters_that_are_not_trained_are_read_as_they_are():
    recorded = steps.lora(2)
    step = shard(*recorded.forward(), zero=3, ranks=2, weights="bf16")
    names = {leaf.name for leaf in step.lowered.graph.trainable}
    cast = {n.sources[0].name for n in step.lowered.graph.nodes if n.kind == "cast" and n.sources[0].is_leaf}

    assert cast == names


def test_other_dtypes_are_refused():
    recorded = steps.perceptron(2)
    with pytest.raises(EngineError, match="weights in 'f8'; the dtypes of 16 bits are bf16 and f16"):
        shard(*recorded.forward(), zero=0, ranks=2, weights="f8")


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_bytes_of_a_rank_are_those_of_zero(zero):
    """2, 2 and 12 bytes a parameter, each over the ranks where its stage cuts it; here stage 1 scatters as stage 2 does."""
    ranks, sizes = 4, (64, 128, 32)
    recorded = steps.perceptron(ranks, sizes=sizes)
    step = shard(*recorded.forward(), zero=zero, ranks=ranks, optimizer="adamw", weights="bf16")
    count = sum(array.size for array in recorded.weights.values())
    leafs, nodes = step.lowered.graph.leafs, step.lowered.graph.nodes
    own = sum(leaf.nbytes for leaf in leafs if leaf.trainable or leaf.role == Role.STATE)
    first = {
        node.name: node.nbytes
        for node in nodes
        if node.dtype == "bf16" and node.kind in {"all_gather", "cast"} and node.stage != "backward"
    }
    gathered = sum(nbytes for name, nbytes in first.items() if name.endswith(".gathered"))
    narrow = sum(nbytes for name, nbytes in first.items() if name.endswith(".bf16"))
    reduced = sum(
        node.nbytes for node in nodes if node.dtype == "bf16" and node.kind in {"reduce_scatter", "all_reduce"}
    )
    parts = ranks if zero else 1

    assert own == 12 * count / parts
    assert narrow == 2 * count / parts
    assert gathered == (2 * count if zero else 0)
    assert reduced == 2 * count / parts
