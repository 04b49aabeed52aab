"""An alias of an alias is followed one level only."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="nested-alias",
    title="an alias of an alias is followed one level only",
    source="https://github.com/pytorch/pytorch/issues/100314",
    story=(
        "The use of an alias was not counted as a use of its base. The repair counts the names "
        "of aliases too, and its author asks what becomes of nested ones. Here is one: an alias "
        "of an alias, of which one level is followed, lets the base die early."
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
    caught=("The transitive closure of aliases in the check, and a document with two levels in the tests."),
)
