"""Gradient accumulators are never set to zero."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-opt-accumulators",
    title="gradients of ggml-opt add up from step to step",
    source="ggml-opt.cpp, ggml 0.13.1 to 0.26.0",
    story=(
        "If graphs are built anew for every step and the optimizer period is 1, ggml-opt never zeroes its gradient "
        "accumulators. The reset is requested only if the period is longer, and then it acts on a graph that does not "
        "exist yet. The memory plan is not involved."
    ),
    fault="opt-accumulators",
    expected=(("C14", "caller"),),
    reports="S R D",
    not_run="H P K",
    caught=(
        "Running the first step twice and comparing the gradients: the second is the sum of the two. Or a shadow "
        "memory of the bytes zeroed in this run."
    ),
)
