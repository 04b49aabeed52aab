"""A buffer that leaves the graph through a yield is planned as internal."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="yielded-buffer",
    title="a buffer that leaves the graph through a yield is planned as internal",
    source="https://github.com/microsoft/onnxruntime/pull/7767",
    story=(
        "The operands of a yield leave the graph, but were planned as internal buffers. The ops after the yield reuse "
        "memory that the framework still holds."
    ),
    sound=SmallDocument(
        text="x = host.write; h = f x; g = back h; w = step g; host.read w; host.read h", slots="h=0 g=64 w=128 x=64"
    ),
    place="belief",
    change={"slots": "h=0 w=0", "believed": {"h": (1, 3)}},
    expected=(("C05", "plan"),),
    reports={"S": "StaleRead Overlap PinIgnored", "L": "MissingPin", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A program in which the host's reads are ops, so that a check sees them.",
)
