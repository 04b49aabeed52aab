"""An output at a static address is overwritten by the next step."""

from repro import Role, SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="static-output",
    title="an output at a static address is overwritten by the next step",
    source="https://github.com/pytorch/pytorch/pull/188755",
    story=(
        "An output has a static address, and the next step reads it again as state. The output was not classified as "
        "static, so the plan of the step may use its memory. Here a temporary takes these bytes."
    ),
    sound=SmallDocument(
        text="x = host.write; b = g x s; c = h b; host.read c",
        slots="s=0 b=64 c=128",
        roles={"s": Role.STATE},
        runs=((), ()),
    ),
    place="placement",
    change={"slots": "s=0 c=0"},
    expected=(("C07", "plan"),),
    reports={"S": "Overlap StaleRead", "R": "StaleRead", "P": "StaleRead", "D": "operand"},
    not_run="H",
    caught="A test with two steps, because the first step is right.",
)
