"""The body of a loop is planned without the buffers that live around it."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="loop-body",
    title="the body of a loop is planned without the buffers that live around it",
    source="https://github.com/tensorflow/tflite-micro/pull/947",
    story=(
        "Each subgraph was planned by itself. What lives around a loop and is read behind it is "
        "not there in the plan of the body, and a temporary of the body takes its bytes."
    ),
    sound=SmallDocument(
        text="x = host.write; o = f x; @while t = g x; @while u = h t; y = k u o; host.read y", slots="o=0 t=64 u=128"
    ),
    place="belief",
    change={"slots": "o=0 t=0", "believed": {"o": (1, 2)}},
    expected=(("C01", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="Lifetimes on the clock of the call tree, checked over the whole tree.",
    reasons={
        "class": (
            "C15 is what two calls beside each other do to one another; between a call and its "
            "surroundings the class is that of the mechanism"
        )
    },
)
