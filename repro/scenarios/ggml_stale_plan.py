"""A plan is kept by counts and sizes: a rewired graph runs on the plan of another."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-stale-plan",
    title="a rewired graph of the same size reuses the plan of the old one",
    source="https://github.com/ggml-org/llama.cpp/issues/28448",
    story=(
        "ggml's graph allocator keeps a plan as long as the numbers of nodes and leafs are the same and every "
        "tensor fits; it "
        "compares neither ops nor edges. The second graph reads a tensor whose slot the first plan had given away."
    ),
    fault="stale-plan",
    expected=(("C08", "plan"),),
    reports="S D",
    not_run="H R P K",
    caught=("A fingerprint of ops and edges beside the counts; or every graph replayed on the plan that it runs on."),
)
