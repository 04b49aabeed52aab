"""A tensor inside a shared base does not extend the lifetime of the base."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="slice-of-base",
    title="a tensor inside a shared base does not extend the lifetime of the base",
    source="https://github.com/pytorch/executorch/pull/21840",
    story=(
        "A tensor placed inside a shared base had a lifetime of its own, which did not extend the lifetime of the "
        "base. The bytes of the base were given away while the slice was still to be read."
    ),
    sound=SmallDocument(
        text="x = host.write; s = f x; t:s[4@16] = view s; r = g x; o = add r t; host.read o", slots="s=0 r=64 o=128"
    ),
    place="belief",
    change={"slots": "s=0 r=0", "believed": {"s": (1, 2)}},
    expected=(("C02", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A replay in bytes: the bytes of the slice are bytes of the base, whatever their names are.",
)
