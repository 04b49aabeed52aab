"""A mutated buffer dies with its mutation."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="read-only-mutation",
    title="a mutated buffer dies with its mutation",
    source="https://github.com/pytorch/pytorch/issues/183575",
    story=(
        "A fused kernel declared the moment it only reads as mutated. The planner ended the old "
        "buffer's life with that mutation and reused it, and an unrelated cast lands in the "
        "optimizer's moment, which then equals the raw gradient."
    ),
    sound=SmallDocument(
        text=(
            "g = host.write; m = f g; m2:m = lerp! m g; p = step m2; t = cast g; q = use m2 t; host.read p; host.read q"
        ),
        slots="m=0 t=64",
    ),
    place="belief",
    change={"slots": "m=0 t=0", "believed": {"m": (1, 4)}},
    expected=(("C01", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught=(
        "Effects taken from the kernel's body instead of its declaration; the replay of the plan "
        "then shows the moment read after the cast took its bytes."
    ),
)
