"""What a recorded model draws: anew in each step, the same again when resumed, nothing in evaluation."""

import numpy as np
import pytest

import engine
from allocsim.errors import EngineError
from engine import tensor
from engine.front import functions as fn
from engine.training import Dataset, Settings, Trainer, fit

WEIGHTS = {"w": np.ones(8, np.float32), "v": np.full((8, 3), 0.1, np.float32)}
ROWS = np.linspace(-1, 1, 96, dtype=np.float32).reshape(12, 8)
CLASSES = (np.arange(12) % 3).astype(np.int32)


def dropped(p, data):
    return fn.dropout(data * p["w"], 0.5) @ p["v"]


def masked(p, data):
    return fn.dropout(data * p["w"], 0.5)


def stepping(model, **more):
    return Trainer(model, loss="sum", optimizer="sgd", hyper={"alpha": 0.0}, **more)


def test_every_step_draws_another_mask_and_the_seed_decides_which():
    ones = {"data": np.ones((4, 8), np.float32)}
    net = engine.model(masked, {"w": WEIGHTS["w"]})
    first, again, other = (stepping(net, seed=seed) for seed in (3, 3, 4))
    drawn = [[trainer.step(ones).outputs for _ in range(3)] for trainer in (first, again, other)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert len({step.tobytes() for step in drawn[0]}) == 3
    assert set(np.unique(drawn)) == {0.0, 2.0}


def test_a_physical_batch_of_a_logical_one_has_a_mask_of_its_own():
    trainer = stepping(engine.model(masked, {"w": WEIGHTS["w"]}), period=2)
    ones = {"data": np.ones((4, 8), np.float32)}
    assert len({trainer.step(ones).outputs.tobytes() for _ in range(4)}) == 4


def test_the_gradient_has_the_mask_of_its_step():
    net = engine.model(masked, {"w": WEIGHTS["w"]})
    trainer = Trainer(net, loss="sum", optimizer="sgd", hyper={"alpha": 1.0})
    before = trainer.model.parameters["w"]
    outputs = trainer.step({"data": np.ones((1, 8), np.float32)}).outputs
    assert np.array_equal(before - trainer.weights["w"], outputs[0])


def test_in_evaluation_dropout_keeps_everything():
    trainer = stepping(engine.model(masked, {"w": WEIGHTS["w"]}))
    ones = {"data": np.ones((4, 8), np.float32)}
    trainer.step(ones)
    assert np.array_equal(trainer.predict(ones), ones["data"])
    assert np.array_equal(trainer.run("forward", ones).outputs, ones["data"])
    with engine.evaluation():
        assert fn.dropout(tensor([1.0, 2.0]), 0.5).numpy().tolist() == [1.0, 2.0]


def test_a_run_that_is_resumed_draws_what_it_would_have_drawn(tmp_path):
    net, data = engine.model(dropped, WEIGHTS), Dataset.of(ROWS, CLASSES)
    settings = Settings(epochs=3, batch=4, validation=0.34, seed=7)
    whole = fit(net, data, settings)
    fit(net, data, settings, save=tmp_path / "state", stop_after=3)
    resumed = fit(net, data, settings, save=tmp_path / "state", resume=True)
    assert all(np.array_equal(whole.weights[name], resumed.weights[name]) for name in whole.weights)


def test_a_seed_within_a_model_is_a_salt_of_the_step():
    def twice(p, data):
        return fn.dropout(data * p["w"], 0.5, seed=3) - fn.dropout(data * p["w"], 0.5, seed=3)

    def apart(p, data):
        return fn.dropout(data * p["w"], 0.5) - fn.dropout(data * p["w"], 0.5)

    ones = {"data": np.ones((4, 8), np.float32)}
    for function, equal in ((twice, True), (apart, False)):
        outputs = stepping(engine.model(function, {"w": WEIGHTS["w"]})).step(ones).outputs
        assert (not outputs.any()) == equal


def test_a_model_that_draws_is_judged_like_any_other():
    net = engine.model(dropped, WEIGHTS, example={"data": ROWS, "labels": CLASSES})
    found = engine.diagnose(net, steps=2)
    assert found.verdict.sound


def test_noise_from_outside_of_the_program_is_refused():
    draw = np.random.default_rng(0)

    def noisy(p, data):
        return data * p["w"] + draw.normal(size=8).astype(np.float32)

    with pytest.raises(EngineError, match="draws outside of the program"):
        stepping(engine.model(noisy, {"w": WEIGHTS["w"]})).step({"data": ROWS})


def test_uniform_and_normal_numbers_are_what_they_are_called():
    flat, bell = (draw((50_000,), seed=1, dtype="float64").numpy() for draw in (fn.uniform, fn.normal))
    assert 0 < flat.min() < 1e-3 < 1 - 1e-3 < flat.max() < 1
    for values, mean, deviation in ((flat, 0.5, 1 / np.sqrt(12)), (bell, 0.0, 1.0)):
        assert abs(values.mean() - mean) < 5 * deviation / np.sqrt(values.size)
        assert abs(values.std() / deviation - 1) < 0.02


def test_outside_of_a_model_a_seed_is_needed():
    with pytest.raises(EngineError, match="a seed is needed"):
        fn.dropout(tensor([1.0]), 0.5)
