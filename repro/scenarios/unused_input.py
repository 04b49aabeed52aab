"""An input that a loop's body ignores has no slot, but the runtime still copies into it."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="unused-input",
    title="an input that a loop's body ignores has no slot, but the runtime still copies into it",
    source="https://github.com/tensorflow/tflite-micro/pull/1194",
    story=(
        "The body of a loop ignores one of its inputs, so the planner gave that input no lifetime. The runtime copies "
        "every input before the body runs. Here the copy overwrites the other input, which was copied just before."
    ),
    sound=SmallDocument(
        text="i = host.write; d = host.write; b = copy d; j = copy i; r = f b; host.read r", slots="b=0 j=64"
    ),
    place="belief",
    change={"slots": "b=0 j=0", "believed": {"j": (3, 3)}},
    expected=(("C01", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A program in which the runtime's copies are ops: each copy is a write for which the plan must have a slot.",
    reasons={
        "class": (
            "C15 is only for two calls on the same level that disturb each other; if a call and the ops around it "
            "disturb each other, the class is that of the mechanism, here C01"
        )
    },
)
