"""After lowering, the planner does not know that a reshape is a view."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="lowered-reshape",
    title="after lowering, the planner does not know that a reshape is a view",
    source="https://github.com/apache/tvm/pull/20134",
    story=(
        "The planner knew the op reshape before lowering. The lowered op returns the same memory, but the planner "
        "believed that its result was a buffer of its own, and freed the storage too early."
    ),
    sound=SmallDocument(text="x = host.write; s = f x; r = g x; o = add r v:s; host.read o", slots="s=0 r=64 o=128"),
    place="belief",
    change={"slots": "s=0 r=0", "believed": {"s": (1, 2)}},
    expected=(("C02", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check of the plan after lowering, by storages instead of op names.",
)
