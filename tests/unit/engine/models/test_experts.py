"""A mixture of experts: the arithmetic of one-hot masks, its derivatives, and a transformer with it."""

from math import inf

import numpy as np
import pytest

from allocsim.allocators import find
from allocsim.errors import EngineError
from engine.autodiff import backward
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.models.experts import mixture, slots
from engine.models.llama import LlamaConfig, init_parameters, llama
from engine.runtime import Runtime
from engine.training import Dataset, Settings, fit
from engine.training.config import Config, Llama, Moons, about

WIDTH, INNER = 5, 3


def shapes(experts):
    return {"router": (experts, WIDTH), "up": (experts, INNER, WIDTH), "down": (experts, WIDTH, INNER)}


def drawn(rng, rows, experts):
    weights = {name: rng.standard_normal(shape) for name, shape in shapes(experts).items()}
    return weights, rng.standard_normal((rows, WIDTH))


def recorded(rows, experts, active, room):
    graph = Graph("mixture")
    x = graph.parameter("x", (rows, WIDTH), "f64", trainable=True)
    router, up, down = (graph.parameter(n, s, "f64", trainable=True) for n, s in shapes(experts).items())

    def expert(sent):
        return graph.op("mul_mat", down, graph.op("tanh", graph.op("mul_mat", up, sent)))

    mixed = mixture(x, graph.op("mul_mat", router, x), active=active, slots=room, expert=expert)
    loss = graph.op("add", graph.op("sum", graph.op("sqr", mixed.result)), mixed.balance)
    gradients = backward(graph, loss)
    return lower(graph, dict.fromkeys((mixed.result, mixed.balance, loss, *gradients.values()))), mixed, gradients, loss


def executed(lowered, weights, x):
    with Runtime(lowered, find("reference").plan(lowered.program), parameters={**weights, "x": x}) as runtime:
        return {name: array.copy() for name, array in runtime.run({"loss_grad": np.ones(1)}).items()}


def by_masks(weights, x, active, room):
    """GShard's arithmetic: masks [S, E, C], a counter for each expert."""
    share = np.exp(x @ weights["router"].T)
    share /= share.sum(1, keepdims=True)
    chosen = np.argsort(-share, axis=1, kind="stable")[:, :active]
    picked = np.take_along_axis(share, chosen, 1)
    picked = picked / picked.sum(1, keepdims=True) if active > 1 else picked
    dispatch, combine = (np.zeros((*share.shape, room)) for _ in range(2))
    taken = np.zeros(share.shape[1], int)
    for turn in range(active):
        for row, expert in enumerate(chosen[:, turn]):
            if taken[expert] < room:
                dispatch[row, expert, taken[expert]] = 1
                combine[row, expert, taken[expert]] = picked[row, turn]
            taken[expert] += 1
    inner = np.tanh(np.einsum("sec,sd,efd->ecf", dispatch, x, weights["up"]))
    uses = np.bincount(chosen.ravel(), minlength=share.shape[1]) / chosen.size
    balance = share.shape[1] * (uses * share.mean(0)).sum()
    return np.einsum("sec,ecf,edf->sd", combine, inner, weights["down"]), balance, dispatch


@pytest.mark.parametrize(
    ("rows", "experts", "active", "room"), [(12, 4, 2, 6), (12, 4, 1, 2), (9, 3, 3, 9), (7, 5, 2, 1), (1, 2, 1, 1)]
)
def test_rows_go_through_the_experts_that_one_hot_masks_send_them_to(rows, experts, active, room, rng):
    """Those that find no slot are dropped; one that all its experts drop is 0."""
    weights, x = drawn(rng, rows, experts)
    lowered, mixed, *_ = recorded(rows, experts, active, room)
    found = executed(lowered, weights, x)
    result, balance, dispatch = by_masks(weights, x, active, room)
    np.testing.assert_allclose(found[mixed.result.name], result, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[mixed.balance.name], [balance], rtol=1e-12)
    assert not found[mixed.result.name][dispatch.sum((1, 2)) == 0].any()


def test_gradients_are_the_slope_of_the_loss_along_each_weight(rng):
    weights, x = drawn(rng, 8, 4)
    lowered, _, gradients, loss = recorded(8, 4, 2, 3)
    found, step = executed(lowered, weights, x), 1e-6
    for leaf, gradient in gradients.items():
        along = rng.standard_normal(leaf.shape)
        ends = []
        for sign in (1, -1):
            moved = {**weights, "x": x}
            moved[leaf.name] = moved[leaf.name] + sign * step * along
            ends.append(executed(lowered, moved, moved.pop("x"))[loss.name][0])
        slope = (ends[0] - ends[1]) / (2 * step)
        assert np.isclose(slope, (found[gradient.name] * along).sum(), rtol=1e-5), leaf


def test_slots_are_an_even_share_times_a_factor():
    assert slots(64, experts=8, active=2, factor=1.0) == 16
    assert slots(64, experts=8, active=2, factor=1.25) == 20
    assert slots(10, experts=8, active=1, factor=1.0) == 2
    assert slots(3, experts=2, active=2, factor=9.0) == 3
    assert slots(1, experts=8, active=1, factor=0.1) == 1
    assert slots(4, experts=8, active=2, factor=1e308) == 4


def test_what_does_not_fit_is_refused_in_a_line():
    graph = Graph("m")
    x, scores = graph.input("x", (4, 3)), graph.input("scores", (4, 2))
    for how in ({"active": 3, "slots": 1}, {"active": 1, "slots": 5}, {"active": 0, "slots": 1}):
        with pytest.raises(EngineError, match="1 to all of each"):
            mixture(x, scores, expert=lambda rows: rows, **how)
    with pytest.raises(EngineError, match="a row for each of theirs"):
        mixture(x, scores, active=1, slots=2, expert=lambda rows: graph.op("reshape", rows, shape=(4, 3)))
    for wrong in ({"active": 5}, {"active": 0}, {"capacity": 0.0}, {"balance": -1.0}, {"balance": inf}):
        with pytest.raises(EngineError, match="4 experts with active"):
            LlamaConfig(experts=4, **wrong)


def test_one_expert_that_takes_all_rows_is_the_feed_forward_part_itself():
    """The same logits, and nothing else is recorded where there are no experts."""
    config = LlamaConfig(layers=1, hidden=16, ffn=24, heads=2, kv_heads=1, vocab=12, seq=4, rank=0)
    alone = {name: array for name, array in init_parameters(config, seed=0).items() if name != "sgd.hp"}
    one = LlamaConfig(**{**{n: getattr(config, n) for n in config.__slots__}, "experts": 1, "active": 1})
    of_one = {n: a[None] if "ffn_" in n and a.ndim == 2 else a for n, a in alone.items()}
    of_one["layer.0.ffn_router.weight"] = np.zeros((1, 16), np.float32)
    found = []
    for model in (llama(config, alone), llama(one, of_one)):
        graph = Graph("logits")
        logits = model.build(graph, {"tokens": (1, 4)})
        graph.expand(logits)
        lowered = lower(graph, (logits,))
        given = {"tokens": np.arange(4, dtype=np.int32), **model.constants({"tokens": (1, 4)})}
        with Runtime(lowered, find("reference").plan(lowered.program), parameters=dict(model.parameters)) as runtime:
            found.append(runtime.run(given)[logits.name].copy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


def tokens(rows=24):
    drawn = np.random.default_rng(0).integers(0, 12, (rows, 9)).astype(np.int32)
    return Dataset(columns={"tokens": drawn[:, :-1], "labels": drawn[:, 1:]})


def test_a_transformer_with_experts_is_trained_by_its_table(tmp_path):
    """What evens experts out is part of the loss that is trained, and not of the one that validates."""
    table = {"layers": 1, "hidden": 16, "ffn": 24, "heads": 2, "kv_heads": 1, "vocab": 12, "experts": 4}
    plain, pressed = (
        fit(Llama(**table, balance=balance).made(tmp_path), tokens(), Settings(batch=4, validation=0.25, hyper=hyper))
        for balance, hyper in ((0.0, {"alpha": 0.0}), (100.0, {"alpha": 0.0}))
    )
    assert pressed.history[0].validation.loss == plain.history[0].validation.loss
    assert pressed.history[0].training.loss > plain.history[0].training.loss + 50
    fitted = fit(Llama(**table).made(tmp_path), tokens(), Settings(batch=4, epochs=12, hyper={"alpha": 0.02}))
    assert fitted.history[-1].training.loss < 0.9 * fitted.history[0].training.loss
    assert Llama(**table).made(tmp_path).exported({}) == {}
    plain, spread = (
        about(Config(model=Llama(experts=count), data=Moons(points=9)))["model table"].keys() for count in (0, 4)
    )
    assert spread - plain == {"experts", "active", "capacity", "balance"}
    with pytest.raises(EngineError, match="4 experts: the weights of a file have none"):
        Llama(**table, weights="there.gguf").made(tmp_path)
