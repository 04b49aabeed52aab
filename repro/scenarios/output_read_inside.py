"""An output that another op also reads dies with that reader."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="output-read-inside",
    title="an output that another op also reads dies with that reader",
    source="https://github.com/apache/tvm/pull/286",
    story=(
        "The count of an intermediate's readers left out the outputs of the graph. In the project, such an output was "
        "fused away. Here a plan believes the same count, and frees the output after its last reader inside the graph, "
        "before the host reads it."
    ),
    sound=SmallDocument(
        text="x = host.write; y = f x; z = g y; w = h z; host.read w; host.read y", slots="y=0 z=64 w=128 x=64"
    ),
    place="belief",
    change={"slots": "y=0 w=0", "believed": {"y": (1, 3)}},
    expected=(("C05", "plan"),),
    reports={"S": "StaleRead Overlap PinIgnored", "L": "MissingPin", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="An assertion that the lifetime of each output lasts until the end of the run.",
)
