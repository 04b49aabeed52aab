"""The first output of a branch is copied over its second."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="branch-outputs",
    title="the first output of a branch is copied over its second",
    source="https://github.com/tensorflow/tflite-micro/pull/853",
    story=(
        "The outputs of a conditional and the outputs of its branch were planned separately, so they may overlap. The "
        "copy of the first output overwrites the second output, which is copied next."
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
    caught="A program in which the runtime's copies are ops, so that a check sees what they read and write.",
    reasons={
        "class": (
            "C15 is only for two calls on the same level that disturb each other; if a call and the ops around it "
            "disturb each other, the class is that of the mechanism, here C01"
        )
    },
)
