"""A view of op NONE frees the tensor that it views while a reader still needs it."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-none-view",
    title="a view of op NONE frees the tensor that it views while a reader still needs it",
    source="ggml-alloc.c, ggml 0.13.1 to 0.26.0",
    story=(
        "ggml_view_tensor makes a view whose op is NONE. The allocator does not count such a view among the views of "
        "its root, but subtracts it from that count when the last reader of the view has run. So the root is freed "
        "while another view of it still has a reader."
    ),
    fault="none-view",
    expected=(("C02", "plan"),),
    reports="S L D",
    not_run="H R P K",
    caught="A replay of the plan with views resolved to their storage: the root is read after its bytes were freed.",
)
