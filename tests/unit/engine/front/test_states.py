"""What a model keeps from run to run: written by its own ops, saved, judged, the same however it is run."""

import sys
import warnings
from types import ModuleType

import numpy as np
import pytest
from msgspec import structs

import engine
from allocsim.allocators import ALLOCATORS
from allocsim.errors import EngineError
from allocsim.model import Plan, Role
from engine import Module, no_grad, state, tensor
from engine.front import functions as fn
from engine.front.modules import BatchNorm, Linear
from engine.front.rebasing import CopyWarning
from engine.sharding.ranked_trainer import RankedTrainer
from engine.training import Dataset, Model, Settings, StepRules, Trainer, fit

ROWS = np.random.default_rng(5).normal(1.0, 3.0, (24, 4)).astype(np.float32)
CLASSES = (np.arange(24) % 3).astype(np.int32)


class Normed(Module):
    def __init__(self):
        draw = np.random.default_rng(1)
        self.hidden, self.norm, self.out = Linear(4, 6, draw), BatchNorm(6, momentum=0.3), Linear(6, 3, draw)

    def forward(self, data):
        return self.out(fn.dropout(self.norm(self.hidden(data)).relu(), 0.1))


def summing(p, data):
    """Adds each batch to what it has seen, and multiplies by what it had seen before."""
    with no_grad():
        now = p["seen"] * 1.0
        p["seen"].add_(data.sum(0))
    return data * p["w"] * now


def stepping(model, **more):
    return Trainer(model, loss="sum", optimizer="sgd", **{"hyper": {"alpha": 0.0}, **more})


def test_running_statistics_move_as_the_formula_says_and_are_used_in_evaluation():
    norm = BatchNorm(4, momentum=0.25)
    with stepping(engine.model(norm), graphs="shapes") as trainer:
        mean, variance = np.zeros(4), np.ones(4)
        for rows in (ROWS[:5], ROWS[5:12], ROWS[12:]):
            outputs = trainer.step({"x": rows}).outputs
            np.testing.assert_allclose(outputs, (rows - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-5), atol=1e-5)
            mean += 0.25 * (rows.mean(0) - mean)
            variance += 0.25 * (rows.var(0, ddof=1) - variance)
        np.testing.assert_allclose(trainer.states["mean"], mean, rtol=1e-5)
        np.testing.assert_allclose(trainer.states["variance"], variance, rtol=1e-5)
        kept = {name: array.copy() for name, array in trainer.states.items()}
        predicted = trainer.predict({"x": ROWS})
        np.testing.assert_allclose(predicted, (ROWS - mean) / np.sqrt(variance + 1e-5), rtol=1e-4, atol=1e-5)
        assert all(np.array_equal(kept[name], trainer.states[name]) for name in kept)


@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5), (2, 4, 3, 3)])
def test_a_batch_norm_is_pytorchs_over_steps_and_in_evaluation(shape):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ours = BatchNorm(4, momentum=0.2)
    theirs = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d}[len(shape)](4, momentum=0.2)
    draw = np.random.default_rng(0)
    for _ in range(4):
        rows = draw.normal(2.0, 3.0, shape).astype(np.float32)
        x, y = tensor(rows, True), torch.tensor(rows, requires_grad=True)
        weights = draw.normal(size=shape).astype(np.float32)
        (ours(x) * weights).sum().backward()
        (theirs(y) * torch.tensor(weights)).sum().backward()
        np.testing.assert_allclose(x.grad, y.grad.numpy(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(ours.mean, theirs.running_mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(ours.variance, theirs.running_var.numpy(), rtol=1e-5)
    with engine.evaluation():
        np.testing.assert_allclose(ours(tensor(rows)), theirs.eval()(torch.tensor(rows)).detach(), rtol=1e-4, atol=1e-5)


def test_what_is_typed_moves_the_same_states_to_the_same_bits():
    net = Normed()
    with Trainer(engine.model(Normed()), optimizer="sgd", hyper={"alpha": 0.1}, graphs="shapes") as trainer:
        trainer.step({"data": ROWS, "labels": CLASSES})
        with no_grad():
            net.norm(net.hidden(tensor(ROWS)))
        for name, held in net.states().items():
            assert np.array_equal(held, trainer.states[name])
        tensors = {name: tensor(array) for name, array in {**trainer.weights, **trainer.states}.items()}
        with engine.evaluation():
            typed = net.using(tensors)(tensor(ROWS))
        assert np.array_equal(typed, trainer.predict({"data": ROWS}))


@pytest.mark.parametrize(
    "how",
    [
        {"planner": "reference"},
        {"planner": "greedy_by_size", "executor": "tape"},
        {"graphs": "dynamic"},
        {"graphs": "shapes"},
    ],
)
def test_neither_plans_nor_executors_nor_graphs_change_a_bit_of_a_state(how):
    found = []
    for more in ({}, how):
        with stepping(engine.model(Normed()), hyper={"alpha": 0.1}, **more) as trainer:
            for start in (0, 8, 16):
                trainer.step({"data": ROWS[start : start + 8]})
            found.append({**trainer.states, **trainer.weights})
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])


@pytest.mark.parametrize("stop", [1, 4, 7])
def test_states_are_saved_and_a_resumed_run_has_the_same(tmp_path, stop):
    net, data = engine.model(Normed()), Dataset.of(ROWS, CLASSES)
    settings = Settings(epochs=3, batch=4, logical_batch=4, validation=0.34, seed=7, hyper={"alpha": 0.05})
    whole = fit(net, data, settings)
    fit(net, data, settings, save=tmp_path / "state", stop_after=stop)
    resumed = fit(net, data, settings, save=tmp_path / "state", resume=True)
    assert whole.history == resumed.history
    assert whole.states.keys() == {"norm.mean", "norm.variance"}
    for one, other in ((whole.weights, resumed.weights), (whole.states, resumed.states)):
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_other_states_to_start_from_are_another_run(tmp_path):
    data, settings = Dataset.of(ROWS, CLASSES), Settings(loss="sum", batch=4)
    made = [engine.model(summing, {"w": np.ones(4)}, states={"seen": np.full(4, start)}, dtypes={"data": "float64"}) for start in (0.0, 1.0)]  # fmt: skip
    fit(made[0], data, settings, save=tmp_path / "state", stop_after=1)
    with pytest.raises(EngineError, match="initial weights"):
        fit(made[1], data, settings, save=tmp_path / "state", resume=True)


def test_a_state_is_read_as_it_was_before_the_run_by_gradients_too():
    net = engine.model(summing, {"w": np.ones(4, np.float32)}, states={"seen": np.full(4, 2.0, np.float32)})
    with Trainer(net, loss="sum", optimizer="sgd", hyper={"alpha": 1.0}) as trainer:
        first = trainer.step({"data": ROWS[:6]})
        assert np.array_equal(first.outputs, ROWS[:6] * 2.0)
        np.testing.assert_allclose(trainer.weights["w"], 1 - 2.0 * ROWS[:6].sum(0), rtol=1e-5)
        seen = 2.0 + ROWS[:6].sum(0)
        np.testing.assert_allclose(trainer.states["seen"], seen, rtol=1e-6)
        second = trainer.step({"data": ROWS[6:12]})
        np.testing.assert_allclose(second.outputs, ROWS[6:12] * (1 - 2.0 * ROWS[:6].sum(0)) * seen, rtol=1e-4)


def test_states_that_change_places_are_both_read_first():
    def swapped(p, data):
        with no_grad():
            old = p["a"] * 1.0
            p["a"].copy_(p["b"])
            p["b"].copy_(old)
        return data * p["w"]

    net = engine.model(swapped, {"w": np.ones(4)}, states={"a": np.zeros(4), "b": np.arange(4.0)}, dtypes={"data": "float64"})  # fmt: skip
    with stepping(net) as trainer:
        for turn in (1, 2, 3):
            trainer.step({"data": ROWS})
            assert np.array_equal(trainer.states["b" if turn % 2 == 0 else "a"], np.arange(4.0))
            assert not trainer.states["a" if turn % 2 == 0 else "b"].any()


def test_predictions_read_what_they_lay_into_a_state_and_only_training_keeps_it():
    def cached(p, data):
        with no_grad():
            p["cache"][1:3] = data
        return (p["cache"] * p["w"]).sum(0, keepdims=True)

    net = engine.model(cached, {"w": np.float32(2.0).reshape(1)}, states={"cache": np.ones((4, 4), np.float32)})
    laid = np.concatenate([np.ones((1, 4)), ROWS[:2], np.ones((1, 4))])
    with stepping(net) as trainer:
        with pytest.warns(CopyWarning):
            found = trainer.predict({"data": ROWS[:2]})
        np.testing.assert_allclose(found, 2 * laid.sum(0, keepdims=True), rtol=1e-6)
        assert np.array_equal(trainer.states["cache"], np.ones((4, 4)))
        with pytest.warns(CopyWarning):
            trainer.step({"data": ROWS[:2]})
        assert np.array_equal(trainer.states["cache"], laid)


@pytest.mark.parametrize("built", [False, True], ids=["typed", "built"])
def test_evaluations_change_no_bit_of_training(built):
    def build(graph, shapes):
        x, seen = graph.input("data", shapes["data"]), graph.state("seen", (4,))
        graph.writes[seen] = graph.op("add", seen, graph.op("sum_axes", x, axes=(0,)))
        weighted = graph.op("mul", x, graph.parameter("w", (4,), trainable=True))
        return graph.op("mul", weighted, seen)

    weights, states = {"w": np.ones(4, np.float32)}, {"seen": np.zeros(4, np.float32)}
    net = Model(name="built", build=build, parameters=weights, states=states) if built else engine.model(summing, weights, states=states)  # fmt: skip
    how = Settings(epochs=2, batch=3, validation=0.4, loss="mean", hyper={"alpha": 0.1})
    rows = Dataset.of(ROWS)
    plain, looked = fit(net, rows, how), fit(net, rows, structs.replace(how, evaluate_every=1))
    assert [done.training for done in plain.history] == [done.training for done in looked.history]
    assert np.array_equal(plain.states["seen"], looked.states["seen"])
    with stepping(net, graphs="shapes") as trainer:
        for build in ("outputs", "forward"):
            trainer.run(build, {"data": ROWS})
        assert not trainer.states["seen"].any()


WRITES = (
    lambda a, data: a[0].add_(1.0),
    lambda a, data: a[1:].copy_(a[:-1] * 0.5),
    lambda a, data: a.mul_(0.5),
    lambda a, data: a[:2].add_(data[0, :2]),
    lambda a, data: a.__setitem__(2, data.sum()),
    lambda a, data: a.__setitem__([0, 3], a[[3, 1]]),
    lambda a, data: a[1:][1].sub_(a[0]),
    lambda a, data: a.reshape(2, 2)[:, 1].add_(data[1, 0] + a[3]),
)


@pytest.mark.parametrize("seed", range(8))
def test_writes_one_after_another_through_views_of_a_state_are_those_that_were_typed(seed):
    chosen = [WRITES[k] for k in np.random.default_rng(seed).integers(0, len(WRITES), 4)]

    def written(p, data):
        with no_grad():
            for write in chosen:
                write(p["a"], data)
        return (data + p["a"]) * p["w"]

    start = np.arange(1.0, 5.0, dtype=np.float32)
    held = {"a": state(start), "w": tensor(np.ones(4, np.float32))}
    with stepping(engine.model(written, {"w": np.ones(4, np.float32)}, states={"a": start})) as trainer:
        for batch in (ROWS[:3], ROWS[3:6], ROWS[6:9]):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CopyWarning)
                outputs = trainer.step({"data": batch}).outputs
            np.testing.assert_allclose(outputs, written(held, tensor(batch)), rtol=1e-5)
            np.testing.assert_allclose(trainer.states["a"], held["a"], rtol=1e-5)


def test_a_graph_of_the_engine_may_keep_states_as_well():
    def build(graph, shapes):
        x = graph.input("data", shapes["data"])
        seen = graph.state("seen", shapes["data"][1:])
        graph.writes[seen] = graph.op("add", seen, graph.op("sum_axes", x, axes=(0,)))
        return graph.op("mul", x, graph.parameter("w", shapes["data"][1:], trainable=True))

    net = Model(name="counting", build=build, parameters={"w": np.ones(4, np.float32)})
    with stepping(net) as trainer:
        for start in (0, 6):
            trainer.step({"data": ROWS[start : start + 6]})
        np.testing.assert_allclose(trainer.states["seen"], ROWS[:12].sum(0), rtol=1e-5)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda p, data: p["seen"].copy_((data * p["w"]).sum(0)), "compute it under no_grad(), or detach() it"),
        (lambda p, data: data.add_(1.0), "a column or a parameter is not changed"),
        (lambda p, data: data.reshape(-1)[:2].add_(1.0), "a column or a parameter is not changed"),
        (lambda p, data: data.__setitem__(0, 1.0), "a column or a parameter is not changed"),
        (lambda p, data: p["w"].detach()[:2].add_(1.0), "a column or a parameter is not changed"),
        (lambda p, data: p["still"][:2].add_(1.0), "a column or a parameter is not changed"),
        (lambda p, data: p["seen"].set_(0, 1.0), "reads its numbers"),
    ],
)
def test_what_a_state_cannot_hold_is_one_line(write, says):
    def written(p, data):
        write(p, data)
        return data * p["w"]

    weights = {"w": np.ones(4, np.float32), "still": np.ones(4, np.float32)}
    net = engine.model(written, weights, states={"seen": np.zeros(4, np.float32)}, frozen=["still"])
    with stepping(net) as trainer, pytest.raises(EngineError) as raised:
        trainer.step({"data": ROWS})
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "write",
    [
        lambda s, w: s.copy_(w * 2.0),
        lambda s, w: s.__setitem__(0, w[0] * 2.0),
        lambda s, w: s.__setitem__(slice(None), w),
        lambda s, w: s.__setitem__([1, 0], w),
        lambda s, w: s[:1].add_(w[:1]),
        lambda s, w: s.reshape(2, 1).T.mul_(w),
        lambda s, w: s.detach()[1:].sub_(w[1:]),
    ],
)
def test_no_way_to_write_a_state_gives_it_a_history(write):
    kept, w = state(np.zeros(2, np.float32)), tensor(np.ones(2, np.float32), True)
    with pytest.raises(EngineError, match=r"compute it under no_grad\(\), or detach\(\) it"):
        write(kept, w)
    assert not kept.requires_grad
    assert not kept.numpy().any()
    write(kept, w.detach())
    with no_grad():
        write(kept, w)
    assert not kept.requires_grad

    def written(p, data):
        write(p["seen"], p["w"])
        return data * p["w"]

    net = engine.model(written, {"w": np.ones(2, np.float32)}, states={"seen": np.zeros(2, np.float32)})
    with stepping(net) as trainer, pytest.raises(EngineError, match="has a gradient's history"):
        trainer.step({"data": ROWS[:, :2]})


def test_misuse_of_states_is_one_line():
    with pytest.raises(EngineError, match="as a parameter and as a state"):
        engine.model(summing, {"w": np.ones(4), "seen": np.ones(4)}, states={"seen": np.ones(4)})
    with pytest.raises(EngineError, match="has its own states"):
        engine.model(Normed(), states={"a": np.ones(1)})
    with pytest.raises(EngineError, match="a variance takes two"):
        BatchNorm(4)(tensor(ROWS[:1]))
    with pytest.raises(EngineError, match="keeps states"):
        RankedTrainer(engine.model(Normed()), ranks=2, zero=0)
    assert state([1.0]).detach().numpy().tolist() == [1.0]


def test_default_pinned_and_reference_runs_agree_and_nothing_is_found():
    net = engine.model(Normed(), example={"data": ROWS, "labels": CLASSES})
    found = engine.diagnose(net, steps=3, hyper={"alpha": 0.1})
    assert found.verdict.sound
    assert found.modes["default"].loss == found.modes["pinned"].loss == found.modes["reference"].loss


@pytest.fixture
def overlaid(monkeypatch):
    """A planner that lets the state called `victim` share the bytes of the largest result."""

    def plan(program, constraints):
        made = ALLOCATORS["greedy_by_size"].plan(program, constraints)
        buffers = program.buffers
        victim = list(buffers.names).index(module.victim)
        assert buffers.role[victim] == Role.STATE
        inside = np.flatnonzero((made.arena == 0) & ~buffers.persistent)
        guest = int(inside[np.argmax(buffers.nbytes[inside])])
        arena, offset = made.arena.copy(), made.offset.copy()
        arena[victim], offset[victim] = 0, made.offset[guest]
        return Plan(program=program, arena=arena, offset=offset, nbytes=made.nbytes, source="overlaid")

    module = ModuleType("overlaid_planner")
    module.plan = plan
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize("victim", ["seen", "average.w", "loss_scale.value", "b.w"])
def test_a_planner_that_gives_a_states_bytes_away_is_convicted(overlaid, victim):
    """One of the model, the average of a weight, the scale of the loss, a velocity."""
    net = engine.model(summing, {"w": np.ones(4, np.float32)}, states={"seen": np.ones(4, np.float32)}, example={"data": ROWS})  # fmt: skip
    how = {"loss": "sum", "optimizer": "momentum", "steps": 3, "hyper": {"alpha": 1e-3}, "rules": StepRules(average=0.5, loss_scale=64.0)}  # fmt: skip
    overlaid.victim = victim
    assert engine.diagnose(net, **how).verdict.sound
    found = engine.diagnose(net, **how, allocator=f"{overlaid.__name__}:plan")
    assert {cause.party for cause in found.verdict.causes} == {"plan"}
    assert victim in found.verdict.text
