"""A pin on a view does not protect the storage of the view."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-output-on-view",
    title="the flag OUTPUT on a view does not keep the tensor that it views",
    source="https://github.com/tetherto/qvac-fabric-llm.cpp/pull/232",
    story=(
        "A view has no memory of its own, and the allocator looks for the flag OUTPUT on the root only. "
        "ggml_set_output flags the root too, since 0.26.0 at the latest. A flag set on the view in another way protects "
        "nothing."
    ),
    fault="output-on-view",
    expected=(("C05", "plan"),),
    reports="S L D",
    not_run="H R P K",
    caught="A replay in which a pin of a view pins its storage: the host reads a slot that a later op has taken.",
)
