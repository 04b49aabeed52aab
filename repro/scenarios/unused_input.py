"""A subgraph ignores an input, and what the runtime copies there lands on a live tensor."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="unused-input",
    title="an input that a loop's body ignores has no place, and is copied all the same",
    source="https://github.com/tensorflow/tflite-micro/pull/1194",
    story=(
        "The body of a loop ignores one of its inputs, so the planner gave that input no lifetime. "
        "The runtime copies every input into the body before it runs: here the copy lands on the "
        "other input, which was copied just before."
    ),
    sound=SmallDocument(
        text="i = host.write; d = host.write; b = copy d; j = copy i; r = f b; host.read r", slots="b=0 j=64"
    ),
    place="belief",
    change={"slots": "b=0 j=0", "believed": {"j": (3, 3)}},
    expected=(("C01", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="Copies that the runtime makes as ops of the program: the copy is a write that the plan must have a place for.",
    reasons={
        "class": (
            "C15 is what two calls beside each other do to one another; between a call and its "
            "surroundings the class is that of the mechanism"
        )
    },
)
