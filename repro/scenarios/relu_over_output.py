"""A graph output is written over in place."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="relu-over-output",
    title="a graph output is written over in place",
    source="https://github.com/pytorch/torchdynamo/pull/1486",
    story=("The caller wants y, and says only that it wants z. The activation behind y is written over it."),
    sound=SmallDocument(text="x = host.write; y = f x; z = relu! y; host.read z; host.read y", slots="y=0 z=64"),
    place="caller",
    change={"slots": "y=0 z=0", "believed": {"y": (1, 3)}, "pinned": "z"},
    expected=(("C05", "caller"),),
    reports={"S": "StaleRead Overlap", "L": "MissingPin", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught=("The check of the session with the host's real reads: it names a pin that the caller left out."),
)
