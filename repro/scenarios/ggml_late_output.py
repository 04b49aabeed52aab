"""The flag OUTPUT is set after the plan is made, so the planner ignores it."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-late-output",
    title="ggml_set_output has no effect after the plan is made",
    source="https://github.com/ggml-org/ggml/issues/1151",
    story=(
        "The flag OUTPUT is read when a plan is made. If the flag is set between reserve and allocation, ggml silently "
        "ignores it, because nothing else in the graph has changed. The host then reads bytes that a later op wrote."
    ),
    fault="late-output",
    expected=(("C05", "caller"),),
    reports="S L D",
    not_run="H R P K",
    caught=(
        "A replay with the flags that are set when the graph runs: the host reads bytes that another op wrote. Or an "
        "error if OUTPUT is set after the plan was made."
    ),
)
