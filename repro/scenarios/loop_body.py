"""The plan of a loop's body leaves out the buffers that live around the loop."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="loop-body",
    title="the plan of a loop's body leaves out the buffers that live around the loop",
    source="https://github.com/tensorflow/tflite-micro/pull/947",
    story=(
        "Each subgraph was planned by itself. A buffer that lives around a loop, and is read after the loop, is "
        "missing from the plan of the body. So a temporary of the body takes the bytes of that buffer."
    ),
    sound=SmallDocument(
        text="x = host.write; o = f x; @while t = g x; @while u = h t; y = k u o; host.read y", slots="o=0 t=64 u=128"
    ),
    place="belief",
    change={"slots": "o=0 t=0", "believed": {"o": (1, 2)}},
    expected=(("C01", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check over the whole call tree, with lifetimes in the step numbers of the whole tree.",
    reasons={
        "class": (
            "C15 is only for two calls on the same level that disturb each other; if a call and the ops around it "
            "disturb each other, the class is that of the mechanism, here C01"
        )
    },
)
