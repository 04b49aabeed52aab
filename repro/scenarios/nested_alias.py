"""The planner follows an alias of an alias one level only."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="nested-alias",
    title="the planner follows an alias of an alias one level only",
    source="https://github.com/pytorch/pytorch/issues/100314",
    story=(
        "The use of an alias was not counted as a use of its base. The fix of PyTorch also counts uses through an "
        "alias; its author leaves open whether an alias of an alias is counted. This scenario has an alias of an "
        "alias: the planner follows one level, and the base dies early."
    ),
    sound=SmallDocument(
        text=("x = host.write; s = f x; v:s = view s; w:s = view v; n = use v; r = g n; o = add r w; host.read o"),
        slots="s=0 r=64 n=128 x=128",
    ),
    place="belief",
    change={"slots": "s=0 r=0", "believed": {"s": (1, 5)}},
    expected=(("C02", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check with the transitive closure of aliases, and a test document with two levels.",
)
