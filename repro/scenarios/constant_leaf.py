"""A constant leaf is read late."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="constant-leaf",
    title="a constant leaf is read late",
    source="https://github.com/ggml-org/ggml/pull/731",
    story=("A constant is uploaded like an input and used late. The allocator let it go after its first use."),
    sound=SmallDocument(
        text="x = host.write; l = host.write; a = f x l; b = g a; c = h b l; host.read c",
        slots="l=0 a=64 b=128 x=128 c=64",
    ),
    place="belief",
    change={"slots": "l=0 b=0", "believed": {"l": (1, 3)}},
    expected=(("C06", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check that takes uploads for writes like any other.",
)
