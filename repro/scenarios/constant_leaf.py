"""A constant leaf gets its memory late."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="constant-leaf",
    title="a constant leaf gets its memory when it is first read",
    source="https://github.com/ggml-org/ggml/pull/731",
    story=(
        "All leaves are uploaded before the graph runs. A leaf that is not flagged as input gets its bytes only at its "
        "first reader. An earlier op writes its result to the same bytes, so the uploaded constant is lost."
    ),
    sound=SmallDocument(
        text="x = host.write; l = host.write; a = f x; b = g a; c = h b l; host.read c",
        slots="l=0 a=64 b=128 x=128 c=64",
    ),
    place="belief",
    change={"slots": "l=0 a=0", "believed": {"l": (4, 5)}},
    expected=(("C06", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check that counts an upload as a write.",
)
