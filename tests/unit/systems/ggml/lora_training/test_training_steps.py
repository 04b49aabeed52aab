"""Training step by step on real ggml, and the lockstep that finds where a plan departs from the reference."""

from dataclasses import replace

import numpy as np
import pytest
from ggml_live import BOTH, live

from allocsim.systems.ggml.d_lockstep import Departure
from allocsim.systems.ggml.lora_training.training_steps import KIND
from repro import lora_setup
from repro.on_ggml import SMALL
from repro.on_ggml.training_tasks import TrainingRecipe, origins_task, train_task
from repro.scenarios.ggml_1501 import TRAINING

RECIPE = TrainingRecipe(training=TRAINING, base=SMALL, layers=2, seq=8, seed=0)
OPTIONS = {"rate": TRAINING.rate}


def trained(which, mode, **options):
    return live(which).call(train_task, RECIPE, mode, steps=2, **OPTIONS, **options)


def departures(which, mode, runs=1):
    child = live(which)
    rows = trained(which, mode).rows
    found = child.call(origins_task, RECIPE, mode, runs=runs, **OPTIONS)
    return [(departure, rows["nodes"][departure.node]["op"]) for departure in found]


@pytest.mark.parametrize("which", BOTH)
def test_pinned_and_apart_are_the_same_to_the_bit_in_loss_and_gradients(which):
    pinned, apart = trained(which, "pinned"), trained(which, "apart")

    assert pinned.losses == apart.losses
    assert all(
        np.array_equal(one[name], other[name])
        for one, other in zip(pinned.gradients, apart.gradients, strict=True)
        for name in one
    )


def test_before_the_fix_the_default_plan_departs_at_results_of_rms_norm_back_and_nowhere_else():
    found = departures("before", "default")

    assert {op for _, op in found} == {"RMS_NORM_BACK"}
    assert {departure.what for departure, _ in found} == {"result"}
    assert len(found) == 2 * RECIPE.layers


def test_before_the_fix_partial_pins_depart_at_soft_max_back():
    assert {op for _, op in departures("before", "backward")} == {"SOFT_MAX_BACK"}


@pytest.mark.parametrize("mode", ["default", "backward", "pinned"])
def test_after_the_fix_no_plan_departs(mode):
    assert departures("after", mode, runs=2) == []


def test_a_plan_whose_host_writes_once_departs_at_an_operand():
    """A lockstep that is not told to feed the second run again reads what lies in the recycled slots."""
    found = live("after").call(origins_without_feeding, RECIPE, "default", **OPTIONS)

    assert found
    assert found[0].what == "operand"
    assert isinstance(found[0], Departure)


@pytest.mark.parametrize("which", BOTH)
def test_denying_the_unsafe_pair_restores_the_reference_at_no_cost(which):
    cured, default, apart = (
        trained(which, "default", deny=(("RMS_NORM_BACK", 0),)),
        trained(which, "default"),
        trained(which, "apart"),
    )

    assert cured.losses == apart.losses
    assert cured.nbytes == default.nbytes


def test_gradients_are_those_of_the_parameters_of_the_recipe():
    setup = lora_setup.set_up(TRAINING, layers=2, seq=8, base=SMALL)

    assert set(trained("after", "default").gradients[0]) == {parameter.name for parameter in setup.gradients}
    assert replace(SMALL, layers=2).layers == setup.config.layers
    assert KIND == "train+sgd"


def origins_without_feeding(library, recipe, mode, *, rate):
    """Run twice in lockstep, the inputs and the seed of the backward pass written before the first run only."""
    from allocsim.systems.ggml.lora_training import training_steps  # noqa: PLC0415 - changed in this fork alone

    feed, fed = training_steps.feed, []

    def once(model, arrays):
        if sum(one is model for one in fed) == 0:
            feed(model, arrays)
        fed.append(model)

    training_steps.feed = once
    return [departure for departure in origins_task(library, recipe, mode, runs=2, rate=rate) if departure.run == 1]
