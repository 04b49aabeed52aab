"""A caller's fault with the same symptom: the seed is set once, and its slot is recycled."""

from repro.scenario import Scenario
from repro.scenarios.ggml_1501 import TRAINING

SCENARIO = Scenario(
    name="ggml-1501-seed",
    title="the first step is right, then training goes astray",
    source="https://github.com/ggml-org/ggml/issues/1501",
    story=(
        "The seed of the backward pass is a leaf like any other: after its last reader has run, its slot is "
        "free for others. A caller "
        "who sets it to 1 before the first step only trains on whatever lies there from the second step on."
    ),
    training=TRAINING,
    expected=(("C06", "caller"),),
    reports="S R P D",
    write_once=("loss_grad",),
    least_steps=2,
    reasons={"class": "the bug behind the report is ggml-1501; this one has the same symptom, by another's fault"},
    caught=(
        "A second step in the test: the first is right. Or a replay of two runs, of which the second "
        "leaves the upload out."
    ),
)
