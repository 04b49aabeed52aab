"""A second branch overwrites the result of the first."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="two-conds",
    title="a second branch overwrites the result of the first",
    source="https://github.com/pytorch/executorch/issues/21490",
    story=(
        "The branches of two conditionals share one arena. The second branch overwrites the result of the first "
        "branch, and then reads that result."
    ),
    sound=SmallDocument(
        text="x = host.write; @1/then r = f x; @2/then t = g x; @2/then s = h t r; host.read s", slots="r=0 t=64 s=128"
    ),
    place="belief",
    change={"slots": "r=0 t=0", "believed": {"r": (1, 2)}},
    expected=(("C15", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught=(
        "A check with lifetimes in the step numbers of the whole call tree, instead of separate numbers for each "
        "branch."
    ),
)
