"""An output takes a donated input that is still read."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="donation-order",
    title="an output takes a donated input that is still read",
    source="https://github.com/jax-ml/jax/issues/39625",
    story=(
        "If inputs are donated, a result depends on the order of the outputs. The report does not show the cause. This "
        "scenario assumes the following cause: an output takes the bytes of a donated input from which another output "
        "still copies, and the order of the outputs decides which is computed first."
    ),
    sound=SmallDocument(
        text="s = host.write; v = host.write; o = sub! v v; p = copy s; host.read o; host.read p", slots="s=0 o=64"
    ),
    place="belief",
    change={"slots": "s=0 o=0", "share": "s>o"},
    expected=(("C11", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "BadShare", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check of the in-place pair: the donor is read after the recipient was written.",
)
