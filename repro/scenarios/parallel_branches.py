"""Branches run on several streams under a plan that is legal in list order only."""

from repro.scenario import Scenario
from repro.scenarios.ggml_1501 import TRAINING

SCENARIO = Scenario(
    name="parallel-branches",
    title="q, k and v run in parallel, and each overwrites memory that another still reads",
    source="https://github.com/microsoft/onnxruntime/issues/7633",
    story=(
        "The planner gives a slot away after its last reader in list order, and lets the last reader of a value run in "
        "place over that value. If the ops run one by one, this is right. Here independent branches run on three "
        "streams. Each op waits for its operands, but not for the readers of the slots that it takes. So an op of one "
        "branch overwrites bytes that another branch has yet to read. No check that follows one order finds the fault."
    ),
    training=TRAINING,
    expected=(("C09", "plan"),),
    reports="H D",
    streams=3,
    reuse_waits=False,
    caught=(
        "A happens-before check over the branches: no wait orders the reader of a slot before the op that takes the "
        "slot."
    ),
)
