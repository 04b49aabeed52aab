"""The first output of a branch is copied over its second."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="branch-outputs",
    title="the first output of a branch is copied over its second",
    source="https://github.com/tensorflow/tflite-micro/pull/853",
    story=(
        "The outputs of a conditional and those of its branch were planned separately and may "
        "overlap. Copying the first one out writes over the second, which is copied next."
    ),
    sound=SmallDocument(
        text="x = host.write; @if/then a = f x; @if/then b = g x; c = copy a; d = copy b; host.read c; host.read d",
        slots="a=64 b=0 c=128 d=192",
    ),
    place="belief",
    change={"slots": "a=64 b=0 c=0", "believed": {"a": (1, 3), "b": (2, 3)}},
    expected=(("C01", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="Copies that the runtime makes as ops of the program, so that the check sees them.",
    reasons={
        "class": (
            "C15 is what two calls beside each other do to one another; between a call and its "
            "surroundings the class is that of the mechanism"
        )
    },
)
