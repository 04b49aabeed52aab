"""Training on the real libraries: what issue 1501 reports, and what each plan makes of it."""

import math

import numpy as np
import pytest
from ggml_live import BOTH, live

from allocsim.errors import UnknownNameError
from allocsim.systems.ggml.lora_training.plan_modes import MODES, gradients, train
from allocsim.systems.ggml.lora_training.transformer import TINY

LAYERS = 6


def losses(which, mode, **options):
    return live(which).call(train, TINY.deep(LAYERS), mode, **options)["losses"]


def test_before_the_fix_the_default_plan_does_not_learn_and_pinning_every_node_does():
    default, pinned = losses("before", "default"), losses("before", "pinned")

    # 0.88 and 0.16, in two digits the same whatever the last bit of each weight is; over 20 seeds 0.74 and more, 0.40 and less
    assert default[-1] > 0.7 * default[0]
    assert pinned[-1] < 0.5 * pinned[0]
    assert default[0] == pinned[0]


@pytest.mark.parametrize("which", BOTH)
def test_pinned_and_apart_are_the_same_bit_for_bit(which):
    assert losses(which, "pinned") == losses(which, "apart")


@pytest.mark.parametrize("mode", MODES)
def test_after_the_fix_every_plan_learns_alike(mode):
    assert losses("after", mode) == losses("after", "apart")


def test_before_the_fix_pinning_only_backward_nodes_is_wrong_too():
    found, wanted = losses("before", "backward"), losses("before", "apart")

    assert not all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(found, wanted, strict=True))


def test_correct_losses_of_the_two_libraries_agree():
    assert losses("before", "apart", steps=3) == pytest.approx(losses("after", "apart", steps=3), rel=1e-3)


def test_the_scheduler_trains_like_the_allocator_alone():
    assert losses("before", "default", planner="sched") == losses("before", "default")


def test_gradients_before_the_fix_are_wrong_in_every_layer_and_right_after_it():
    for which, right in (("before", False), ("after", True)):
        reference, found = (live(which).call(gradients, TINY.deep(LAYERS), mode) for mode in ("apart", "default"))
        layers = {name.partition(".")[0] for name in reference}
        assert layers == {f"L{layer}" for layer in range(LAYERS)}
        for layer in layers:
            names = [name for name in reference if name.startswith(f"{layer}.")]
            want, got = (np.concatenate([side[name].ravel() for name in names]) for side in (reference, found))
            assert bool((want == got).all()) is right
            assert math.isclose(np.linalg.norm(want), np.linalg.norm(got), rel_tol=1e-6) is right


def test_an_unknown_mode_is_refused_by_name():
    with pytest.raises(UnknownNameError, match="mode 'pined' does not exist"):
        live("after").call(train, TINY, "pined")


@pytest.mark.slow
@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize(
    ("mode", "mebibytes"), [("default", 0.691), ("pinned", 3.799), ("backward", 2.174), ("apart", 3.802)]
)
def test_a_thirty_layer_step_needs_the_bytes_that_are_known(which, mode, mebibytes):
    report = live(which).call(train, TINY.deep(30), mode, steps=1)

    assert report["nodes"] == 3257
    assert round(report["buffer_size"] / 2**20, 3) == mebibytes
