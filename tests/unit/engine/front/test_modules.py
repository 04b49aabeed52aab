"""Modules and optimizers at the front: thin, by name, and the bits of the graph and of a training file."""

from collections import namedtuple
from itertools import pairwise

import numpy as np
import pytest

import engine
from allocsim.errors import EngineError, UnknownNameError
from engine import Module, tensor
from engine.front import functions as fn
from engine.front.attention_modules import TransformerEncoderLayer
from engine.front.modules import Conv2d, Embedding, Linear, RmsNorm, Sequential
from engine.models.mlp import mlp
from engine.training import Dataset, Settings, Trainer, config, fit
from engine.training.data import moons


class Classifier(Module):
    """A perceptron, as `engine.models.mlp` has it."""

    def __init__(self, sizes=(2, 16, 2)):
        rng = np.random.default_rng(0)
        self.layer = [Linear(a, b, rng) for a, b in pairwise(sizes)]
        self.scale = 3  # no parameter

    def forward(self, data):
        for number, layer in enumerate(self.layer):
            data = layer(data if number == 0 else data.tanh())
        return data


BUILT_IN = mlp((2, 16, 2), activation="tanh", seed=3)


def started():
    net = Classifier()
    return net.using({name: tensor(array, True) for name, array in BUILT_IN.parameters.items()})


@pytest.mark.parametrize(("name", "hyper"), [("sgd", {"alpha": 0.1, "wd": 0.01}), ("adamw", {"alpha": 0.05})])
def test_typed_module_graph_and_training_file_come_to_the_same_bits(tmp_path, name, hyper):
    """Twelve steps of twenty rows, four ways: a loop at the front, a recorded module, the graph's own model, a file."""
    dataset = moons(60)
    settings = Settings(epochs=4, batch=20, optimizer=name, hyper=hyper, shuffle=False)

    typed = started()
    step = engine.optimizer(typed.parameters(), name, **hyper)
    for _ in range(4):
        for start in range(0, 60, 20):
            rows = dataset.take(np.arange(start, start + 20))
            fn.cross_entropy(typed(tensor(rows["data"])), rows["labels"]).backward()
            assert step() == ()
            typed.zero_grad()

    (tmp_path / "net.toml").write_text(
        f'[model]\nkind = "mlp"\nsizes = [2, 16, 2]\nactivation = "tanh"\nseed = 3\n[data]\nkind = "moons"\npoints = 60\n'
        f'[training]\nepochs = 4\nbatch = 20\nshuffle = false\noptimizer = "{name}"\nhyper = {{{", ".join(f"{k} = {v}" for k, v in hyper.items())}}}\n'
    )
    said = config.read(tmp_path / "net.toml")
    ways = {
        "module": fit(engine.model(started()), dataset, settings).weights,
        "graph": fit(BUILT_IN, dataset, settings).weights,
        "file": fit(said.model.made(tmp_path), said.data.made(tmp_path), said.training).weights,
    }
    for way, weights in ways.items():
        assert sorted(weights) == sorted(typed.parameters()), way
        for key, parameter in typed.parameters().items():
            np.testing.assert_array_equal(weights[key], parameter.numpy(), err_msg=f"{way} {key}")


def test_parameters_have_the_names_of_the_ways_to_them_and_nothing_is_hidden():
    class Deep(Module):
        def __init__(self):
            rng = np.random.default_rng(0)
            self.table = Embedding(5, 4, rng)
            self.blocks = {"a": Sequential(Linear(4, 4, rng, bias=False), RmsNorm(4)), "b": (Linear(4, 3, rng),)}
            self.tied = self.table
            self.shift = tensor(np.zeros(3, np.float32))

        def forward(self, ids):
            return self.blocks["b"][0](self.blocks["a"](self.table(ids))) + self.shift

    net = Deep()
    assert list(net.parameters()) == [
        "table.weight", "blocks.a.layers.0.weight", "blocks.a.layers.1.weight", "blocks.b.0.weight", "blocks.b.0.bias",
    ]  # fmt: skip
    ids = np.array([[0, 4], [1, 1]])
    net(ids).sum().backward()
    assert all(p.grad is not None for p in net.parameters().values())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters().values())

    model = engine.model(net, dtypes={"ids": "int32"}, example={"ids": ids})
    with Trainer(model, loss="sum") as trainer:
        bound = trainer.bound("gradient", {"ids": ids})
        outcome = trainer.run("forward", {"ids": ids})
    assert any(name.startswith("blocks.a.") for name in bound.plan.program.buffers.names)
    np.testing.assert_array_equal(outcome.outputs, net(ids).numpy())
    assert net.using(net.parameters()).tied is not net.tied


def test_a_convolution_is_a_module_and_an_unreached_parameter_is_told():
    net = Conv2d(1, 2, 3, np.random.default_rng(0), padding=1)
    spare = tensor(np.ones(2, np.float32), True)
    step = engine.optimizer({**net.parameters(), "spare": spare}, "adamw")
    images = tensor(np.ones((2, 1, 4, 4), np.float32))
    net(images).sum().backward()
    before = net.weight.numpy()
    assert step() == ("spare",)
    assert (net.weight.numpy() != before).all()
    assert spare.numpy().tolist() == [1, 1]
    assert not step.states["m.spare"].any()
    assert step.states["m.weight"].any()


def test_a_step_is_a_change_in_place_that_backward_knows_of():
    w = tensor([1.0, 2.0], True)
    y = (w * w).sum()
    w.grad = tensor([1.0, 1.0])
    engine.optimizer([w], "sgd", alpha=0.5)()
    assert w.numpy().tolist() == [0.5, 1.5]
    with pytest.raises(EngineError, match="a step of sgd changed it in place"):
        y.backward()
    (w * w).sum().backward()
    assert w.grad.numpy().tolist() == [2, 4]  # 1 + 2w: gradients add up


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: engine.optimizer([tensor([1.0])]), EngineError, "no leaf that wants a gradient"),
        (lambda: engine.optimizer([tensor([1.0], True) * 2.0]), EngineError, "no leaf that wants a gradient"),
        (lambda: engine.optimizer([], "adan"), UnknownNameError, "optimizer 'adan' does not exist"),
        (lambda: engine.optimizer([], "sgd", beta=1.0), EngineError, "no hyper-parameter 'beta'"),
        (lambda: engine.model(Classifier(), {}), EngineError, "has its own parameters"),
        (lambda: engine.model(lambda p, data: data), EngineError, "its parameters are to be given"),
        (lambda: Classifier().using({}), EngineError, "without the other"),
        (lambda: Module()(1), EngineError, "Module says no forward"),
        (lambda: Linear(2, 3, np.random.default_rng(0)).using({"weight": tensor([1.0]), "bias": tensor([1.0])}), EngineError, "has shape"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_one_line(act, error, message):
    with pytest.raises(error, match=message) as raised:
        act()
    assert "\n" not in str(raised.value)


def test_a_model_of_a_module_learns_and_its_dataset_may_be_any():
    points = np.random.default_rng(1).normal(size=(80, 2)).astype(np.float32)
    data = Dataset.of(points, (points[:, 0] > points[:, 1]).astype(np.int32))
    fitted = fit(engine.model(Classifier()), data, Settings(epochs=10, batch=10, hyper={"alpha": 0.05}))
    assert fitted.history[-1].training.loss < 0.5 * fitted.history[0].training.loss


class Held(Module):
    """Holds what it is given."""

    def __init__(self, **held):
        vars(self).update(held)


def one():
    return tensor(np.ones(2, np.float32), True)


def test_two_parameters_of_one_name_are_refused():
    for held in ({"d": {1: one(), "1": one()}}, {"a.b": one(), "a": Held(b=one())}):
        with pytest.raises(EngineError, match="two parameters are called"):
            Held(**held).parameters()


def test_a_module_that_holds_itself_is_refused():
    inner = Held(w=one())
    inner.up = Held(inner=inner)
    with pytest.raises(EngineError, match=r"up.inner is the Held that it lies in"):
        inner.parameters()


def test_what_parameters_finds_in_a_named_tuple_using_replaces():
    Pair = namedtuple("Pair", "a b")  # noqa: PYI024 - what people hold
    net = Held(pair=Pair(one(), one()))
    given = {name: one() for name in net.parameters()}

    assert [*given] == ["pair.0", "pair.1"]
    made = net.using(given)
    assert isinstance(made.pair, Pair)
    assert all(mine is given[name] for name, mine in made.parameters().items())


def test_a_tensor_given_twice_is_no_two_parameters():
    p = one()
    with pytest.raises(EngineError, match="'0' and '1' are one tensor"):
        engine.optimizer([p, p])


def test_a_layer_with_attention_is_recorded_and_trained_with_dropout():
    rng = np.random.default_rng(5)

    class Net(Module):
        def __init__(self):
            self.layer, self.out = TransformerEncoderLayer(4, 2, 8, rng, p=0.2), Linear(4, 3, rng)

        def forward(self, data):
            return self.out(self.layer(data, np.tri(3, 3, dtype=bool)).mean(1))

    data, labels = rng.normal(size=(8, 3, 4)).astype(np.float32), rng.integers(0, 3, 8).astype(np.int32)
    model = engine.model(Net(), example={"data": data, "labels": labels})
    fitted = fit(model, Dataset.of(data, labels), Settings(epochs=3, batch=8, hyper={"alpha": 0.05}))
    losses = [epoch.training.losses[0] for epoch in fitted.history]
    assert losses[-1] < losses[0]
