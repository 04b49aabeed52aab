"""Two gradients in one tensor: the host reads both, and no flag says so."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-shared-gradient",
    title="the gradient of a bias is garbage unless it is flagged as output",
    source="ggml.c, ggml 0.13.1 to 0.26.0",
    story=(
        "Where an addition has the shape of its bias, autodiff makes no tensor for the gradient of the bias: "
        "it is the incoming "
        "gradient itself. The next op of the chain is its last reader as far as the allocator knows, and takes "
        "it in place."
    ),
    fault="shared-gradient",
    expected=(("C05", "caller"),),
    reports="S L D",
    not_run="H R P K",
    caught=("A replay with the host's read as an op; or a check that what a caller reads is flagged."),
)
