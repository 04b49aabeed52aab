"""What a step does beside its optimizer: against formulas and PyTorch, the same typed and trained, resumed and judged."""

import json
from functools import partial

import numpy as np
import pytest
from msgspec import structs
from safetensors.numpy import load_file

import engine
from allocsim.cli import main
from allocsim.errors import EngineError
from allocsim.judge.fast import check
from engine import Module, tensor
from engine.front import functions as fn
from engine.front.modules import BatchNorm, Linear
from engine.models.gpt2 import GPT2Config, gpt2, init_parameters
from engine.models.mlp import mlp
from engine.sharding.ranked_trainer import RankedTrainer
from engine.training import Model, Settings, StepRules, Trainer, WeightGroup, fit
from engine.training import config as configs
from engine.training.data import moons
from engine.training.optimizers import OPTIMIZERS

DATA = moons(60, seed=3)
MODEL = mlp((2, 8, 2), activation="tanh", seed=1)
BATCHES = [DATA.take(np.arange(start, start + 10)) for start in range(0, 60, 10)]
GROUPS = (WeightGroup(match="*.bias", hyper={"wd": 0.0}), WeightGroup(match="*[1t].weight", rate=0.5))
RULES = {
    "norm": {"clip_norm": 0.05},
    "value": {"clip_value": 0.01},
    "both": {"clip_norm": 0.05, "clip_value": 0.03},
    "groups": {"groups": GROUPS},
    "average": {"average": 0.6},
    "scale": {"loss_scale": 1024.0},
    "all": {"clip_norm": 0.05, "groups": GROUPS, "average": 0.6, "loss_scale": 64.0, "loss_scale_interval": 2},
}


class Net(Module):
    def __init__(self):
        draw = np.random.default_rng(4)
        self.hidden, self.out = Linear(2, 8, draw), Linear(8, 2, draw)

    def forward(self, data):
        return self.out(self.hidden(data).tanh())


def typed(name, hyper, rules, batches=BATCHES):
    net = Net()
    step = engine.optimizer(net.parameters(), name, **hyper, **rules)
    for batch in batches:
        loss = fn.cross_entropy(net(tensor(batch["data"])), batch["labels"].astype(np.int32))
        (loss * step.loss_scale).backward()
        step()
        net.zero_grad()
    return net, step


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("rules", RULES)
def test_what_is_typed_and_what_is_trained_come_to_the_same_bits(name, rules):
    hyper = {"alpha": 0.1, "wd": 0.05}
    net, step = typed(name, hyper, RULES[rules])
    with Trainer(engine.model(Net()), optimizer=name, hyper=hyper, rules=StepRules(**RULES[rules])) as trainer:
        for batch in BATCHES:
            trainer.step(batch)
        for key, parameter in net.parameters().items():
            assert np.array_equal(parameter, trainer.weights[key]), key
        assert trainer.states.keys() == step.states.keys()
        assert all(np.array_equal(trainer.states[key], step.states[key]) for key in step.states)


TORCH = {
    "sgd": lambda torch, p, alpha, wd: torch.optim.SGD(p, lr=alpha, weight_decay=wd),
    "momentum": lambda torch, p, alpha, wd: torch.optim.SGD(p, lr=alpha, weight_decay=wd, momentum=0.9),
    "nesterov": lambda torch, p, alpha, wd: torch.optim.SGD(p, lr=alpha, weight_decay=wd, momentum=0.9, nesterov=True),
    "adam": lambda torch, p, alpha, wd: torch.optim.Adam(p, lr=alpha, weight_decay=wd),
    "adamw": lambda torch, p, alpha, wd: torch.optim.AdamW(p, lr=alpha, weight_decay=wd),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("rules", ["none", "norm", "value", "both", "groups", "average"])
def test_weights_are_pytorchs_after_six_steps(name, rules):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    given = RULES.get(rules, {})
    net, step = typed(name, {"alpha": 0.1, "wd": 0.05}, given)
    twin = {key: torch.tensor(array.numpy(), requires_grad=True) for key, array in Net().parameters().items()}
    groups = [{"params": [p], "lr": 0.1, "weight_decay": 0.05} for p in twin.values()]
    if rules == "groups":
        for key, group in zip(twin, groups, strict=True):
            group["weight_decay"] = 0.0 if key.endswith(".bias") else 0.05
            group["lr"] = 0.05 if "out" in key and not key.endswith(".bias") else 0.1
    optimizer = TORCH[name](torch, groups, 0.1, 0.05)
    average = {}
    for number, batch in enumerate(BATCHES):
        optimizer.zero_grad()
        hidden = torch.tanh(torch.tensor(batch["data"]) @ twin["hidden.weight"].T + twin["hidden.bias"])
        logits = hidden @ twin["out.weight"].T + twin["out.bias"]
        torch.nn.functional.cross_entropy(logits, torch.tensor(batch["labels"].astype(np.int64))).backward()
        if "clip_value" in given:
            torch.nn.utils.clip_grad_value_(twin.values(), given["clip_value"])
        if "clip_norm" in given:
            torch.nn.utils.clip_grad_norm_(twin.values(), given["clip_norm"])
        optimizer.step()
        now = {key: p.detach().numpy().copy() for key, p in twin.items()}
        average = now if number == 0 else {key: 0.6 * average[key] + 0.4 * now[key] for key in now}
    for key, parameter in net.parameters().items():
        np.testing.assert_allclose(parameter, now[key], rtol=1e-3, atol=2e-5)
        if rules == "average":
            np.testing.assert_allclose(step.averages[key], average[key], rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_that_overflows_changes_nothing_and_halves_the_scale(name):
    rules = StepRules(loss_scale=2.0**20, loss_scale_interval=2, clip_norm=1.0)
    with Trainer(MODEL, optimizer=name, hyper={"alpha": 0.1, "wd": 0.01}, rules=rules) as trainer:
        trainer.step(BATCHES[0])
        kept = {key: array.copy() for key, array in {**trainer.weights, **trainer.states}.items()}
        trainer.step({**BATCHES[1], "data": np.full_like(BATCHES[1]["data"], np.inf)})
        now = {**trainer.weights, **trainer.states}
        for key, array in kept.items():
            if not key.startswith("loss_scale"):
                assert np.array_equal(array, now[key]), key
        assert trainer.states["loss_scale.value"][0] == 2.0**19
        assert (trainer.states["loss_scale.skipped"][0], trainer.states["loss_scale.good"][0]) == (1, 0)
        for batch in BATCHES[:3]:
            trainer.step(batch)
        assert trainer.states["loss_scale.value"][0] == 2.0**20  # after two steps it doubles
        assert trainer.states["loss_scale.good"][0] == 1


PARTLY = {"clip_norm": 1.0, "average": 0.5, "loss_scale": 2.0**20, "groups": (WeightGroup(match="*.bias", rate=2.0),)}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_of_which_some_gradients_are_finite_changes_nothing_either(name):
    """The gradient of the weight overflows, that of the bias does not; moments, averages and counts stay as they are."""
    draw = np.random.default_rng(0)
    rows, labels = draw.normal(size=(5, 10, 2)).astype(np.float32), draw.normal(size=(5, 10, 2)).astype(np.float32)
    rows[[0, 3]] *= 1e18
    made = []
    for left in ([0, 1, 2, 3, 4], [1, 2, 4]):
        model = mlp((2, 2), activation="tanh", seed=1)
        how = {"loss": "mean_squared_error", "optimizer": name, "hyper": {"alpha": 0.1, "wd": 0.01}}
        rules = StepRules(**PARTLY, loss_scale_interval=100)
        with Trainer(model, rules=rules, **how) as trainer:
            for k in left:
                trainer.step({"data": rows[k], "labels": labels[k]})
            made.append({key: array.copy() for key, array in {**trainer.weights, **trainer.states}.items()})
    assert made[0]["loss_scale.skipped"][0] == 2
    assert all(np.array_equal(made[0][key], made[1][key]) for key in made[0] if not key.startswith("loss_scale"))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_typed_step_of_which_some_gradients_are_finite_changes_nothing_either(name):
    weights = {"a": tensor([1.0, 2.0], True), "a.bias": tensor([3.0], True)}
    step = engine.optimizer(weights, name, alpha=0.1, wd=0.01, **PARTLY)
    for first in (1e30, np.inf, 2.0, np.nan):
        weights["a"].grad, weights["a.bias"].grad = tensor([1e30, first]), tensor([-1e30])
        before = {**{key: w.numpy() for key, w in weights.items()}, **{key: v.copy() for key, v in step.states.items()}}
        step()
        now = {**weights, **step.states}
        same = [
            np.array_equal(before[key], now[key]) for key in now if not key.startswith("loss_scale") and key in before
        ]
        assert all(same) or np.isfinite(first)


LATE = {
    "plain": ({}, 0.1),
    "groups": ({"groups": [WeightGroup(match="late", rate=0.5)]}, 0.05),
    "scale": ({"loss_scale": 4.0}, 0.1),
    "norm": ({"clip_norm": 1e6, "average": 0.5}, 0.1),
}


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("rules", LATE)
def test_a_weight_counts_the_steps_that_it_had_a_gradient_in(name, rules):
    """Adam's first two steps along one gradient are alpha each, whatever step of others they are."""
    given, length = LATE[rules]
    weights = {"soon": tensor(np.array([1.0]), True), "late": tensor(np.array([5.0]), True)}
    step = engine.optimizer(weights, name, alpha=0.1, **given)
    for turn, late in enumerate((None, None, 8.0, None, 8.0)):
        if rules == "scale" and turn == 1:  # a step that changes nothing is nobody's
            weights["soon"].grad = tensor(np.array([np.inf]))
            step()
        weights["soon"].grad = tensor(np.array([3.0 * step.loss_scale]))
        weights["late"].grad = late and tensor(np.array([late * step.loss_scale]))
        assert step() == (("late",) if late is None else ())
    assert weights["late"].item() == pytest.approx(5.0 - 2 * length)
    assert weights["soon"].item() == pytest.approx(1.0 - 5 * 0.1)


def test_a_scale_of_a_power_of_two_and_no_overflow_change_no_bit_of_sgd():
    """The bias correction of Adam counts the steps that were made: the second here is the first."""
    found = []
    for rules in (StepRules(), StepRules(loss_scale=1024.0)):
        with Trainer(MODEL, optimizer="adamw", hyper={"alpha": 0.1}, rules=rules) as trainer:
            for batch in BATCHES:
                trainer.step(batch)
            found.append({key: array.copy() for key, array in trainer.weights.items()})
    assert all(np.array_equal(found[0][key], found[1][key]) for key in found[0])
    with Trainer(MODEL, optimizer="adamw", hyper={"alpha": 0.1}, rules=StepRules(loss_scale=64.0)) as trainer:
        trainer.step({**BATCHES[0], "data": np.full_like(BATCHES[0]["data"], np.inf)})
        assert all(np.array_equal(trainer.weights[key], MODEL.parameters[key]) for key in trainer.weights)
        trainer.step(BATCHES[0])
        first = {key: array.copy() for key, array in trainer.weights.items()}
    with Trainer(MODEL, optimizer="adamw", hyper={"alpha": 0.1}) as trainer:
        trainer.step(BATCHES[0])
        assert all(np.array_equal(trainer.weights[key], first[key]) for key in first)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_model_reads_weights_of_16_bits_and_steps_those_of_32(dtype):
    with Trainer(MODEL, optimizer="sgd", hyper={"alpha": 1e-4}, rules=StepRules(weights=dtype)) as trainer:
        before = {key: array.copy() for key, array in MODEL.parameters.items()}
        trainer.step(BATCHES[0])
        assert any((trainer.weights[key] != before[key]).any() for key in before)  # less than 16 bits would show
        outputs = trainer.predict(BATCHES[1])
        narrow = {key: tensor(array).astype({"f16": "float16", "bf16": "bfloat16"}[dtype]).astype("float32").numpy() for key, array in trainer.weights.items()}  # fmt: skip
    with Trainer(MODEL) as plain:
        plain.adopt(narrow, {})
        assert np.array_equal(plain.predict(BATCHES[1]), outputs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_leaf_of_16_bits_has_a_master(dtype):
    w = tensor([1.0, -2.0], True, dtype=dtype)
    step = engine.optimizer({"w": w}, "sgd", alpha=2.0**-12)
    for _ in range(64):
        w.sum().backward()
        step()
        w.zero_grad()
    assert np.array_equal(step.states["master.w"], np.float32([1.0, -2.0]) - np.float32(64 * 2.0**-12))
    assert np.array_equal(w.numpy(), step.states["master.w"].astype(w.numpy().dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_laid_into_a_leaf_of_16_bits_between_steps_is_stepped(dtype):
    w = tensor([[1.0, -2.0]], True, dtype=dtype)
    step = engine.optimizer({"w": w}, "sgd", alpha=2.0**-12)
    for turn in range(4):
        w.sum().backward()
        step()
        w.zero_grad()
        if turn == 1:
            with engine.no_grad():
                w[0, 1] = 8.0
    assert np.array_equal(step.states["master.w"], np.float32([[1.0 - 4 * 2.0**-12, 8.0 - 2 * 2.0**-12]]))
    assert np.array_equal(w.numpy(), step.states["master.w"].astype(w.numpy().dtype))


def test_checkpoints_by_layer_keep_every_bit_and_less_memory():
    config = GPT2Config(layers=4, channels=32, heads=2, vocab=32, positions=16)
    model = gpt2(config, init_parameters(config, seed=0))
    rows = np.tile(np.arange(8, dtype=np.int32), (8, 1))
    found = {}
    for every in (0, 1, 2):
        with Trainer(model, planner="greedy_by_size", rules=StepRules(checkpoint=every)) as trainer:
            losses = [trainer.step({"tokens": rows, "labels": rows}).loss for _ in range(3)]
            found[every] = losses, max(plan.peak_bytes for plan in trainer.plans.values())
    assert found[0][0] == found[1][0] == found[2][0]
    assert found[1][1] < found[0][1]


def test_a_model_without_layers_has_nothing_to_keep():
    net = engine.model(lambda p, data: data @ p["w"], {"w": np.ones((2, 2), np.float32)}, name="plain")
    with Trainer(net, rules=StepRules(checkpoint=1)) as trainer, pytest.raises(EngineError, match="marks layers"):
        trainer.step(BATCHES[0])


@pytest.mark.parametrize("stop", [3, 5, 8])
def test_a_resumed_run_goes_on_with_scale_averages_and_evaluations(tmp_path, stop):
    settings = Settings(
        epochs=4,
        batch=5,
        logical_batch=10,
        validation=0.2,
        hyper={"alpha": 0.3},
        optimizer="nesterov",
        evaluate_every=2,
        patience=6,
        **RULES["all"],
    )
    whole = fit(MODEL, DATA, settings)
    fit(MODEL, DATA, settings, save=tmp_path / "state", save_every=3, stop_after=stop)
    resumed = fit(MODEL, DATA, settings, save=tmp_path / "state", resume=True)
    assert whole.history == resumed.history
    assert whole.evaluations == resumed.evaluations
    for one, other in ((whole.weights, resumed.weights), (whole.averages, resumed.averages)):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[key], other[key]) for key in one)
    changed = structs.replace(settings, clip_norm=0.5)
    with pytest.raises(EngineError, match="clip_norm"):
        fit(MODEL, DATA, changed, save=tmp_path / "state", resume=True)


@pytest.mark.parametrize(
    "rule",
    [
        {"clip_norm": 0.05},
        {"clip_value": 0.01},
        {"average": 0.6},
        {"loss_scale": 64.0},
        {"weights": "bf16"},
        {"groups": GROUPS},
        {"patience": 2},
        {"evaluate_every": 2},
    ],
    ids=lambda rule: next(iter(rule)),
)
def test_a_rule_that_is_left_out_is_another_run_as_one_that_is_added(tmp_path, rule):
    plain = Settings(epochs=4, batch=10, validation=0.3)
    ruled = structs.replace(plain, **rule)
    for number, (first, second) in enumerate(((plain, ruled), (ruled, plain))):
        fit(MODEL, DATA, first, save=tmp_path / f"{number}", stop_after=2)
        with pytest.raises(EngineError, match=f"was made with {next(iter(rule))} .*; this run has"):
            fit(MODEL, DATA, second, save=tmp_path / f"{number}", resume=True)


def test_training_ends_when_evaluations_do_and_the_weights_are_those_of_the_lowest():
    settings = Settings(epochs=50, batch=5, validation=0.3, optimizer="sgd", hyper={"alpha": 3.0}, evaluate_every=3, patience=4)  # fmt: skip
    found = fit(MODEL, DATA, settings)
    losses = [result.loss for _, result in found.evaluations]
    lowest = int(np.argmin(losses))
    assert len(losses) - 1 - lowest == 4
    assert len(found.history) < 50
    steps = [step for step, _ in found.evaluations]
    per_epoch = 42 // 5
    assert all(step % 3 == 0 or step % per_epoch == 0 for step in steps)
    again = fit(MODEL, DATA, Settings(epochs=50, batch=5, validation=0.3, optimizer="sgd", hyper={"alpha": 3.0}), stop_after=steps[lowest])  # fmt: skip
    assert all(np.array_equal(found.weights[key], again.weights[key]) for key in again.weights)


def test_states_are_those_of_the_lowest_evaluation_in_a_resumed_run_too(tmp_path):
    class Normed(Module):
        def __init__(self):
            self.norm, self.out = BatchNorm(2), Linear(2, 2, np.random.default_rng(0))

        def forward(self, data):
            return self.out(self.norm(data))

    settings = Settings(epochs=30, batch=5, validation=0.3, hyper={"alpha": 0.5}, evaluate_every=2, patience=3)
    net, file = engine.model(Normed()), tmp_path / "state"
    found = fit(net, DATA, settings)
    losses = {steps: result.loss for steps, result in found.evaluations}
    lowest = min(losses, key=losses.get)
    assert lowest < found.steps
    then = fit(net, DATA, structs.replace(settings, patience=0), stop_after=lowest)
    fit(net, DATA, settings, save=file, stop_after=lowest + 1)
    for got in (found, fit(net, DATA, settings, save=file, resume=True)):
        assert {"norm.mean", "norm.variance"} == set(got.states)
        for one, other in ((got.weights, then.weights), (got.states, then.states)):
            assert all(np.array_equal(one[key], other[key]) for key in other)


def test_ranks_resume_with_patience_to_the_same_weights(tmp_path):
    settings = Settings(epochs=8, batch=10, validation=0.3, hyper={"alpha": 0.3}, evaluate_every=3, patience=2)
    by, file = partial(RankedTrainer, ranks=2, zero=1), tmp_path / "state"
    whole = fit(MODEL, DATA, settings, trained_by=by)
    for stop in (4, 7, None):
        part = fit(MODEL, DATA, settings, trained_by=by, save=file, resume=True, stop_after=stop)
    assert part.evaluations == whole.evaluations
    assert all(np.array_equal(part.weights[key], whole.weights[key]) for key in whole.weights)


@pytest.mark.parametrize("name", ["average.w", "acc.mean", "best.w", "loss_scale.value", "m.w", "v.w"])
def test_a_state_named_as_what_training_keeps_is_refused_in_one_line(name):
    def moved(p, data):
        return data @ p["w"] + p[name]

    def build(graph, shapes):
        kept, x = graph.state(name, (2,)), graph.input("data", shapes["data"])
        return graph.op("add", graph.op("mul_mat", graph.parameter("w", (2, 2), trainable=True), x), kept)

    weights, other = {"w": np.ones((2, 2), np.float32)}, name.replace(".", "_")
    with pytest.raises(EngineError, match=f"state '{name}' is named as training names"):
        Trainer(engine.model(moved, weights, states={name: np.zeros(2, np.float32)}))
    built = Trainer(Model(name="built", build=build, parameters=weights))
    with built, pytest.raises(EngineError, match=f"state '{name}' is named as training names"):
        built.step(BATCHES[0])
    Trainer(engine.model(moved, weights, states={other: np.zeros(2, np.float32)})).close()
    if name in {"m.w", "v.w"}:
        Trainer(engine.model(moved, weights, states={name: np.zeros(2, np.float32)}), optimizer="sgd").close()


def test_averages_predict_and_validate():
    rules = StepRules(average=0.5)
    with Trainer(MODEL, rules=rules, hyper={"alpha": 0.1}) as trainer:
        first = trainer.predict(BATCHES[1])  # before a step the average is what there is
        for batch in BATCHES:
            trainer.step(batch)
        found, averages = trainer.predict(BATCHES[1]), {k: v.copy() for k, v in trainer.averages.items()}
    with Trainer(MODEL) as plain:
        assert np.array_equal(plain.predict(BATCHES[1]), first)
    with Trainer(MODEL) as plain:
        plain.adopt(averages, {})
        assert np.array_equal(plain.predict(BATCHES[1]), found)


def test_every_rule_is_planned_and_judged():
    settings = Settings(epochs=2, batch=5, logical_batch=10, validation=0.2, weights="bf16", optimizer="momentum", **RULES["all"])  # fmt: skip
    found = fit(MODEL, DATA, settings)
    assert not check(found.document).violations
    held = sum(array.nbytes for array in MODEL.parameters.values())
    memory = found.memory["optimizer"]
    states = 2 * held + 3 * 4  # velocity and average of every weight, and what the scale keeps
    assert memory.measured.at_fullest["optimizer"] == memory.predicted.at_fullest["optimizer"] == states


def test_default_pinned_and_reference_runs_agree_with_every_rule():
    net = engine.model(Net(), example=BATCHES[0])
    rules = StepRules(weights="bf16", **RULES["all"])
    found = engine.diagnose(net, optimizer="adam", hyper={"alpha": 0.1}, rules=rules, steps=3)
    assert found.verdict.sound
    assert found.modes["default"].loss == found.modes["pinned"].loss == found.modes["reference"].loss
    assert found.modes["default"].loss[2] < found.modes["default"].loss[0]


TOML = """
[model]
kind = "mlp"
sizes = [2, 8, 2]
[data]
kind = "moons"
points = 60
[training]
epochs = 2
batch = 5
validation = 0.2
optimizer = "nesterov"
hyper = {alpha = 0.05, wd = 0.01}
clip_norm = 1.0
loss_scale = 1024.0
average = 0.9
weights = "bf16"
evaluate_every = 3
patience = 5
[[training.groups]]
match = "*.bias"
rate = 2.0
hyper = {wd = 0.0}
"""


def test_a_training_file_says_the_rules_and_the_command_keeps_what_came_of_them(tmp_path):
    (tmp_path / "net.toml").write_text(TOML)
    assert main(["train", str(tmp_path / "net.toml"), "--out", str(tmp_path / "out")]) == 0
    said = configs.read(tmp_path / "net.toml")
    found = fit(said.model.made(tmp_path), said.data.made(tmp_path), said.training)
    for name, kept in (("weights", found.weights), ("averages", found.averages)):
        saved = load_file(tmp_path / "out" / f"{name}.safetensors")
        assert saved.keys() == kept.keys()
        assert all(np.array_equal(saved[key], kept[key]) for key in kept)
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    assert [entry["step"] for entry in history["evaluations"]] == [step for step, _ in found.evaluations]
    assert main(["diagnose", str(tmp_path / "net.toml"), "--steps", "2"]) == 0
    (tmp_path / "net.toml").write_text(TOML.replace("clip_norm = 1.0", "clip_norm = 0.0"))
    assert main(["train", str(tmp_path / "net.toml"), "--out", str(tmp_path / "other")]) == 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"clip_norm": 0.0}, "clip_norm is 0"),
        ({"clip_value": float("inf")}, "clip_value is inf"),
        ({"average": 1.0}, "average is 1"),
        ({"loss_scale": 2.0**30}, "least <= value <= most"),
        ({"groups": (WeightGroup(match="*", rate=-1.0),)}, "rate of group"),
        ({"checkpoint": -1}, "checkpoint is -1"),
    ],
)
def test_a_rule_out_of_range_is_one_line(given, says):
    with pytest.raises(EngineError, match=says) as raised:
        StepRules(**given)
    assert "\n" not in str(raised.value)


def test_other_misuse_is_one_line():
    with pytest.raises(EngineError, match="no hyper-parameter 'beta1'"):
        Trainer(MODEL, optimizer="sgd", rules=StepRules(groups=(WeightGroup(match="*", hyper={"beta1": 0.5}),)))
    with pytest.raises(EngineError, match="validate on"):
        Settings(patience=3)
    with pytest.raises(EngineError, match="clip_norm"):
        RankedTrainer(MODEL, ranks=2, zero=0, rules=StepRules(clip_norm=1.0))
    with pytest.raises(EngineError, match="recorded models"):
        engine.optimizer(Net().parameters(), weights="bf16")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"clip_norm": "1"}, "clip_norm is '1'; it must be a number"),
        ({"average": "1"}, "average is '1'; it must be a number"),
        ({"alpha": "1"}, "alpha is '1'; it must be a number"),
        ({"groups": [{"match": "*"}]}, "is no WeightGroup"),
        ({"groups": 3}, "groups is 3; it must be a tuple"),
        ({"groups": [WeightGroup(match="zzz*")]}, "no weight is named as 'zzz*'; there are a, d"),
        ({"loss_scale": 2.0**30}, "loss scale 1.07374e+09 within 1 and 1.67772e+07"),
        ({"clip_norm": 1.0}, "parameters of float32 and of float64"),
    ],
)
def test_what_a_typed_step_cannot_take_is_one_line(given, says):
    leaves = {"a": tensor([1.0], True), "d": tensor([1.0], True, dtype="float64")}
    with pytest.raises(EngineError) as raised:
        engine.optimizer(leaves, "adamw", **given)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_group_that_fits_no_weight_of_a_model_is_refused():
    with pytest.raises(EngineError, match="no weight is named as 'zzz'"):
        Trainer(MODEL, rules=StepRules(groups=(WeightGroup(match="zzz"),)))


def test_a_typed_step_of_float64_scales_its_loss():
    found = []
    for rules in ({}, {"loss_scale": 64.0}):
        w = tensor([1.0, 2.0], True, dtype="float64")
        step = engine.optimizer({"w": w}, "momentum", alpha=0.1, average=0.5, **rules)
        for _ in range(3):
            ((w * w).sum() * step.loss_scale).backward()
            step()
            w.zero_grad()
        found.append(w.numpy())
    assert np.array_equal(*found)
