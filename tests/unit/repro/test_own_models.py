"""Models of one's own: the same bits typed, recorded and trained; clean where nothing is wrong, convicted where something is."""

import json
import sys
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from planted_models import EXAMPLES, FAULTS, case, options_of, planted

import allocsim
import repro
from allocsim.cli import main
from allocsim.errors import EngineError, ModelError, UnknownNameError
from allocsim.liveness.memory_categories import CATEGORIES
from engine import diagnose, model, no_grad, tensor
from engine.front import functions as fn
from engine.training import Dataset, Settings, Trainer, fit
from repro.options import EngineOptions
from repro.run import run

SHORT = EngineOptions(steps=2)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_typed_and_what_is_trained_are_the_same_bits(name):
    """Outputs and every gradient: computed as they are typed, and by the planned program of the recorded model."""
    found = import_module(f"examples.{name}")
    training = found.CASE.training
    typed = {key: tensor(array, requires_grad=True) for key, array in found.NET.parameters.items()}
    columns = {key: rows for key, rows in training.batch.items() if key != "labels"}
    function = getattr(found, name)
    outputs = function(
        typed, **{key: rows if rows.dtype.kind == "i" else tensor(rows) for key, rows in columns.items()}
    )

    with Trainer(found.NET, loss=training.loss, optimizer="sgd", hyper={"alpha": 0.0}) as trainer:
        recorded = trainer.run("forward", training.batch)
        trainer.run("gradient", training.batch)
        gradients = {key: array.copy() for key, array in trainer.gradients().items()}
    np.testing.assert_array_equal(recorded.outputs.reshape(outputs.shape), outputs.numpy())

    labels = training.batch["labels"]
    rows = labels.reshape(-1) if training.loss == "cross_entropy" else tensor(labels.astype(np.float32))
    loss = fn.cross_entropy(outputs, rows) if training.loss == "cross_entropy" else _squares(outputs, rows)
    loss.backward()
    assert loss.item() == pytest.approx(recorded.loss, rel=1e-6)
    for key, leaf in typed.items():
        np.testing.assert_array_equal(gradients[key], leaf.grad.numpy(), err_msg=key)


def _squares(outputs, labels):
    """The trainer's loss, op by op."""
    error = outputs - labels
    return fn.op("sqr", error).sum() * (1 / outputs.size)


@pytest.mark.parametrize(("name", "allocator"), [("vit", "greedy_by_size"), ("unet", "ggml"), ("rnn", "linear_scan")])
def test_sound_models_are_diagnosed_clean(name, allocator):
    result = run(case(name), replace(SHORT, allocator=allocator))

    assert result.matches
    assert result.verdict.sound
    losses = result.modes["default"].loss
    assert losses[-1] < losses[0]
    assert losses == result.modes["reference"].loss == result.modes["pinned"].loss


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("diffusion", "kernel"),
        ("mixture", "belief"),
        ("rnn", "placement"),
        ("unet", "seed"),
        ("vit", "stale"),
        ("diffusion", "wait"),
    ],
)
def test_planted_faults_are_convicted_by_the_right_party_with_a_cure(name, fault):
    result = run(planted(name, fault, SHORT), options_of(fault, SHORT))

    assert [(finding.class_, finding.party) for finding in result.verdict.joint] == [FAULTS[fault][1]]
    assert result.matches
    assert result.evidence.cure is not None


def test_a_model_learns_by_fit_and_its_document_says_what_was_believed(tmp_path, capsys):
    found = import_module("examples.mixture")
    batch = found.batch(rows=36)
    fitted = fit(found.NET, Dataset(columns=batch), Settings(epochs=8, batch=12, validation=0.0, hyper={"alpha": 0.02}))
    assert fitted.history[-1].training.loss < 0.5 * fitted.history[0].training.loss
    allocsim.write(fitted.document, tmp_path / "mixture.json")
    again = allocsim.read(tmp_path / "mixture.json")
    assert len(again.problems) == len(again.plans) == 1

    assert main(["check", str(tmp_path / "mixture.json")]) == 0
    assert "S and L clean" in capsys.readouterr().out
    assert main(["explain", str(tmp_path / "mixture.json")]) == 0
    assert "believed to live too long" in capsys.readouterr().out


@pytest.mark.usefixtures("one_picture")
def test_one_command_takes_a_module_and_no_file_can_name_one(tmp_path, capsys, monkeypatch):
    (tmp_path / "stranger_model.py").write_text(
        "import numpy as np, engine, repro\n"
        "net = engine.model(lambda p, data: (data @ p['w']).tanh(), {'w': np.eye(3, dtype=np.float32)}, name='line')\n"
        "case = repro.trial(net, {'data': np.ones((2, 3), np.float32), 'labels': np.array([0, 2])})\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["repro", "run", "stranger_model:case", "--steps", "2", "--out", "found"]) == 0
    said = capsys.readouterr().out
    assert "line: a user's own model" in said
    assert "nothing wrong was found" in said
    assert (tmp_path / "found" / "report.md").exists()

    for name, message in (
        ("stranger_model:net", "stranger_model:net has no example batch"),
        ("stranger_model:np", "is a module; a scenario or a model is needed"),
        ("stranger_model:nothing", "'nothing' does not exist"),
        ("no_such_module_here:case", "module 'no_such_module_here' does not exist"),
    ):
        assert main(["repro", "run", name]) == 2
        assert message in capsys.readouterr().err
    assert main(["repro", "run", "stranger_model:case", "--layers", "2"]) == 2
    assert "a user's own model sets its sizes" in capsys.readouterr().err
    monkeypatch.delitem(sys.modules, "stranger_model")


# one command, one call


STRANGER = """
import numpy as np, engine, repro
from engine.training import Dataset
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(6, 3)).astype(np.float32), np.array([0, 2, 1, 0, 1, 2])
def line(p, data):
    h = (data @ p["w"]).tanh()
    return (h * h.exp()) @ p["w"]
weights = {"w": np.eye(3, dtype=np.float32)}
net = engine.model(line, weights, example={"data": X, "labels": Y})
bare = engine.model(line, weights)
data = Dataset.of(X, Y)
def squares(): return {"data": X, "labels": X}
def crowd(problem): return [0] * len(problem.program.buffers)
late = repro.trial(net, {"data": X, "labels": Y}, write_once=("data",), expected=(("C06", "caller"),))
"""


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    (tmp_path / "strange_net.py").write_text(STRANGER)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    monkeypatch.delitem(sys.modules, "strange_net", raising=False)


def diagnosed(capsys, *words):
    status = main(["diagnose", *words, "--json"])
    out, err = capsys.readouterr()
    return status, json.loads(out)["runs"][0] if out else err


def test_diagnose_takes_a_model_a_scenario_and_a_training_file(stranger, capsys):
    for words in (
        ("strange_net:net",),
        ("strange_net:bare", "--data", "strange_net:squares", "--loss", "mean_squared_error"),
        ("strange_net:bare", "--data", "strange_net:data", "--optimizer", "adamw", "--allocator", "greedy_by_size"),
        ("strange_net:net", "--modes", "float64,linear_scan", "--pin-leafs"),
    ):
        status, run_entry = diagnosed(capsys, *words, "--steps", "1")
        assert (status, run_entry["causes"]) == (0, [])
        assert run_entry["modes"]["default"]["loss"] == run_entry["modes"]["reference"]["loss"]
        assert set(run_entry["memory"]["measured"]) == set(CATEGORIES)

    (stranger / "tiny.toml").write_text(
        '[model]\nkind = "mlp"\nsizes = [2, 8, 2]\n[data]\nkind = "moons"\npoints = 50\n[training]\nepochs = 1\nbatch = 10\n'
    )
    status, run_entry = diagnosed(capsys, "tiny.toml", "--steps", "2")
    assert (status, len(run_entry["modes"]["default"]["loss"])) == (0, 2)


@pytest.mark.usefixtures("one_picture")
def test_diagnose_convicts_an_unsound_planner_and_a_planted_scenario_and_leaves_a_report(stranger, capsys):
    status, run_entry = diagnosed(
        capsys, "strange_net:net", "--steps", "1", "--allocator", "strange_net:crowd", "--out", "r"
    )
    assert status == 1
    assert {cause["party"] for cause in run_entry["causes"]} == {"plan"}
    assert (stranger / "r" / "report.md").exists()
    assert main(["diagnose", "r"]) == 1
    capsys.readouterr()
    status, run_entry = diagnosed(capsys, "strange_net:late", "--steps", "2", "--allocator", "greedy_by_size")
    assert status == 1
    assert [(cause["class"], cause["party"]) for cause in run_entry["causes"]] == [("C06", "caller")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("strange_net:bare",), "strange_net:bare has no example batch"),
        (("strange_net:late", "--loss", "sum"), "is a scenario and sets its loss itself"),
        (("strange_net:weights",), "is a dict; a scenario or a model is needed"),
        (("strange_net:net", "--data", "strange_net:net"), "is a Model; a batch is a mapping of columns"),
        (("strange_net:net", "--explain", "3"), "is a model; of files alone: --explain"),
        (("strange_net.py", "--steps", "3"), "is no model; of models alone: --steps"),
        (("strange_net:net", "--loss", "least"), "loss 'least' does not exist"),
        (("no_such_module_here:net",), "module 'no_such_module_here' does not exist"),
    ],
)  # fmt: skip
def test_what_diagnose_cannot_take_is_one_line(stranger, capsys, words, message):
    status, said = diagnosed(capsys, *words)
    assert status == 2
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.usefixtures("one_picture")
def test_the_call_gives_what_the_command_prints(stranger, capsys):
    net = case("mixture").training.model
    found = diagnose(net, steps=1, allocator="greedy_by_size", out=stranger / "folder")
    assert found.verdict.sound
    assert found.memory.predicted.at_fullest["weights"] == found.memory.measured.at_fullest["weights"]
    assert (stranger / "folder" / "report.json").exists()
    assert not diagnose(net, steps=2, write_once=("loss_grad",), allocator="greedy_by_size").verdict.sound
    with pytest.raises(EngineError, match="function given where a model is needed"):
        diagnose(lambda p: p)
    with pytest.raises(EngineError, match="has no example batch; give one"):
        diagnose(model(lambda p, data: data @ p["w"], WEIGHTS))


# what a recording refuses, and what it keeps


WEIGHTS = {"w": np.full((3, 2), 0.5, np.float32)}
BATCH = {"data": np.ones((4, 3), np.float32), "labels": np.zeros((4, 2), np.float32)}


def built(function, weights=None, **more):
    with Trainer(model(function, weights or WEIGHTS, name="f", **more), loss="mean_squared_error") as trainer:
        return trainer.run("gradient", BATCH), {key: array.copy() for key, array in trainer.gradients().items()}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda p, data: data @ p["w"] * float((data @ p["w"]).sum()), r"item\(\) of sum f32\[1\] reads its numbers"),
        (lambda p, data: data @ tensor(p["w"].numpy()), r"numpy\(\) of w f32\[3, 2\] reads its numbers"),
        (lambda p, data: data @ p["w"] if data.sum() > 0 else data, "reads its numbers"),
        (lambda p, data: data @ tensor(np.ones((3, 2), np.float32), True), "wants a gradient and is no parameter"),
        (lambda p, data: np.ones(3), "returned ndarray; a tensor is needed"),
        (lambda p, data: data, "which no op makes"),
        (lambda p, other: other @ p["w"], "takes the column 'other'; the batch has data, labels"),
        (lambda p, data: (data @ p["w"]).set_(0, 1.0), "reads its numbers"),
        (lambda p, data: p["w"].add_(1.0).T @ data.T, "changes only under no_grad"),
        (lambda p, data: data.add_(1.0) @ p["w"], "is not changed while the model is recorded"),
    ],
)  # fmt: skip
def test_what_would_be_frozen_is_refused_in_one_line(function, message):
    with pytest.raises(EngineError, match=message) as raised:
        built(function)
    assert "\n" not in str(raised.value)


def test_comparisons_choices_and_changes_in_place_are_ops():
    def function(p, data):
        y = data @ p["w"]
        y += fn.where(y > 1.0, y * 0.5, y)
        with no_grad():
            share = (y < 100.0) * (y != 7.0) * (y <= 100.0) * y
        return y * share + y.detach()

    outcome, gradients = built(function)
    w = tensor(WEIGHTS["w"], True)
    y = tensor(BATCH["data"]) @ w
    y = y + fn.where(y.detach() > 1.0, y * 0.5, y)
    out = y * y.detach() + y.detach()
    np.testing.assert_array_equal(outcome.outputs, out.numpy())
    (fn.op("sqr", out - tensor(BATCH["labels"])).sum() * (1 / out.size)).backward()
    np.testing.assert_array_equal(gradients["w"], w.grad.numpy())


@pytest.mark.filterwarnings("ignore::engine.front.rebasing.CopyWarning")
def test_changes_in_place_of_views_are_ops_of_the_recorded_program_too():
    """To the bits of the same typed."""

    def function(p, data):
        y = data @ p["w"]
        y[:, 0] *= p["s"]
        turned = y.T
        turned[1] += p["s"] * 2.0
        z = tensor(np.zeros((4, 2), np.float32))
        z[1:] = y[1:] * y[:-1]
        return z + y

    weights = {"w": np.arange(6, dtype=np.float32).reshape(3, 2) / 5, "s": np.full(1, 1.5, np.float32)}
    outcome, gradients = built(function, weights)
    typed = {key: tensor(array, True) for key, array in weights.items()}
    out = function(typed, tensor(BATCH["data"]))
    np.testing.assert_array_equal(outcome.outputs, out.numpy())
    _squares(out, tensor(BATCH["labels"])).backward()
    for key, leaf in typed.items():
        np.testing.assert_array_equal(gradients[key], leaf.grad.numpy(), err_msg=key)


def test_frozen_parameters_are_not_trained_and_constants_are_shared():
    weights = {**WEIGHTS, "still": np.ones(2, np.float32)}
    _, gradients = built(lambda p, data: (data @ p["w"] + 2.0) * p["still"] - 2.0, weights, frozen=("still",))
    assert list(gradients) == ["w"]
    for more, error in (({"frozen": ("z",)}, "parameter of f 'z'"), ({"dtypes": {"z": "int32"}}, "column of f 'z'")):
        with pytest.raises(UnknownNameError, match=error):
            built(lambda p, data: data @ p["w"], **more)


def test_a_defect_is_repaired_in_the_twin_and_a_model_is_needed():
    broken = planted("diffusion", "stale", SHORT)
    assert repro.repaired(broken).training.planned_batch is None
    with pytest.raises(EngineError, match="function given where a model is needed"):
        repro.trial(lambda p: p, {})
    with pytest.raises(ModelError, match="a user's own model; only a scenario of the table"):
        repro.scenario.llama_of(broken)


OWN = """
import numpy as np
from engine import model
from repro import trial
def net_of(p, data): return data @ p["w"]
EXAMPLE = {"data": np.ones((4, 3), np.float32), "labels": np.zeros(4, np.int32)}
net = model(net_of, {"w": np.ones((3, 2), np.float32)}, example=EXAMPLE)
case = trial(net, EXAMPLE, steps=3)
def fails(): raise ValueError("no such file")
ragged = {**EXAMPLE, "data": [[1, 2], [3]]}
words = {**EXAMPLE, "labels": ["a"] * 4}
"""


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("fails", "batch 'own_batches:fails' failed: ValueError: no such file"),
        ("ragged", "column 'data' of the batch is no array"),
        ("words", "column 'labels' of the batch has dtype <U1; a numeric dtype is needed"),
    ],
)
def test_a_batch_that_is_none_is_one_line(data, said, tmp_path, monkeypatch, capsys):
    (tmp_path / "own_batches.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)

    assert main(["diagnose", "own_batches:net", "--data", f"own_batches:{data}"]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"allocsim: {said}")


def test_a_case_of_ones_own_is_shown(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_shown.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)

    assert main(["repro", "show", "own_shown:case"]) == 0

    shown = capsys.readouterr().out
    assert "mul_mat" in shown
    assert "expected: nothing wrong" in shown
