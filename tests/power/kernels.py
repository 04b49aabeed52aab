"""C04 on the engine's own kernels: the two that ggml had, in the programs where they were met."""

from functools import cache

import numpy as np
from power.fault import shelf

from allocsim.allocators import find
from allocsim.model import Document, Run
from allocsim.verdict.evidence import Evidence
from engine.d_differential import HostRun
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.kernels import KERNELS
from engine.models.llama import LlamaConfig, batch, init_parameters, training_graph
from repro.small.on_engine import run_on_engine

FAULTS, add = shelf("kernel")

THIRTY = LlamaConfig(
    layers=30,
    hidden=16,
    ffn=24,
    heads=4,
    kv_heads=2,
    vocab=20,
    seq=4,
    rope_theta=1e4,
    eps=1e-5,
    rank=2,
    alpha=4.0,
    targets=("q", "v"),
)


@cache
def _training():
    return training_graph(THIRTY), init_parameters(THIRTY, seed=1, learning_rate=0.1), batch(THIRTY, seed=1)


def backward(planted):
    """A training step of 30 layers, planned as ggml does, for two runs."""
    made, parameters, inputs = _training()
    lowered = lower(made.graph, (made.loss,), kernels={"rms_norm_back": "two_pass" if planted else "one_pass"})
    plan = find("ggml").plan(lowered.program)
    hosts = [HostRun(inputs=inputs)] * 2
    measured = run_on_engine(lowered, plan, hosts, parameters, table=KERNELS)
    return Evidence(document=Document.of(*[Run.of(plan)] * 2), **measured)


def softmax(variant, *, pinned):
    """soft_max_back(dy, y); where the host reads dy as well, ggml lays the result over y."""
    graph = Graph("softmax")
    x, w = graph.input("x", (4, 8)), graph.input("w", (4, 8))
    dy, y = graph.op("scale", x, s=2.0, name="dy"), graph.op("soft_max", w, name="y")
    dx = graph.op("soft_max_back", dy, y, name="dx")
    graph.expand(dx)
    lowered = lower(graph, (dx, dy) if pinned else (dx,), kernels={"soft_max_back": variant})
    plan = find("ggml").plan(lowered.program)
    rng = np.random.default_rng(3)
    hosts = [HostRun(inputs={name: rng.standard_normal((4, 8)).astype(np.float32) for name in "xw"})]
    return Evidence(document=Document.of(plan), **run_on_engine(lowered, plan, hosts, {}, table=KERNELS))


add(
    "the backward pass of 30 layers normalises in place",
    "ggml-org/ggml#1501",
    "C04 kernel",
    backward,
    D="result",
    K="unsafe",
)
add(
    "a pin moves the victim of softmax from the gradient to its output",
    "ggml-org/llama.cpp#27096",
    "C04 kernel",
    lambda planted: softmax("two_pass" if planted else "one_pass", pinned=True),
    D="result",
    K="unsafe",
)
