"""Padding of a branch's result is given to the next branch."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="branch-padding",
    title="padding of a branch's result is given to the next branch",
    source="https://github.com/pytorch/executorch/pull/21818",
    story=(
        "The same with only the padding taken: the bytes that are read are whole, and the plan is wrong all the same."
    ),
    sound=SmallDocument(
        text="x = host.write; @1/then r = f x; @2/then t = g x; @2/then s = h t r; host.read s", slots="r=0 t=64 s=128"
    ),
    place="belief",
    change={"slots": "r=0 t=32", "believed": {"r": (1, 2)}},
    expected=(("C15", "plan"),),
    reports={"S": "Overlap", "L": "LifetimeTooShort"},
    not_run="H R",
    caught="A static check in bytes. No run can show it.",
)
