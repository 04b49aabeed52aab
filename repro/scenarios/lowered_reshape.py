"""A reshape is no longer a view once it is lowered."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="lowered-reshape",
    title="a reshape is no longer a view once it is lowered",
    source="https://github.com/apache/tvm/pull/20134",
    story=(
        "The planner knew reshape before lowering. What it is lowered to returns the same memory, "
        "but the planner took the result for a buffer of its own, and let the storage go."
    ),
    sound=SmallDocument(text="x = host.write; s = f x; r = g x; o = add r v:s; host.read o", slots="s=0 r=64 o=128"),
    place="belief",
    change={"slots": "s=0 r=0", "believed": {"s": (1, 2)}},
    expected=(("C02", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A plan check after lowering, on storages instead of op names.",
)
