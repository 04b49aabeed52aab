"""Gradient checkpointing: the same bits from less memory, by computing segments again."""

import numpy as np
import pytest

from allocsim.allocators import find
from allocsim.errors import EngineError
from allocsim.judge.fast import check
from allocsim.model import Document, Role, Run
from engine.autodiff import backward
from engine.autodiff.recomputation import arena_nbytes, crossing
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.models.llama import LlamaConfig, batch, init_parameters, training_graph
from engine.runtime import Runtime

DEEP = LlamaConfig(layers=6, seq=32, vocab=32)


def chain(depth, width=64):
    """Return a graph of tanh(w * x) layers, each marked, with dropout in it, and its loss."""
    graph = Graph("chain")
    x, seed = graph.input("x", (width,)), graph.input("seed", (1,), "i32")
    for layer in range(depth):
        with graph.scope(f"layer.{layer}", layer=layer):
            w = graph.parameter("w", (width,), trainable=True)
            h = graph.op("tanh", graph.op("mul", x, w))
            x = graph.op("add", x, graph.op("dropout", graph.op("sqr", h), seed, p=0.2, salt=layer), name="out")
    return graph, graph.op("sum", x)


def trained(graph, found, rng, allocator="ggml"):
    lowered = lower(graph, found.values())
    plan = find(allocator).plan(lowered.program)
    data = {
        leaf.name: rng.standard_normal(leaf.shape).astype(np.float32) for leaf in graph.leafs if leaf.dtype == "f32"
    }
    parameters = {leaf.name: data[leaf.name] for leaf in graph.leafs if leaf.role == Role.PARAMETER}
    inputs = {
        leaf.name: data.get(leaf.name, np.array([5], np.int32)) for leaf in graph.leafs if leaf.role == Role.INPUT
    }
    with Runtime(lowered, plan, parameters=parameters) as runtime:
        return plan, runtime.run(inputs)


def test_the_gradients_keep_every_bit():
    """What is computed again is what it was, dropout included; and the plan stays sound."""
    results, sizes = [], []
    for kept in (False, True):
        graph, loss = chain(8)
        graph.expand(loss)
        found = backward(graph, loss, checkpoints=crossing(graph) if kept else None)
        plan, out = trained(graph, found, np.random.default_rng(0))
        results.append([out[gradient.name] for gradient in found.values()])
        sizes.append(arena_nbytes(plan))
        assert check(Document.of(Run.of(plan))).violations == ()

    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))
    assert sizes[1] < 0.7 * sizes[0]


def test_backward_reads_only_checkpoints_and_leafs():
    """No op of the backward pass has a forward value before the last checkpoint among its operands, but the checkpoints."""
    graph, loss = chain(5)
    graph.expand(loss)
    forward = list(graph.nodes)
    kept = crossing(graph)
    backward(graph, loss, checkpoints=kept)
    before = set(forward[: forward.index(kept[-1])])
    read = {source for node in graph.nodes if node not in set(forward) for source in node.sources}

    assert read & before <= set(kept)


def test_what_crosses_layers_is_what_a_later_layer_reads():
    """One tensor for each layer: its output."""
    graph, loss = chain(4)
    graph.expand(loss)

    assert [tensor.name for tensor in crossing(graph)] == [f"layer.{n}.out" for n in range(4)]
    assert [tensor.name for tensor in crossing(graph, every=2)] == ["layer.1.out", "layer.3.out"]


@pytest.mark.parametrize("allocator", ["ggml", "reference"])
def test_a_llama_trains_to_the_same_bits_in_less_memory(allocator):
    """Loss and weights after a step, with LoRA, the mask and rotary positions: not a bit differs."""
    results, sizes = [], []
    for checkpoints in (False, True):
        training = training_graph(DEEP, checkpoints=checkpoints)
        lowered = lower(training.graph, [training.loss, *training.updates.values()])
        plan = find(allocator).plan(lowered.program)
        with Runtime(lowered, plan, parameters=init_parameters(DEEP, seed=3)) as runtime:
            out = runtime.run(batch(DEEP, seed=4))
        results.append(out)
        sizes.append(arena_nbytes(plan))

    assert results[0].keys() == results[1].keys()
    assert all(np.array_equal(array, results[1][name]) for name, array in results[0].items())
    assert allocator == "reference" or sizes[1] < 0.7 * sizes[0]


def test_strangers_are_no_checkpoints():
    """A checkpoint is a node of what runs."""
    graph, loss = chain(2)
    with pytest.raises(EngineError, match="checkpoint x f32"):
        backward(graph, loss, checkpoints=[graph.find("x")])
