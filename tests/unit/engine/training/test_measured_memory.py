"""Measured memory: what the calls of a run were handed, beside what was predicted of it."""

import numpy as np
import pytest

from allocsim.liveness.memory_categories import CATEGORIES
from engine.models.mlp import mlp
from engine.training import Dataset, Settings, Trainer, fit
from engine.training.measured_memory import MemoryProbe

BATCH = {"data": np.ones((5, 3), np.float32), "labels": np.zeros(5, np.int32)}
MODEL = mlp((3, 8, 2))


def measured(planner, optimizer="adamw", **more):
    with Trainer(MODEL, optimizer=optimizer, planner=planner, measure=True, **more) as trainer:
        trainer.step(BATCH)
        (found,) = trainer.memory.values()
    return found


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_memory_of_ones_own_for_every_tensor_holds_what_was_predicted(optimizer):
    """The reference shares no byte, so both ways to count come to the same in every step."""
    found = measured("reference", optimizer)
    for name in CATEGORIES:
        np.testing.assert_array_equal(found.measured.live[name], found.predicted.live[name], err_msg=name)


@pytest.mark.parametrize("planner", ["ggml", "greedy_by_size", "linear_scan"])
@pytest.mark.parametrize("executor", ["calls", "tape"])
def test_a_plan_that_works_in_place_holds_no_more_than_predicted(planner, executor):
    found = measured(planner, executor=executor)
    predicted, held = (sum(part.live.values()) for part in (found.predicted, found.measured))
    assert (held <= predicted).all()
    assert (held < predicted).any(), "something is done in place"
    assert held.max() <= found.nbytes
    np.testing.assert_array_equal(found.measured.live["weights"], found.predicted.live["weights"])
    np.testing.assert_array_equal(found.measured.live["optimizer"], found.predicted.live["optimizer"])


def test_measuring_changes_no_bit_and_rows_tell_all():
    data = Dataset.of(BATCH["data"], BATCH["labels"])
    fitted = fit(MODEL, data, Settings(epochs=1, batch=5, hyper={"alpha": 0.1}))
    with Trainer(MODEL, hyper={"alpha": 0.1}) as trainer:
        trainer.step(BATCH)
        for name, array in trainer.weights.items():
            assert array.tobytes() == fitted.weights[name].tobytes()
    (found,) = fitted.memory.values()
    rows = found.rows()
    assert len(rows) == 2 * len(CATEGORIES) * len(found.predicted.program.ops)
    which, step, category, nbytes = rows[-1]
    assert (which, category, nbytes) == ("measured", CATEGORIES[-1], found.measured.live[category][step])
    assert found.as_json()["predicted"]["weights"] == found.predicted.live["weights"].tolist()


def test_bytes_are_live_from_their_write_to_their_last_read_by_hand():
    """One block, three deeds: a stretch that nobody reads lives for the call that wrote it."""
    with Trainer(MODEL) as trainer:
        probe = MemoryProbe(trainer.bound("forward", BATCH).runtime)
    memory = np.zeros(8, np.float32)
    weights, temporary = CATEGORIES.index("weights"), CATEGORIES.index("workspace")
    probe._category = [weights, temporary]
    low = memory.ctypes.data
    probe._rows = [
        (0, low, low + 16, False, weights),  # held before: live from the start, and to the end
        (1, low + 16, low + 32, True, temporary),
        (3, low + 16, low + 24, False, temporary),
    ]
    live = probe.measured().measured.live
    assert live["weights"].tolist() == [16] * len(live["weights"])
    assert live["workspace"][:5].tolist() == [0, 16, 8, 8, 0]
