"""An op runs in place over a value that a parallel branch reads."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="parallel-in-place",
    title="an op runs in place over a value that a parallel branch reads",
    source="https://github.com/microsoft/onnxruntime/issues/7633",
    story=(
        "An op runs in place over a shape that another branch reads. In the order of the list the other branch is "
        "first, but the parallel executor does not keep that order."
    ),
    sound=SmallDocument(
        text="x = host.write; b = g x ~1 ^0; a = f! x ^1; y = h a b ^1; host.read y",
        slots="x=0 a=0 b=64 y=128",
        share="x>a",
    ),
    place="placement",
    change={"text": "x = host.write; b = g x ~1 ^0; a = f! x; y = h a b ^1; host.read y"},
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught="A happens-before check: no wait orders the reader and the writer. A run in list order cannot fail.",
    reasons={
        "S": "S replays the order of the list, in which nothing is wrong; H examines other orders and reports the race"
    },
)
