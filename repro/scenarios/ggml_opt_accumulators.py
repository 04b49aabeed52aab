"""Accumulators that are never set to zero."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-opt-accumulators",
    title="gradients of ggml-opt add up from step to step",
    source="ggml-opt.cpp, ggml 0.13.1 to 0.26.0",
    story=(
        "With graphs built anew for every step and an optimizer period of 1, ggml-opt never zeroes its "
        "gradient accumulators: "
        "the reset is asked for only where the period is longer, and acts on a graph that is not there yet. "
        "The memory plan has "
        "no part in it."
    ),
    fault="opt-accumulators",
    expected=(("C14", "caller"),),
    reports="S R D",
    not_run="H P K",
    caught=(
        "Two steps beside twice one step: the second gradient is the sum of both. Or a shadow of what was "
        "zeroed in this run."
    ),
)
