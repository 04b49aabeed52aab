"""A view of op NONE frees the tensor that it views while a reader still needs it."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-none-view",
    title="a view of op NONE frees the tensor that it views while a reader still needs it",
    source="ggml-alloc.c, ggml 0.13.1 to 0.26.0",
    story=(
        "ggml_view_tensor makes a view without an op. The allocator does not count it when it counts the views "
        "of a root, and "
        "takes it off that count when its last reader has run, so that the root is freed while another view "
        "still has a reader."
    ),
    fault="none-view",
    expected=(("C02", "plan"),),
    reports="S L D",
    not_run="H R P K",
    caught=("A replay of the plan with views folded into their storage: the root is read after it was given away."),
)
