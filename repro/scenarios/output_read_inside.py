"""An output that is read inside as well dies with its last reader."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="output-read-inside",
    title="an output that is read inside as well dies with its last reader",
    source="https://github.com/apache/tvm/pull/286",
    story=(
        "The count of an intermediate's readers left out the graph's outputs. In the project "
        "such an output was fused away; here a plan believes the same count, and frees it after "
        "its last reader inside, before the host has it."
    ),
    sound=SmallDocument(
        text="x = host.write; y = f x; z = g y; w = h z; host.read w; host.read y", slots="y=0 z=64 w=128 x=64"
    ),
    place="belief",
    change={"slots": "y=0 w=0", "believed": {"y": (1, 3)}},
    expected=(("C05", "plan"),),
    reports={"S": "StaleRead Overlap PinIgnored", "L": "MissingPin", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A lifetime for each output that ends with the run, asserted.",
)
