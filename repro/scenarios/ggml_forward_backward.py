"""A plan for the forward graph, run with the backward graph."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-forward-backward",
    title="a backward graph is planned over forward tensors that were planned without it",
    source="https://github.com/ggml-org/ggml/pull/999",
    story=(
        "The forward graph is allocated, then extended by its backward graph and allocated again. What has an "
        "address keeps it: "
        "forward tensors lie as the forward graph alone allowed, on top of each other, while backward ops "
        "still read them."
    ),
    fault="forward-then-backward",
    expected=(("C08", "plan"),),
    reports="S D",
    not_run="H R P K",
    caught=(
        "A replay of the backward graph on the addresses that it runs with: forward tensors share bytes "
        "while both are needed."
    ),
    reasons={
        "class": (
            "nothing is kept from one run to the next; one graph runs, once, and what is read late was "
            "written in that run. The plan is legal for the forward graph, which it was made for; the graph "
            "that runs on it is another"
        )
    },
)
