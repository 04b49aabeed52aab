"""The plan of a graph is reused for a graph with equal counts and sizes but other edges."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="stale-plan",
    title="the plan of a graph is reused for a graph with equal counts and sizes but other edges",
    source="https://github.com/ggml-org/llama.cpp/issues/28448",
    story=(
        "The allocator keeps its plan if the node counts and sizes equal those of the last graph. Here only one edge "
        "has changed, and the value that the new edge reads was given away in the old plan."
    ),
    sound=SmallDocument(
        text="n0 = host.write; n1 = f n0; n2 = g n1; n3 = add n2 n1; host.read n3",
        slots="n0=0 n1=64 n2=0 n3=128",
        others={"q": SmallDocument(text="n0 = host.write; n1 = f n0; n2 = g n1; n3 = add n2 n0; host.read n3")},
        order="p p",
    ),
    place="caller",
    change={"order": "p q/p"},
    expected=(("C08", "plan"),),
    reports={"S": "StaleRead Overlap", "R": "StaleRead Overlap", "P": "StaleRead", "D": "operand"},
    not_run="H",
    caught="A fingerprint of the graph that includes its edges. Or a check of the second graph on its plan.",
)
