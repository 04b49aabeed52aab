"""The planner does not see that a cast which only renames a value is an alias."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="match-cast",
    title="the planner does not see that a cast which only renames a value is an alias",
    source="https://github.com/apache/tvm/issues/20190",
    story=(
        "A storage token was not passed on through match_cast, so the result of the cast looked like a value without "
        "memory, and the operand of the sum died early. (x + .25) + (x + .125) gave twice the second term."
    ),
    sound=SmallDocument(
        text="x = host.write; s = f x; v:s = view s; r = g x; o = add r v; host.read o", slots="s=0 r=64 o=128"
    ),
    place="belief",
    change={"slots": "s=0 r=0", "believed": {"s": (1, 2)}},
    expected=(("C02", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A replay by storage, with aliases resolved: a reader of the view is a reader of its storage.",
)
