"""Two gradients are one tensor, which the host reads although no flag says so."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-shared-gradient",
    title="the gradient of a bias is wrong unless it is flagged as output",
    source="ggml.c, ggml 0.13.1 to 0.26.0",
    story=(
        "If the result of an addition has the shape of its bias, autodiff makes no tensor for the gradient of the "
        "bias. The incoming gradient itself serves as the gradient of the bias. For the allocator, the next op of the "
        "chain is the last reader of that gradient, so that op overwrites it in place."
    ),
    fault="shared-gradient",
    expected=(("C05", "caller"),),
    reports="S L D",
    not_run="H R P K",
    caught="A replay with the host's read as an op. Or a check that every tensor that a caller reads is flagged.",
)
