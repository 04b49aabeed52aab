"""OUTPUT set too late: the host reads a tensor that the planner did not know to be an output."""

from repro.scenario import GgmlFault

SCENARIO = GgmlFault(
    name="ggml-late-output",
    title="ggml_set_output after the plan is made changes nothing",
    source="https://github.com/ggml-org/ggml/issues/1151",
    story=(
        "The flag OUTPUT is read when a plan is made. Set between reserve and allocation it is silently "
        "ignored, since nothing "
        "else about the graph has changed; the host then reads what a later op left."
    ),
    fault="late-output",
    expected=(("C05", "caller"),),
    reports="S L D",
    not_run="H R P K",
    caught=(
        "A replay with the flags as they are when the graph runs: the host reads what another op wrote. "
        "Or an error where OUTPUT is set after the plan."
    ),
)
