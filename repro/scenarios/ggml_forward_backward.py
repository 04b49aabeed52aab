"""A plan of the forward graph is kept when the graph is extended by its backward graph."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-forward-backward",
    title="a backward graph runs on forward tensors that were placed without it",
    source="https://github.com/ggml-org/ggml/pull/999",
    story=(
        "The forward graph is allocated, then extended by its backward graph, and allocated again. A tensor that has "
        "an address keeps it. The plan of the forward graph alone lets forward tensors share bytes. The tensors still "
        "share these bytes when backward ops read them."
    ),
    fault="forward-then-backward",
    expected=(("C08", "plan"),),
    reports="S D",
    not_run="H R P K",
    caught=(
        "A replay of the backward graph on the addresses with which it runs: forward tensors share bytes although both "
        "are needed."
    ),
    reasons={
        "class": (
            "no value is kept from one run to the next: one graph runs once, and every late read is of a value of that "
            "run. The plan is legal for the forward graph, for which it was made; another graph runs on it"
        )
    },
)
