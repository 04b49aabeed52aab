"""A fault of the caller: the seed of the gradient is uploaded once, and its slot is reused."""

from repro.scenario import Scenario
from repro.scenarios.ggml_1501 import TRAINING

SCENARIO = Scenario(
    name="ggml-1501-seed",
    title="the first training step is right, and later steps compute with an overwritten seed",
    source="https://github.com/ggml-org/ggml/issues/1501",
    story=(
        "The seed of the backward pass is a leaf: after its last reader has run, its slot can be reused. If a "
        "caller sets the seed to 1 before the first step only, later steps read the bytes of another op as the seed."
    ),
    training=TRAINING,
    expected=(("C06", "caller"),),
    reports="S R P D",
    write_once=("loss_grad",),
    least_steps=2,
    reasons={
        "class": (
            "the bug behind the report is the scenario ggml-1501; this scenario has the same symptom, but the caller "
            "is at fault"
        )
    },
    caught=(
        "A test with two training steps, because the first step is right. Or a replay of two runs, the second without "
        "the upload."
    ),
)
