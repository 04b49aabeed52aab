"""Tensors split over ranks: the numbers of one process, in every order, clean, and as small as predicted."""

import importlib.util
from collections import Counter
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.diagnostics import check
from allocsim.errors import EngineError
from allocsim.model import Document, Role
from allocsim.programs.joined_ranks import joined
from engine.graph import Graph
from engine.models import gpt2
from engine.sharding import Simulation, judge_ranks, shard
from engine.sharding.tensor_parallel import tensor_parallel

_spec = importlib.util.spec_from_file_location("tensor_steps", Path(__file__).with_name("steps.py"))
steps = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(steps)

SIZES = (6, 16, 8, 4)
LAYER = {"attn_q.weight": 0, "attn_k.weight": 0, "attn_v.weight": 0, "attn_output.weight": 1}
LAYER |= {"ffn_gate.weight": 0, "ffn_up.weight": 0, "ffn_down.weight": 1}


def perceptron(ranks):
    return steps.perceptron(ranks, sizes=SIZES)


def lora(ranks, **sizes):
    return steps.lora(ranks, steps=3, **{"kv_heads": 4, "dtype": "f64", **sizes})


def trained(recorded, step, *, seed=None, rows=None):
    """Losses and whole weights; neighbours of a tensor group read the same rows."""
    ranks, tensor = step.sharding.ranks, step.sharding.tensor
    with Simulation(step, step.planned(), recorded.weights) as world:
        losses = []
        for number, batch in enumerate(recorded.data[:rows]):
            given = [batch[rank // tensor] for rank in range(ranks)]
            read = world.run(given, hyper={"alpha": 0.1}, seed=None if seed is None else seed + number)
            assert len({one["loss.mean"].tobytes() for one in read}) == 1
            losses.append(float(read[0]["loss.mean"][0]))
        return losses, world.weights()


def apart(found, expected):
    """How far the weights are from those expected, as a share of the largest of each."""
    return max(np.abs(found[name] - array).max() / np.abs(array).max() for name, array in expected.items())


@pytest.mark.parametrize(
    ("tensor", "data", "zero"), [(2, 1, 0), (4, 1, 0), (2, 2, 0), (2, 2, 1), (2, 2, 2), (2, 2, 3), (4, 1, 3)]
)
@pytest.mark.parametrize("make", [perceptron, lora])
def test_losses_and_weights_of_three_steps_are_those_of_one_process(make, tensor, data, zero):
    """Sums are made in another order: 16 units in the last place a step for losses, 2^14 in all for weights."""
    recorded = make(data)
    losses, weights = steps.one_process(recorded, alpha=0.1)
    step = shard(*recorded.forward(), zero=zero, ranks=tensor * data, tensor=tensor)
    found, held = trained(recorded, step)
    unit = np.finfo(next(iter(weights.values())).dtype).eps
    for number, (one, other) in enumerate(zip(found, losses, strict=True), 1):
        assert abs(one - other) <= 16 * number * unit * abs(other)
    assert apart(held, weights) <= 2**14 * unit


@pytest.mark.parametrize(
    "sizes",
    [
        {"attention": "fused", "batch": 2},
        {"kv_heads": 2},  # heads of k and v that four ranks do not divide: attention is whole
        {"targets": ("q", "k", "v", "o", "gate", "up", "down"), "glu": "silu"},
        {"rank": 0, "full": True, "tied": False},
    ],
    ids=str,
)
def test_other_transformers_come_to_the_numbers_of_one_process(sizes):
    recorded = lora(1, layers=1, **sizes)
    losses, weights = steps.one_process(recorded, alpha=0.01)
    step = shard(*recorded.forward(), zero=0, ranks=4, tensor=4)
    with Simulation(step, step.planned(), recorded.weights) as world:
        found = [world.run(batch * 4, hyper={"alpha": 0.01})[0]["loss.mean"][0] for batch in recorded.data]
        assert np.allclose(found, losses, rtol=1e-12, atol=0)
        assert apart(world.weights(), weights) <= 2**14 * np.finfo(float).eps


def test_columns_then_rows_and_heads_stay_on_their_rank():
    """Megatron's layer: one all_reduce behind attention and one behind the feed-forward part."""
    split = tensor_parallel(*lora(1, layers=1, targets=("k",), rank=4).forward(), ranks=2)
    layer = {name.removeprefix("layer.0."): axis for name, axis in split.axes.items()}
    assert {name: layer[name] for name in LAYER} == LAYER
    assert Counter(node.kind for node in split.graph.nodes)["all_reduce"] == 2
    scores = split.graph.find("layer.0.kq.split")
    assert scores.shape == (2, 8, 8)


def test_the_courses_that_are_dropped_are_not_the_cheapest(monkeypatch):
    """Where all that are open at once are kept, the same weights are split."""
    recorded = lora(1, layers=2, targets=("q", "k", "v", "o", "gate", "up", "down"))
    few = tensor_parallel(*recorded.forward(), ranks=2)
    monkeypatch.setattr("engine.sharding.tensor_parallel.COURSES", 5000)
    assert tensor_parallel(*recorded.forward(), ranks=2).axes == few.axes


def test_what_has_no_rule_is_done_whole():
    """Strided views of one projection for q, k and v: it is gathered; the feed-forward part is split."""
    config = gpt2.GPT2Config(layers=1, channels=16, heads=2, vocab=12, positions=4)
    weights, rng = gpt2.init_parameters(config, seed=0), np.random.default_rng(0)
    model = gpt2.gpt2(config, weights)
    shapes = {"tokens": (2, 4), "labels": (2, 4)}

    def forward():
        graph = Graph("gpt2")
        logits = model.build(graph, shapes)
        loss = graph.op("cross_entropy_classes", logits, graph.input("labels", (8,), "i32"), name="loss")
        graph.expand(loss)
        return graph, loss

    rows = [[{name: rng.integers(0, 12, 8, dtype=np.int32) for name in shapes} | model.constants(shapes)]] * 3
    recorded = steps.Recorded(forward=forward, weights=weights, data=rows)
    losses, expected = steps.one_process(recorded, alpha=0.1)
    step = shard(*forward(), zero=0, ranks=2, tensor=2)
    assert {"layer.0.ffn_up.weight", "layer.0.ffn_down.weight"} <= step.spreads.keys()
    assert step.lowered.graph.find("layer.0.q").shape == (2, 2, 4, 8)
    found, held = trained(recorded, step)
    assert np.allclose(found, losses, rtol=1e-5)
    assert apart({name: held[name] for name in weights}, {n: expected[n] for n in weights}) < 1e-3


def gathered(rows=4, width=32):
    """What is split is gathered for a drop-out, behind which the model reshapes; no op is named."""
    graph = Graph("unnamed")
    x = graph.op("mul_mat", graph.parameter("w", (width, width), trainable=True), graph.input("x", (rows, width)))
    kept = graph.op("dropout", graph.op("silu", x), graph.input("seed", (1,), "i32"), p=0.25)
    turned = graph.op("permute", graph.op("reshape", kept, shape=(rows, 2, width // 2)), axes=(1, 0, 2))
    loss = graph.op("sum", graph.op("sqr", turned))
    graph.expand(loss)
    return graph, loss


@pytest.mark.parametrize("zero", [0, 3])
def test_ops_that_a_model_does_not_name_keep_the_names_that_they_got(zero):
    """Those that stand between two layouts take none of them; all of a group draw the same numbers."""
    rng = np.random.default_rng(0)
    rows = [{"x": rng.standard_normal((4, 32)).astype(np.float32), "seed": np.array([n], np.int32)} for n in range(2)]
    weights = {"w": (rng.standard_normal((32, 32)) / 8).astype(np.float32)}
    recorded = steps.Recorded(forward=gathered, weights=weights, data=[rows])
    losses, expected = steps.one_process(recorded, alpha=0.1)
    step = shard(*gathered(), zero=zero, ranks=4, tensor=2)
    assert step.spreads["w"].axis == 0
    assert {node.name for node in gathered()[0].nodes[2:]} <= {node.name for node in step.lowered.graph.nodes}
    found, held = trained(recorded, step)
    assert np.allclose(found, losses, rtol=1e-5)
    assert apart(held, expected) < 1e-5


def test_a_sum_of_the_forward_pass_stays_where_it_is_whatever_its_name():
    """Only sums of gradients are put off to the end of a bucket."""
    graph = Graph("m")
    with graph.scope("reduced"):
        up, down = (graph.parameter(name, (64, 64), trainable=True) for name in ("up", "down"))
        low = graph.op(
            "mul_mat", down, graph.op("silu", graph.op("mul_mat", up, graph.input("x", (3, 64)))), name="low"
        )
    loss = graph.op(
        "sum", graph.op("mul", graph.op("rms_norm", low, eps=1e-5), graph.parameter("w", (64,), trainable=True))
    )
    graph.expand(loss)
    step = shard(graph, loss, zero=0, ranks=2, tensor=2)
    names = [node.name for node in step.lowered.graph.nodes if node.kind == "all_reduce" and node.stage == "forward"]
    assert names[0] == "reduced.low"
    assert judge_ranks([step.planned()] * 2, step.groups).clean


def test_what_is_stored_in_16_bits_may_be_gathered():
    """Its gradient is rounded alike, and added up in f32."""

    def forward():
        graph = Graph("stored")
        x = graph.op("mul_mat", graph.parameter("w", (64, 64), trainable=True), graph.input("x", (4, 64)))
        stored = graph.op("slice", graph.op("cast", x, dtype="bf16"), starts=(0, 0), lengths=(4, 48))
        loss = graph.op("sum", graph.op("sqr", graph.op("cast", stored, dtype="f32")))
        graph.expand(loss)
        return graph, loss

    rng = np.random.default_rng(0)
    rows = [{"x": rng.standard_normal((4, 64)).astype(np.float32)}]
    weights = {"w": (rng.standard_normal((64, 64)) / 8).astype(np.float32)}
    recorded = steps.Recorded(forward=forward, weights=weights, data=[rows])
    losses, expected = steps.one_process(recorded, alpha=0.1)
    step = shard(*forward(), zero=0, ranks=2, tensor=2)
    assert "bf16" in {node.dtype for node in step.lowered.graph.nodes if node.kind == "all_gather"}
    found, held = trained(recorded, step)
    assert np.allclose(found, losses, rtol=2**-7)
    assert apart(held, expected) < 2**-6


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_every_legal_order_gives_the_same_bits(zero):
    recorded = perceptron(2)
    step = shard(*recorded.forward(), zero=zero, ranks=4, tensor=2, optimizer="adamw")
    losses, weights = trained(recorded, step)
    for seed in range(0, 30, 10):
        found, held = trained(recorded, step, seed=seed)
        assert found == losses
        assert all(np.array_equal(held[name], weights[name]) for name in weights)


@pytest.mark.parametrize("name", [name for name, row in ALLOCATORS.items() if "sound" in row.guarantees])
def test_every_planner_is_judged_clean_over_all_ranks(name):
    """One rank for all, and the document of all four."""
    recorded = lora(2, layers=1)
    step = shard(*recorded.forward(), zero=1, ranks=4, tensor=2)
    plan = step.planned(name)
    report = judge_ranks([plan] * 4, step.groups)
    assert (report.clean, report.judged) == (True, 1)
    assert check(joined([plan] * 4, step.groups)).clean


def test_every_wait_that_is_left_out_is_convicted():
    """Of what a rank computes for what others send, and of what it sends for what it computes."""
    step = shard(*lora(1, layers=1).forward(), zero=0, ranks=2, tensor=2)
    plan, program = step.planned(), step.lowered.program
    waits = np.flatnonzero(np.diff(program.ops.after_starts)).tolist()
    assert len(waits) > 8
    for waiting in waits:
        report = check(Document.of(replace(plan, program=steps.without_wait(program, waiting), problem=None)))
        assert "Race" in {violation.kind for violation in report.violations}, program.ops.names[waiting]


def test_a_wait_that_is_left_out_shows_in_some_order_as_other_numbers():
    recorded = perceptron(1)
    step = shard(*recorded.forward(), zero=0, ranks=2, tensor=2)
    right, _ = trained(recorded, step, rows=1)
    program = step.lowered.program
    waiting = next(n for n, op in enumerate(program.ops) if op.stream == 0 and len(op.after))
    lowered = replace(step.lowered, program=steps.without_wait(program, waiting))
    wrong, plan = replace(step, lowered=lowered), replace(step.planned(), program=lowered.program, problem=None)
    found = set()
    for seed in range(20):
        with Simulation(wrong, plan, recorded.weights, suspect=True) as world:
            found.add(float(world.run(recorded.data[0] * 2, hyper={"alpha": 0.1}, seed=seed)[0]["loss.mean"][0]))
    assert found - set(right)


def nbytes(graph):
    return sum(leaf.nbytes for leaf in graph.leafs if leaf.role == Role.PARAMETER)


@pytest.mark.parametrize("tensor", [2, 4])
def test_a_rank_holds_as_many_bytes_as_predicted(tensor):
    """Split weights by T, all else whole; and less lives at once."""
    recorded = lora(1)
    graph, loss = recorded.forward()
    split = tensor_parallel(graph, loss, ranks=tensor)
    sizes = {leaf.name: leaf.nbytes for leaf in graph.leafs if leaf.role == Role.PARAMETER}
    assert nbytes(split.graph) == sum(n // (tensor if name in split.axes else 1) for name, n in sizes.items())
    assert nbytes(split.graph) < 0.6 * nbytes(graph)
    one = shard(*recorded.forward(), zero=0, ranks=1).planned().peak_bytes
    assert shard(*recorded.forward(), zero=0, ranks=tensor, tensor=tensor).planned().peak_bytes < one


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_parts_join_and_others_go_on_with_them(zero):
    """What four ranks hold of weights and moments, joined, is held by any others, and joins again."""
    recorded = perceptron(2)
    one = shard(*recorded.forward(), zero=zero, ranks=4, tensor=2, optimizer="adamw")
    _, whole = trained(recorded, one)
    shapes = {name: array.shape for name, array in recorded.weights.items()}
    assert {name: array.shape for name, array in whole.items() if name in shapes} == shapes
    for how in ({"zero": 3, "ranks": 4, "tensor": 4}, {"zero": 2, "ranks": 3}, {"zero": zero, "ranks": 4, "tensor": 2}):
        other = shard(*recorded.forward(), optimizer="adamw", **how)
        names = {leaf.name: prod(leaf.shape) for leaf in other.lowered.graph.leafs if leaf.name in whole}
        held = [other.held(rank, {name: whole[name] for name in names}) for rank in range(how["ranks"])]
        assert all(row[name].size == n for row in held for name, n in names.items())
        again = other.joined(held)
        assert all(np.array_equal(again[name], whole[name]) for name in names)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"ranks": 4, "tensor": 3}, "must divide the 4 ranks"),
        ({"ranks": 4, "tensor": 0}, "must divide the 4 ranks"),
        ({"ranks": 4, "tensor": 2, "hybrid": (2, 2)}, "not done together"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(how, says):
    with pytest.raises(EngineError, match=says):
        shard(*perceptron(2).forward(), zero=3, **how)


def test_neighbours_that_read_other_rows_are_refused():
    """Each would bring its own rows to a sum over one split product: numbers of no batch at all."""
    recorded = perceptron(4)
    step = shard(*recorded.forward(), zero=0, ranks=4, tensor=2)
    rows = recorded.data[0]
    assert len(step.given([rows[0], dict(rows[0]), rows[1], rows[1]])) == 4
    with pytest.raises(EngineError, match="rank 1 reads other rows than rank 0"):
        step.given(rows)
    with pytest.raises(EngineError, match="rows for 2 ranks are given to 4"):
        step.given(rows[:2])


def test_strides_that_would_find_other_elements_are_refused():
    """A view of what lies in another order on a rank."""
    graph = Graph("strided")
    x = graph.op("mul_mat", graph.parameter("w", (64, 64), trainable=True), graph.input("x", (4, 64)))
    turned = graph.op("transpose", graph.op("silu", x))
    seen = graph.op("view", turned, shape=(4, 64), strides=(64, 1), offset=0)
    loss = graph.op("sum", seen)
    graph.expand(loss)
    with pytest.raises(EngineError, match="by strides"):
        shard(graph, loss, zero=0, ranks=2, tensor=2)
