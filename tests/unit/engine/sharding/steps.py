"""Steps to shard: small models with rows for each rank, and one process that makes the same step."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from allocsim.allocators import find
from engine.autodiff import backward
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.kernels import kernel
from engine.models import llama
from engine.models.mlp import mlp
from engine.runtime import Runtime
from engine.runtime.plan_memory import NUMPY_DTYPES


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A forward pass anew at each call, its weights, and rows of each rank for a few steps."""

    forward: Any
    weights: dict
    data: list


def perceptron(ranks, *, rows=3, steps=3, sizes=(6, 17, 9, 5), seed=0):
    model, rng = mlp(sizes), np.random.default_rng(seed)

    def forward(rows=rows):
        graph = Graph("mlp")
        out = model.build(graph, {"data": (rows, sizes[0])})
        loss = graph.op("cross_entropy_loss", out, graph.input("labels", (rows, sizes[-1])), name="loss")
        graph.expand(loss)
        return graph, loss

    def drawn():
        labels = np.eye(sizes[-1], dtype=np.float32)[rng.integers(0, sizes[-1], rows)]
        return {"data": rng.standard_normal((rows, sizes[0])).astype(np.float32), "labels": labels}

    return Recorded(
        forward=forward, weights=dict(model.parameters), data=[[drawn() for _ in range(ranks)] for _ in range(steps)]
    )


def lora(ranks, *, steps=2, layers=2, **sizes):
    config = llama.LlamaConfig(layers=layers, **sizes)
    weights = llama.init_parameters(config, seed=1)
    weights.pop(llama.HYPER)

    def forward():
        graph = Graph("lora")
        logits = llama._forward(graph, config)
        loss = graph.op("cross_entropy_loss", logits, graph.input("labels", logits.shape, logits.dtype), name="loss")
        loss = graph.penalized(loss)
        graph.expand(loss)
        return graph, loss

    def drawn(seed):
        batch = llama.batch(config, seed=seed)
        batch.pop("loss_grad")
        return batch

    return Recorded(
        forward=forward, weights=weights, data=[[drawn(s * ranks + r) for r in range(ranks)] for s in range(steps)]
    )


def one_process(recorded, *, alpha):
    """Losses and weights of SGD in one process: the rows of each rank in turn, gradients added in the order of the ranks."""
    graph, loss = recorded.forward()
    gradients = backward(graph, loss)
    lowered = lower(graph, (loss, *dict.fromkeys(gradients.values())))
    plan = find("reference").plan(lowered.program)
    weights = {name: array.copy() for name, array in recorded.weights.items()}
    names = {leaf.name for leaf in graph.leafs}
    dtype = NUMPY_DTYPES[loss.dtype]
    hp, losses = np.array([alpha, 0], dtype), []
    for rows in recorded.data:
        share, total, loss_sum = np.full(1, 1 / len(rows), dtype), {}, None
        with Runtime(lowered, plan, parameters={n: w for n, w in weights.items() if n in names}) as runtime:
            for batch in rows:
                out = runtime.run({**batch, "loss_grad": share})
                part = out[loss.name] * share
                loss_sum = part if loss_sum is None else loss_sum + part
                for leaf, gradient in gradients.items():
                    total[leaf.name] = (
                        total[leaf.name] + out[gradient.name] if leaf.name in total else out[gradient.name]
                    )
        for name, gradient in total.items():
            call, args = kernel("opt_step_sgd").bind({}, (weights[name], gradient, hp), (weights[name],))
            call(*args)
        losses.append(float(loss_sum[0]))
    return losses, weights


def without_wait(program, step):
    """The program in which one op waits for nothing."""
    ops = program.ops
    starts = ops.after_starts.copy()
    first, end = int(starts[step]), int(starts[step + 1])
    starts[step + 1 :] -= end - first
    return replace(program, ops=replace(ops, after=np.delete(ops.after, range(first, end)), after_starts=starts))
