"""Training one step at a time and over epochs: what ggml-opt promises, to the bit where it can be."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from commands import allocsim
from msgspec.structs import replace
from safetensors.numpy import save

from allocsim.errors import EngineError, PlannerError, UnknownNameError
from engine.graph import Graph
from engine.models.mlp import mlp
from engine.training import (
    LOSSES,
    Dataset,
    EpochResult,
    Model,
    NotFiniteError,
    Settings,
    Split,
    Trainer,
    checkpoint,
    constant,
    cosine,
    fit,
    linear,
)
from engine.training.config import Llama
from engine.training.data import moons, shapes
from engine.training.schedules import Position

DATA = moons(60, seed=3)
MODEL = mlp((2, 8, 2), activation="tanh", seed=1)
SETTINGS = Settings(epochs=3, batch=5, logical_batch=10, validation=0.2, hyper={"alpha": 0.02}, seed=7)


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def batch(start, stop, data=DATA):
    return data.take(np.arange(start, stop))


# ------------------------------------------------------------------------------------------------------- logical batches


@pytest.mark.parametrize("loss", ["cross_entropy", "mean_squared_error", "mean", "sum"])
def test_gradients_of_a_logical_batch_are_those_of_one_large_batch(loss):
    rows = np.random.default_rng(0).normal(size=(20, 2)).astype("f4")
    data = Dataset.of(DATA.columns["data"][:20], rows if loss == "mean_squared_error" else DATA.columns["labels"][:20])
    large = Trainer(MODEL, loss=loss, period=1)
    small = Trainer(MODEL, loss=loss, period=5)
    large.run("gradient", batch(0, 20, data))
    for index in range(4):
        small.run("gradient", batch(4 * index, 4 * index + 4, data))
    small.run("optimizer", batch(16, 20, data))
    for name, want in large.gradients().items():
        np.testing.assert_allclose(small.gradients()[name], want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("graphs", ["static", "shapes", "dynamic"])
def test_accumulators_start_from_zero_whatever_graph_runs_first(graphs):
    """ggml's reset guards dynamic graphs by a pointer that is null by then, so their accumulators are never zeroed."""
    trainer = Trainer(MODEL, period=2, graphs=graphs, optimizer="sgd", hyper={"alpha": 0.0})
    found = []
    for _ in range(3):
        trainer.step(batch(0, 5))
        trainer.step(batch(5, 10))
        found.append({name: array.copy() for name, array in trainer.gradients().items()})
    assert same(found[0], found[1])
    assert same(found[0], found[2])


def test_steps_come_when_the_logical_batch_is_complete():
    trainer = Trainer(MODEL, period=3)
    with pytest.raises(EngineError, match="0 of 2 physical batches are accumulated; the step would come too early"):
        trainer.run("optimizer", batch(0, 5))
    before = {name: array.copy() for name, array in MODEL.parameters.items()}
    trainer.step(batch(0, 5))
    trainer.step(batch(5, 10))
    assert same(trainer.weights, before)
    with pytest.raises(EngineError, match="the last of 3 is to make the step"):
        trainer.run("gradient", batch(0, 5))
    trainer.step(batch(10, 15))
    assert trainer.steps == 1
    assert not same(trainer.weights, before)
    assert same(MODEL.parameters, before), "the caller's arrays are left as they are"


def test_forward_changes_nothing_even_between_accumulations():
    plain, watched = (Trainer(MODEL, period=2) for _ in range(2))
    for index in range(4):
        plain.step(batch(5 * index, 5 * index + 5))
        watched.run("forward", batch(40, 45))
        watched.step(batch(5 * index, 5 * index + 5))
    assert same(plain.weights, watched.weights)
    assert same(plain.states, watched.states)


# ------------------------------------------------------------------------------------------------------------ optimizers


def reference_adamw(weights, gradients, hyper):
    """AdamW in float64 as Loshchilov and Hutter write it, over given gradients."""
    w, m, v = weights.astype("f8"), 0.0, 0.0
    for t, g in enumerate(gradients, 1):
        m = hyper["beta1"] * m + (1 - hyper["beta1"]) * g
        v = hyper["beta2"] * v + (1 - hyper["beta2"]) * g * g
        w = w * (1 - hyper["alpha"] * hyper["wd"])
        w = w - hyper["alpha"] * (m / (1 - hyper["beta1"] ** t)) / (
            np.sqrt(v / (1 - hyper["beta2"] ** t)) + hyper["eps"]
        )
    return w


def test_adamw_is_the_papers():
    """A linear model with the loss `sum` has the same gradient in every step: the column sums of its data."""
    model = mlp((3, 2))
    data = np.random.default_rng(0).normal(size=(4, 3)).astype("f4")
    hyper = {"alpha": 0.05, "beta1": 0.8, "beta2": 0.9, "eps": 1e-8, "wd": 0.1}
    trainer = Trainer(model, loss="sum", hyper=hyper)
    for _ in range(12):
        trainer.step({"data": data})
    gradient = np.tile(data.astype("f8").sum(0), (2, 1))
    want = reference_adamw(model.parameters["layer.0.weight"], [gradient] * 12, hyper)
    np.testing.assert_allclose(trainer.weights["layer.0.weight"], want, rtol=3e-6)


def test_sgd_decays_and_steps():
    model = mlp((3, 2))
    data = np.ones((4, 3), "f4")
    trainer = Trainer(model, loss="sum", optimizer="sgd", hyper={"alpha": 0.1, "wd": 0.5})
    trainer.step({"data": data})
    want = model.parameters["layer.0.weight"] * (1 - 0.1 * 0.5) - 0.1 * 4
    np.testing.assert_allclose(trainer.weights["layer.0.weight"], want, rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"optimizer": "adan"}, "optimizer 'adan' does not exist; did you mean adam, adamw"),
        ({"loss": "hinge"}, "loss 'hinge' does not exist"),
        ({"graphs": "lazy"}, "kind of graphs 'lazy' does not exist"),
        ({"hyper": {"lr": 1.0}}, "adamw has no hyper-parameter 'lr'; there are alpha, beta1, beta2, eps, wd"),
        ({"hyper": {"beta1": 1.5}}, "beta1 is 1.5; it must be between 0 and 1"),
        ({"hyper": {"alpha": float("nan")}}, "alpha is nan"),
        ({"period": 0}, "period is 0"),
        ({"planner": "none"}, "'none' does not exist"),
        ({"executor": "fast"}, "executor 'fast' does not exist"),
    ],
)
def test_misuse_is_one_line(given, says):
    with pytest.raises((EngineError, UnknownNameError), match=says) as raised:
        Trainer(MODEL, **given)
    assert "\n" not in str(raised.value)


# ------------------------------------------------------------------------------------------------------ graphs and plans


@pytest.mark.parametrize("graphs", ["shapes", "dynamic"])
@pytest.mark.parametrize(
    ("planner", "executor"), [("ggml", "tape"), ("reference", "calls"), ("greedy_by_size", "tape")]
)
def test_neither_graphs_nor_planner_nor_executor_change_a_bit(graphs, planner, executor):
    want = fit(MODEL, DATA, SETTINGS)
    other = fit(MODEL, DATA, replace(SETTINGS, graphs=graphs, planner=planner, executor=executor))
    assert same(want.weights, other.weights)
    assert want.history == other.history
    assert want.plans == other.plans == 3


def test_static_graphs_refuse_another_shape():
    trainer = Trainer(MODEL)
    trainer.step(batch(0, 5))
    with pytest.raises(
        EngineError, match=r"the graphs are static, for columns .*\(5, 2\).*; this batch has .*\(4, 2\)"
    ):
        trainer.step(batch(0, 4))


def changing():
    """A model whose depth changes from batch to batch, as stochastic depth does."""
    depth = iter([1, 2, 1, 2, 1])

    def build(graph, shapes):
        x = graph.input("data", shapes["data"])
        w = graph.parameter("w", (2, 2), trainable=True)
        for _ in range(next(depth)):
            x = graph.op("tanh", graph.op("mul_mat", w, x))
        return x

    return Model(name="changing", build=build, parameters={"w": np.array([[0.5, 0.1], [0.2, 0.7]], "f4")})


def test_dynamic_graphs_are_planned_once_for_each_structure():
    trainer = Trainer(changing(), graphs="dynamic", optimizer="sgd")
    for _ in range(5):
        trainer.step(batch(0, 5))
    assert len(trainer.plans) == 2


def test_an_unsound_plan_is_never_run(tmp_path, monkeypatch):
    (tmp_path / "liars.py").write_text("def everything_at_zero(problem):\n    return [0] * len(problem.start)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PlannerError, match=r"liars:everything_at_zero: the plan of .* is not sound") as raised:
        Trainer(MODEL, planner="liars:everything_at_zero").step(batch(0, 5))
    assert "\n" not in str(raised.value)


# ------------------------------------------------------------------------------------------------- datasets and results


def test_shuffling_moves_whole_shards_of_the_first_part():
    data = Dataset.of(np.arange(24, dtype="f4")[:, None], shard=4)
    order = data.shuffled(data.order(), np.random.default_rng(0), 16)
    assert sorted(order.tolist()) == list(range(24))
    assert order[16:].tolist() == list(range(16, 24))
    assert all((np.diff(order[start : start + 4]) == 1).all() for start in range(0, 16, 4))
    assert order[:16].tolist() != list(range(16))
    with pytest.raises(EngineError, match="the first 18 datapoints are no whole number of shards of 4"):
        data.shuffled(data.order(), np.random.default_rng(0), 18)


@pytest.mark.parametrize(
    ("points", "sizes", "held", "want"),
    [
        (1000, (50, 500), 0.05, (10, 10)),
        (1000, (10, 10), 0.1, (90, 10)),
        (100, (10, 20), 0.0, (10, 0)),
        (105, (10, 20), 0.25, (6, 4)),
    ],
)
def test_the_split_is_ggmls(points, sizes, held, want):
    split = Split.of(points, Settings(batch=sizes[0], logical_batch=sizes[1], validation=held))
    assert (split.training, split.validation) == want


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Dataset.of(np.zeros((3, 2)), np.zeros(4)), "columns must have one leading length"),
        (lambda: Dataset(columns={}), "needs at least one column"),
        (lambda: Dataset.of(np.array(["a"])), "column 'data' is <U1"),
        (lambda: Dataset.of(np.zeros((3, 2)), shard=0), "shard is 0"),
        (lambda: Settings(batch=4, logical_batch=6), "logical_batch 6 is no multiple of batch 4"),
        (lambda: Settings(validation=1.0), "validation is 1.0"),
        (lambda: Settings(epochs=0), "epochs is 0"),
        (lambda: Split.of(9, Settings(batch=10)), "9 datapoints make no logical batch of 10"),
        (
            lambda: Split.of(10, Settings(batch=10, validation=0.5)),
            "10 datapoints with 0.5 held out make no logical batch of 10",
        ),
        (lambda: Trainer(MODEL).step({"data": np.zeros((5, 2), "f4")}), "input labels.*is no column of the batch"),
        (
            lambda: Trainer(MODEL).step({"data": np.zeros((5, 3), "f4"), "labels": np.zeros(5, int)}),
            "has 3 numbers a row",
        ),
        (
            lambda: Trainer(MODEL).step({"data": np.zeros((5, 2), "f4"), "labels": np.full(5, 2)}),
            "the outputs have 2 classes",
        ),
        (
            lambda: Trainer(MODEL).step({"data": np.zeros((5, 2), "f4"), "labels": np.zeros((5, 3), "f4")}),
            "column 'labels' is",
        ),
        (lambda: mlp((2,)), "at least two widths"),
        (lambda: mlp((2, 2), activation="step"), "activation 'step'"),
    ],
)
def test_what_does_not_fit_is_one_line(make, says):
    with pytest.raises(EngineError, match=says) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_results_are_means_with_their_standard_errors():
    outputs = np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0], [0.0, 1.0]])
    result = EpochResult()
    for loss in (1.0, 2.0, 6.0):
        result = result.plus(loss, outputs, np.array([0, 1, 1, 1]))
    assert (result.loss, result.accuracy) == (3.0, 0.75)
    assert result.loss_error == pytest.approx(np.std([1, 2, 6], ddof=1) / np.sqrt(3))
    assert result.accuracy_error == pytest.approx(np.sqrt(0.75 * 0.25 / 11))
    assert EpochResult(summed=True).plus(1.0).plus(2.0).loss == 3.0
    assert EpochResult().figures() == {"loss": None, "loss_error": None, "accuracy": None, "accuracy_error": None}


def at(step, steps=11):
    return Position(epoch=0, epochs=1, step=step, steps=steps)


def test_schedules_rise_and_fall():
    assert constant(0.3)(at(5)) == {"alpha": 0.3}
    assert [round(linear(1.0, warmup=2)(at(s))["alpha"], 3) for s in (0, 1, 2, 6, 10)] == [0.5, 1.0, 1.0, 0.5, 0.0]
    assert [round(cosine(1.0, floor=0.1)(at(s))["alpha"], 3) for s in (0, 5, 10)] == [1.0, 0.55, 0.1]


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_are_what_they_are_called(loss):
    outputs = Trainer(MODEL, loss="sum").run("forward", batch(0, 5)).outputs.astype("f8")
    labels = DATA.columns["labels"][:5]
    rows = np.eye(2)[labels]
    logs = outputs - np.log(np.exp(outputs).sum(-1, keepdims=True))
    want = {
        "mean": outputs.mean(),
        "sum": outputs.sum(),
        "cross_entropy": -(rows * logs).sum(-1).mean(),
        "mean_squared_error": ((outputs - rows) ** 2).mean(),
    }[loss]
    given = {**batch(0, 5), "labels": rows.astype("f4") if loss == "mean_squared_error" else labels}
    assert Trainer(MODEL, loss=loss).run("forward", given).loss == pytest.approx(want, rel=1e-5, abs=1e-6)


# ------------------------------------------------------------------------------------------------------------ resuming


@pytest.mark.parametrize("stop", [1, 4, 5, 9])
def test_a_resumed_run_is_the_run_that_was_never_stopped(tmp_path, stop):
    file = tmp_path / "c.safetensors"
    schedule = cosine(0.05, warmup=3)
    whole = fit(MODEL, DATA, SETTINGS, schedule=schedule)
    part = fit(MODEL, DATA, SETTINGS, schedule=schedule, save=file, stop_after=stop)
    rest = fit(MODEL, DATA, SETTINGS, schedule=schedule, save=file, resume=True)
    assert part.steps == stop
    assert same(whole.weights, rest.weights)
    assert whole.history == rest.history


def test_kill_9_in_mid_training_resumes_to_the_identical_loss(tmp_path):
    file = tmp_path / "c.safetensors"
    script = textwrap.dedent(f"""
        import os, signal
        from engine.models.mlp import mlp
        from engine.training import Settings, fit
        from engine.training.data import moons
        seen = []
        def killed(progress):
            seen.append(1)
            if len(seen) == 13:
                os.kill(os.getpid(), signal.SIGKILL)
        fit(mlp((2, 8, 2), activation="tanh", seed=1), moons(60, seed=3),
            Settings(epochs=3, batch=5, logical_batch=10, validation=0.2, hyper={{"alpha": 0.02}}, seed=7),
            save={str(file)!r}, save_every=1, on_batch=killed)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert done.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    rest = fit(MODEL, DATA, SETTINGS, save=file, resume=True)
    whole = fit(MODEL, DATA, SETTINGS)
    assert same(whole.weights, rest.weights)
    assert whole.history == rest.history


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"seed": 8}, "was made with seed 7; this run has 8"),
        ({"batch": 10, "logical_batch": 10}, "was made with batch 5; this run has 10"),
        ({"hyper": {"alpha": 0.1}}, "was made with hyper-parameters"),
        ({"optimizer": "sgd"}, "was made with optimizer 'adamw'; this run has 'sgd'"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, changed, says):
    file = tmp_path / "c.safetensors"
    fit(MODEL, DATA, SETTINGS, save=file, stop_after=2)
    with pytest.raises(EngineError, match=says):
        fit(MODEL, DATA, replace(SETTINGS, **changed), save=file, resume=True)


def test_other_data_and_other_weights_are_refused(tmp_path):
    file = tmp_path / "c.safetensors"
    fit(MODEL, DATA, SETTINGS, save=file, stop_after=2)
    with pytest.raises(EngineError, match="was made with data"):
        fit(MODEL, moons(60, seed=4), SETTINGS, save=file, resume=True)
    with pytest.raises(EngineError, match="was made with initial weights"):
        fit(mlp((2, 8, 2), activation="tanh", seed=2), DATA, SETTINGS, save=file, resume=True)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff" * 100, (8).to_bytes(8, "little") + b'{"a":1}}'])
def test_a_file_that_is_no_checkpoint_is_one_line(tmp_path, content):
    file = tmp_path / "c.safetensors"
    file.write_bytes(content)
    with pytest.raises(EngineError, match=r"c\.safetensors: is ") as raised:
        fit(MODEL, DATA, SETTINGS, save=file, resume=True)
    assert "\n" not in str(raised.value)
    assert file.read_bytes() == content


def test_a_folder_in_place_of_a_checkpoint_is_one_line(tmp_path):
    (tmp_path / "c.safetensors").mkdir()
    with pytest.raises(EngineError, match=r"c\.safetensors: is no readable checkpoint"):
        fit(MODEL, DATA, SETTINGS, save=tmp_path / "c.safetensors", resume=True)


def test_a_safetensors_file_of_somebody_else_is_one_line(tmp_path):
    file = tmp_path / "c.safetensors"
    file.write_bytes(save({"a": np.zeros(2)}))
    with pytest.raises(EngineError, match="no checkpoint of training"):
        fit(MODEL, DATA, SETTINGS, save=file, resume=True)


# ------------------------------------------------------------------------------------------- numbers that are not finite


def spoiled(row):
    """Return the data with a NaN in one datapoint."""
    columns = {name: column.copy() for name, column in DATA.columns.items()}
    columns["data"][row, 1] = np.nan
    return Dataset(columns=columns)


def root(graph, shapes):
    """A model whose gradient is infinite where its weight is 0, and whose outputs are not."""
    root = graph.op("sqrt", graph.parameter("w", (1, 2), trainable=True))
    return graph.op("mul", graph.input("data", shapes["data"]), root)


DIVERGING = replace(SETTINGS, optimizer="sgd", hyper={"alpha": 1e30})
RELU = mlp((2, 8, 2), activation="relu", seed=1)


def test_data_that_are_not_finite_stop_training_and_are_named(tmp_path):
    """The checkpoint is that of the last good step, from which a run on it goes on to the same line."""
    file = tmp_path / "c.safetensors"
    settings = replace(SETTINGS, validation=0.0, shuffle=False, logical_batch=5)
    line = r"^epoch 1, batch 4, step 4: the loss is nan: column 'data' of datapoint 17 is not finite$"
    with pytest.raises(NotFiniteError, match=line):
        fit(MODEL, spoiled(17), settings, save=file, save_every=1)
    assert checkpoint.read(file)[1].step == 3
    with pytest.raises(NotFiniteError, match=line):
        fit(MODEL, spoiled(17), settings, save=file, resume=True)


@pytest.mark.parametrize("executor", ["calls", "tape"])
def test_a_run_that_is_watched_names_the_op_that_made_the_first_nan(tmp_path, executor):
    """Resumed with `watch` it comes to the same step, and says more."""
    file = tmp_path / "c.safetensors"
    with pytest.raises(NotFiniteError, match=r"^epoch 1, batch 3, step 1: the loss is nan: resume with watch = true"):
        fit(RELU, DATA, DIVERGING, save=file, save_every=1)
    # a sum of huge terms of both signs overflows to an infinity or, added up in another order, to inf - inf: the op is the same
    line = (
        r"^epoch 1, batch 3, step 1: the loss is nan: (infinity|nan) first made by mul_mat at op 10, layer\.1\.product"
    )
    with pytest.raises(NotFiniteError, match=line) as raised:
        fit(RELU, DATA, replace(DIVERGING, watch=True, executor=executor), save=file, resume=True)
    said = str(raised.value)
    assert ("infinity first made by" in said) == ("nan first made by cross_entropy_classes at op 12, loss" in said)


def test_watching_changes_no_number():
    plain, watched = fit(MODEL, DATA, SETTINGS), fit(MODEL, DATA, replace(SETTINGS, watch=True))
    assert same(plain.weights, watched.weights)
    assert plain.history == watched.history


def test_no_checkpoint_is_made_of_weights_that_are_not_finite(tmp_path):
    """The gradient of sqrt at 0 is infinite under a loss that is not; it shows in the weights, one step before it shows in a loss."""
    file = tmp_path / "c.safetensors"
    model = Model(name="root", build=root, parameters={"w": np.array([[0, 1]], "f4")})
    data = Dataset.of(np.ones((4, 2), "f4"))
    settings = Settings(loss="mean", optimizer="sgd", epochs=2, shuffle=False)
    with pytest.raises(NotFiniteError, match=r"^after step 1: 1 of 2 numbers of w are not finite: resume with watch"):
        fit(model, data, settings, save=file, save_every=1)
    assert not file.exists()
    with pytest.raises(NotFiniteError, match=r"epoch 1, batch 2, step 2: the loss is (nan|-?inf)"):
        fit(model, data, settings)


def test_a_warning_is_said_once_and_training_goes_on():
    said = []
    warned = fit(MODEL, spoiled(17), replace(SETTINGS, nonfinite="warn"), say=said.append)
    assert warned.steps == fit(MODEL, DATA, SETTINGS).steps
    assert len(said) == 1
    with pytest.warns(RuntimeWarning, match="column 'data' of datapoint 17"):
        fit(MODEL, spoiled(17), replace(SETTINGS, nonfinite="warn"))
    said.clear()
    fit(MODEL, spoiled(17), replace(SETTINGS, nonfinite="ignore"), say=said.append)
    assert not said
    with pytest.raises(UnknownNameError, match="value of nonfinite 'stopp' does not exist; did you mean stop"):
        fit(MODEL, DATA, replace(SETTINGS, nonfinite="stopp"))


@pytest.mark.parametrize(("alpha", "told"), [(0.0, True), (0.05, False)])
def test_a_loss_that_does_not_fall_is_told_once(alpha, told):
    said = []
    settings = replace(SETTINGS, epochs=8, logical_batch=5, hyper={"alpha": alpha})
    fit(MODEL, DATA, settings, say=said.append)
    assert [line.startswith("the loss did not fall") for line in said] == [True] * told


def test_predictions_of_what_is_held_out_are_kept_in_the_result():
    found = fit(MODEL, DATA, SETTINGS)
    with Trainer(MODEL, graphs="shapes") as trainer:
        trainer.adopt(found.weights, {})
        outputs = trainer.predict({"data": DATA.columns["data"][found.held_out]})
    assert np.array_equal(found.predictions, outputs.argmax(-1))
    labels = DATA.columns["labels"][found.held_out]
    assert np.mean(found.predictions == labels) == found.history[-1].validation.accuracy


def test_validation_that_is_not_finite_only_warns():
    said = []
    settings = replace(SETTINGS, shuffle=False, epochs=1)
    trained = fit(MODEL, spoiled(59), settings, say=said.append)
    assert said == ["epoch 1, validation batch 4, step 4: the loss is nan: column 'data' of datapoint 59 is not finite"]
    assert same(trained.weights, fit(MODEL, DATA, settings).weights)


# --------------------------------------------------------------------------------------------------------- the command

MOONS = """
[model]
kind = "mlp"
sizes = [2, 8, 2]
[data]
kind = "moons"
points = 60
[training]
epochs = 2
batch = 5
logical_batch = 10
validation = 0.2
hyper = {alpha = 0.02}
[schedule]
kind = "cosine"
alpha = 0.05
warmup = 2
"""


def train(tmp_path, *arguments, config=MOONS):
    file = tmp_path / "moons.toml"
    file.write_text(config)
    with contextlib.chdir(tmp_path):
        done = allocsim("train", file, *arguments)
    return done.returncode, done.stdout, done.stderr


def test_the_command_trains_stops_and_goes_on(tmp_path):
    status, out, err = train(tmp_path, "--out", "whole")
    assert (status, err) == (0, "")
    assert [line.split("   ")[0] for line in out.splitlines()[:2]] == ["epoch 1/2", "epoch 2/2"]
    assert train(tmp_path, "--out", "parts", "--steps", "3")[0] == 0
    status, _, err = train(tmp_path, "--out", "parts")
    assert status == 2
    assert err.count("\n") == 1
    assert "--resume goes on from it" in err
    status, out, _ = train(tmp_path, "--out", "parts", "--resume", "--json")
    assert status == 0
    assert json.loads(out)["steps"] == 8
    for name in ("losses.csv", "weights.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("points = 60", "pionts = 60", "is no training file: data: object contains unknown field pionts"),
        ("points = 60", 'points = "60"', "is no training file: data.points: expected int, got str"),
        ('kind = "mlp"', 'kind = "rnn"', "model.kind: invalid value 'rnn'; there are mlp, cnn, gpt2, llama"),
        ("batch = 5", "batch = 7", "logical_batch 10 is no multiple of batch 7"),
        ("warmup = 2", "wramup = 2", "schedule: object contains unknown field wramup"),
        ('kind = "cosine"', 'kind = "sine"', "schedule.kind is 'sine'; there are constant, linear, cosine"),
        ("warmup = 2", "warmup = -2", "warmup is -2; it must be at least 0"),
        ("batch = 5", "batch = 5\nsave_every = 0", "save_every is 0; it must be at least 1"),
        ("batch = 5", "batch = 5\nthreads = -1", "threads is -1; it must be at least 1, or 0 for all"),
        ("batch = 5", "batch = 5\nseed = -1", "seed is -1; it must be at least 0"),
        ("points = 60", "points = 60\nseed = -1", "seed is -1; it must be at least 0"),
        ("sizes = [2, 8, 2]", "sizes = [2, 8, 2]\nseed = -1", "seed is -1; it must be at least 0"),
        ("[model]", "[model", "moons.toml"),
        ("sizes = [2, 8, 2]", "sizes = [3, 8, 2]", "has 2 numbers a row; mlp takes 3"),
        ("sizes = [2, 8, 2]", "sizes = [2, 8, 1]", "the outputs have 1 classes"),
        (
            'kind = "mlp"\nsizes = [2, 8, 2]',
            'kind = "llama"\nattention = "flash"',
            "attention 'flash' is none of parts, fused",
        ),
    ],
)
def test_a_bad_configuration_is_one_line(tmp_path, old, new, says):
    status, out, err = train(tmp_path, "--out", "x", config=MOONS.replace(old, new, 1))
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("warmup = 2", "warmup = 3", "was made with schedule {'kind': 'cosine', 'alpha': 0.05, 'warmup': 2"),
        ("sizes = [2, 8, 2]", 'sizes = [2, 8, 2]\nactivation = "silu"', "this run has {'kind': 'mlp'"),
    ],
)
def test_a_checkpoint_of_another_schedule_or_function_is_refused(tmp_path, old, new, says):
    """Neither shows in weights, data or settings; gelu and silu even start from the same weights."""
    mine = (
        MOONS.replace("sizes = [2, 8, 2]", 'sizes = [2, 8, 2]\nactivation = "gelu"', 1)
        if "activation" in new
        else MOONS
    )
    assert train(tmp_path, "--out", "x", "--steps", "2", config=mine)[0] == 0
    status, out, err = train(tmp_path, "--out", "x", "--resume", config=MOONS.replace(old, new, 1))
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize(("attention", "ops"), [("parts", 0), ("fused", 2)])
def test_a_configuration_says_how_attention_is_built(tmp_path, attention, ops):
    graph = Graph("configured")
    model = Llama(layers=2, attention=attention).made(tmp_path)
    model.build(graph, {"tokens": (3, 5)})
    assert sum(tensor.kind == "attention" for tensor in graph.tensors) == ops


def test_drawn_shapes_can_be_told_apart():
    data = shapes(64, size=12, noise=0.0, seed=1)
    assert data.columns["data"].shape == (64, 1, 12, 12)
    rows, columns = (data.columns["data"].sum(axis).max(-1)[:, 0] for axis in (3, 2))
    labels = data.columns["labels"]
    assert (rows[labels == 0] >= 5).all()
    assert (columns[labels == 0] == 1).all()
    assert (columns[labels == 1] >= 5).all()
    assert (rows[labels == 1] == 1).all()


def test_numbers_that_are_not_finite_end_the_command_with_one_line(tmp_path):
    wild = MOONS.replace("alpha = 0.05", "alpha = 1e30").replace(
        "[training]", '[training]\noptimizer = "sgd"\nsave_every = 1'
    )
    status, _, err = train(tmp_path, "--out", "wild", config=wild)
    assert (status, err.count("\n")) == (1, 1)
    assert err.startswith("allocsim: epoch 1, batch ")
    assert err.endswith("resume with watch = true, which names the op that makes the first\n")
    status, _, err = train(
        tmp_path, "--out", "wild", "--resume", config=wild.replace("save_every", "watch = true\nsave_every")
    )
    assert (status, err.count("\n")) == (1, 1)
    assert "nan first made by " in err


def running(tmp_path, *arguments):
    """Start a training that is far from its end, and wait for its first checkpoint."""
    file = tmp_path / "long.toml"
    file.write_text(MOONS.replace("epochs = 2", "epochs = 100000").replace("batch = 5", "batch = 5\nsave_every = 1", 1))
    script = "import sys; from allocsim.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[4])}
    process = subprocess.Popen(
        [sys.executable, "-c", script, "train", str(file), *arguments],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline().startswith("epoch ")
    return process


def test_two_trainings_do_not_write_into_one_folder_and_sigterm_ends_as_ctrl_c_does(tmp_path):
    """The second is refused in one line; the first, ended, leaves a checkpoint that goes on and nothing half written."""
    first = running(tmp_path, "--out", "same")
    try:
        refused_and_ended(tmp_path, first)
    finally:
        first.kill()
        first.communicate()
    long = (tmp_path / "long.toml").read_text()
    steps = checkpoint.read(tmp_path / "same" / "checkpoint.safetensors")[1].step
    status, out, _ = train(tmp_path, "--out", "same", "--resume", "--steps", str(steps + 2), "--json", config=long)
    assert status == 0
    assert json.loads(out)["steps"] == steps + 2


def refused_and_ended(tmp_path, first):
    for extra in ([], ["--resume"]):
        status, out, err = train(tmp_path, "--out", "same", *extra)
        assert (status, out) == (2, "")
        assert err.endswith("same: another command writes there now; wait for it, or name another folder\n")
        assert err.count("\n") == 1
    first.send_signal(signal.SIGTERM)
    _, said = first.communicate()
    assert (first.returncode, said) == (130, "allocsim: interrupted\n")
    assert [entry.name for entry in (tmp_path / "same").iterdir()] == ["checkpoint.safetensors"]
