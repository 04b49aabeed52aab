"""What a resumed course writes is of all of the course, and a checkpoint knows where it was made."""

import json

import numpy as np
from safetensors.numpy import save

from engine.models.mlp import mlp
from engine.training import Settings, checkpoint, fit
from engine.training.data import moons

MODEL, DATA = mlp((2, 8, 2), activation="tanh", seed=1), moons(60, seed=3)
SETTINGS = Settings(epochs=3, batch=5, logical_batch=10, validation=0.2, hyper={"alpha": 0.02}, seed=7)


def account(fitted):
    return fitted.plans, fitted.peak_bytes, json.dumps(fitted.memory_records, sort_keys=True)


def test_a_course_resumed_anywhere_has_the_memory_of_all_of_it(tmp_path):
    """Also where it was finished and nothing runs, and where validation alone is left: the figures of a course that was never stopped."""
    whole = fit(MODEL, DATA, SETTINGS, save=tmp_path / "whole")
    assert whole.peak_bytes > 0
    assert set(whole.memory_records) == set(whole.memory) != set()
    for stop in range(1, whole.steps + 1):
        fit(MODEL, DATA, SETTINGS, save=tmp_path / "c", stop_after=stop)
        assert account(fit(MODEL, DATA, SETTINGS, save=tmp_path / "c", resume=True)) == account(whole), stop
        assert (tmp_path / "c").read_bytes() == (tmp_path / "whole").read_bytes()
        again = fit(MODEL, DATA, SETTINGS, save=tmp_path / "c", resume=True)
        assert account(again) == account(whole), stop
        assert not again.memory
        (tmp_path / "c").unlink()


def test_a_resume_elsewhere_says_so_in_one_line(tmp_path, monkeypatch):
    """Each of BLAS, numpy and processor is named with both its values; at home nothing is said."""
    fit(MODEL, DATA, SETTINGS, save=tmp_path / "c", stop_after=2)
    here, said = checkpoint.made_on(), []
    assert here["BLAS"]
    fit(MODEL, DATA, SETTINGS, save=tmp_path / "c", resume=True, stop_after=3, say=said.append)
    assert not said
    for what in here:
        fit(MODEL, DATA, SETTINGS, save=tmp_path / "c", stop_after=2)
        monkeypatch.setattr(checkpoint, "made_on", lambda what=what: {**here, what: "another"})
        fit(MODEL, DATA, SETTINGS, save=tmp_path / "c", resume=True, stop_after=3, say=said.append)
        monkeypatch.undo()
        line = said.pop()
        assert f"{what} {here[what]!r}, here 'another': the bits may differ" in line
        assert "\n" not in line


def test_a_checkpoint_of_version_2_is_read(tmp_path):
    """It has no account and no place; it goes on to the same weights."""
    whole = fit(MODEL, DATA, SETTINGS)
    fit(MODEL, DATA, SETTINGS, save=tmp_path / "c", stop_after=2)
    tensors, record = checkpoint.read(tmp_path / "c")
    old = {
        name: getattr(record, name) for name in ("identity", "epoch", "batch", "step", "result", "history", "generator")
    }
    text = json.dumps({"version": 2, **old})
    metadata = {checkpoint.KEY: text, checkpoint.DIGEST: checkpoint.digest(tensors, text)}
    (tmp_path / "c").write_bytes(save(tensors, metadata=metadata))
    said = []
    found = fit(MODEL, DATA, SETTINGS, save=tmp_path / "c", resume=True, say=said.append)
    assert not said
    for name, array in whole.weights.items():
        np.testing.assert_array_equal(found.weights[name], array)
