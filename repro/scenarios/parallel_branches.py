"""Branches on several streams under a plan that is legal in list order only."""

from repro.scenario import Scenario
from repro.scenarios.ggml_1501 import TRAINING

SCENARIO = Scenario(
    name="parallel-branches",
    title="q, k and v run side by side, each in the memory another still reads",
    source="https://github.com/microsoft/onnxruntime/issues/7633",
    story=(
        "The planner gives a slot away after its last reader in list order, and lets ops work in place after "
        "theirs. Run one by one, that is "
        "right. With independent branches on three streams, each waiting for what it reads but not for those "
        "whose slots it takes, an op "
        "of one branch writes where another branch has yet to read. No check that follows one order finds anything."
    ),
    training=TRAINING,
    expected=(("C09", "plan"),),
    reports="H D",
    streams=3,
    reuse_waits=False,
    caught=("Happens-before over the branches: no wait orders the reader of a slot before the op that takes it."),
)
