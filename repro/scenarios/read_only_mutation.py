"""A buffer dies at an op that is wrongly declared to mutate it."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="read-only-mutation",
    title="a buffer dies at an op that is wrongly declared to mutate it",
    source="https://github.com/pytorch/pytorch/issues/183575",
    story=(
        "A fused kernel only reads the optimizer's moment, but was declared to mutate it. The planner ended the life "
        "of the old buffer at that mutation and reused it. An unrelated cast then overwrites the moment, which "
        "afterwards equals the raw gradient."
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
        "A planner that takes the effects of a kernel from its body instead of its declaration. The replay of the plan "
        "then shows that the moment is read after the cast took its bytes."
    ),
)
