"""Models of one's own: the same bits typed, recorded and trained; clean where nothing is wrong, convicted where something is."""

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
from engine import model, no_grad, tensor
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

    assert [(finding.class_, finding.fault) for finding in result.verdict.findings] == [FAULTS[fault][1]]
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


def test_one_command_takes_a_module_and_no_file_can_name_one(tmp_path, capsys, monkeypatch):
    (tmp_path / "stranger_model.py").write_text(
        "import numpy as np, engine, repro\n"
        "net = engine.model(lambda p, data: (data @ p['w']).tanh(), {'w': np.eye(3, dtype=np.float32)}, name='line')\n"
        "case = repro.trial(net, {'data': np.ones((2, 3), np.float32), 'labels': np.array([0, 2])})\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["repro", "run", "stranger_model:case", "--steps", "2", "--out", "found"]) == 0
    said = capsys.readouterr().out
    assert "line: a model of one's own" in said
    assert "nothing wrong was found" in said
    assert (tmp_path / "found" / "report.md").exists()

    for name, message in (
        ("stranger_model:net", "is a Model; a scenario is needed; repro.trial"),
        ("stranger_model:nothing", "'nothing' does not exist"),
        ("no_such_module_here:case", "module 'no_such_module_here' does not exist"),
    ):
        assert main(["repro", "run", name]) == 2
        assert message in capsys.readouterr().err
    assert main(["repro", "run", "stranger_model:case", "--layers", "2"]) == 2
    assert "a model of one's own has its sizes" in capsys.readouterr().err
    monkeypatch.delitem(sys.modules, "stranger_model")


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
        (lambda p, data: (data >= 0) @ p["w"], "reads its numbers"),
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
            share = (y < 100.0) * y
        return y * share + y.detach()

    outcome, gradients = built(function)
    w = tensor(WEIGHTS["w"], True)
    y = tensor(BATCH["data"]) @ w
    y = y + fn.where(y.detach() > 1.0, y * 0.5, y)
    out = y * y.detach() + y.detach()
    np.testing.assert_array_equal(outcome.outputs, out.numpy())
    (fn.op("sqr", out - tensor(BATCH["labels"])).sum() * (1 / out.size)).backward()
    np.testing.assert_array_equal(gradients["w"], w.grad.numpy())


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
    with pytest.raises(ModelError, match="a model of one's own; this takes a scenario of the table"):
        repro.scenario.llama_of(broken)
