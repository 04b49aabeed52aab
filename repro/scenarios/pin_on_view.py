"""A pin on a view does not protect the storage of the view."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="pin-on-view",
    title="a pin on a view does not protect the storage of the view",
    source="https://github.com/tetherto/qvac-fabric-llm.cpp/pull/232",
    story=(
        "The caller flags a view as output. The planner looks for the flag on the storage only, finds none, and gives "
        "the storage away."
    ),
    sound=SmallDocument(
        text=("x = host.write; a = f x; v:a = view a; b = g v; d = h x; e = k b d; host.read e; host.read v"),
        slots="a=0 b=64 d=128 x=192 e=192",
    ),
    place="belief",
    change={"slots": "a=0 d=0", "believed": {"a": (1, 4)}},
    expected=(("C05", "plan"),),
    reports={"S": "StaleRead Overlap PinIgnored", "L": "MissingPin", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check that carries a pin from a value to its storage.",
)
