"""The index of the current copy is advanced before the copy is read."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="n-copies",
    title="the index of the current copy is advanced before the copy is read",
    source="https://github.com/ggml-org/llama.cpp/pull/14855",
    story=(
        "Each input has one copy for each run in flight, and an index says which copy is current. The index is "
        "advanced inside compute, so the graph reads a copy that this run did not fill."
    ),
    sound=SmallDocument(
        text="in0 = host.write; in1 = host.write; t = copy in0; y = f t; o = back y; host.read o",
        slots="in0=0 in1=64 t=0 y=64 o=0",
        gpu="t y",
        runs=((), ()),
    ),
    place="caller",
    change={"runs": ((1,), (0,))},
    expected=(("C10", "schedule"),),
    reports={"S": "StaleRead HistoryRead", "R": "StaleRead", "P": "StaleRead", "D": "operand"},
    not_run="H",
    caught="A test of the second run with two copies in flight, because the first run is right.",
)
