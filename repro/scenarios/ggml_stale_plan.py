"""A plan is reused by counts and sizes only: a rewired graph runs on the plan of another graph."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-stale-plan",
    title="a rewired graph of the same size reuses the plan of the old one",
    source="https://github.com/ggml-org/llama.cpp/issues/28448",
    story=(
        "ggml's graph allocator keeps a plan as long as the numbers of nodes and leafs are equal and every tensor "
        "fits. The allocator compares neither ops nor edges. The second graph reads a tensor whose slot the first plan "
        "gave away."
    ),
    fault="stale-plan",
    expected=(("C08", "plan"),),
    reports="S D",
    not_run="H R P K",
    caught="A fingerprint of ops and edges in addition to the counts. Or a replay of every graph on its plan.",
)
