"""A pin on a view that does not reach its storage."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-output-on-view",
    title="OUTPUT on a view does not keep the tensor it views",
    source="https://github.com/tetherto/qvac-fabric-llm.cpp/pull/232",
    story=(
        "A view has no memory of its own, and the allocator looks for OUTPUT on the root alone. "
        "ggml_set_output flags the root "
        "too, since 0.26.0 at the latest; a flag set on the view in any other way protects nothing."
    ),
    fault="output-on-view",
    expected=(("C05", "plan"),),
    reports="S L D",
    not_run="H R P K",
    caught=("A replay that takes a pin for one of the storage: the host reads a slot that a later op has."),
)
