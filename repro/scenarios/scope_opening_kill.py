"""The planner ends a buffer's life where the scope that reads it opens."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="scope-opening-kill",
    title="the planner ends a buffer's life where the scope that reads it opens",
    source="https://github.com/tile-ai/tilelang-ascend/issues/1765",
    story=(
        "The life of a buffer should end at the end of the scope that uses it last. Scopes are listed by an opening "
        "and a closing event, and the planner ended the life at the opening event. So another buffer, "
        "allocated in the scope, takes the bytes and is written before the last read."
    ),
    sound=SmallDocument(
        text="x = host.write; a = f x; y = use a; b = g y; z = use2 a b; host.read z",
        slots="a=0 y=64 b=128 z=192",
    ),
    place="belief",
    change={"slots": "a=0 y=64 b=0 z=192", "believed": {"a": (1, 2)}},
    expected=(("C01", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A comparison of the believed lifetimes with the accesses: two reads are after the believed end.",
)
