"""A gradient outside the graph is read after the next call."""

from repro import Role, SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="escaping-grad",
    title="a gradient outside the graph is read after the next call",
    source="https://github.com/tinygrad/tinygrad/issues/16571",
    story=(
        "A lazy gradient outside the captured graph still refers to a buffer inside the graph. Each replay writes "
        "something else to that buffer, so the gradient is right at capture and wrong after every replay."
    ),
    sound=SmallDocument(
        text="first:e = host.write; y = f before:e; after:e = g y; t = h y; host.read t",
        slots="e=0 y=64 t=128",
        roles={"e": Role.TEMPORARY},
        runs=((), ()),
    ),
    place="caller",
    change={"runs": ((), (0,)), "slots": "e=0 y=64 t=0"},
    expected=(("C07", "caller"),),
    reports={"S": "StaleRead HistoryRead", "R": "StaleRead", "P": "StaleRead", "D": "operand"},
    not_run="H",
    caught="A comparison of the second run with the first; no program says who holds a value outside the graph.",
    reasons={
        "class": (
            "the program does not say who holds the value outside the graph; it shows only that a run relies on a "
            "value of an earlier run"
        )
    },
)
