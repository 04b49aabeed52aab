"""The host reads an intermediate that is not flagged as an output."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="unflagged-look",
    title="the host reads an intermediate that is not flagged as an output",
    source="https://github.com/ggml-org/ggml/issues/1151",
    story=(
        "The host reads an intermediate after the run, for debugging. The intermediate is not flagged as output, and "
        "another value has taken its memory by then."
    ),
    sound=SmallDocument(
        text="x = host.write; y = f x; z = g y; w = h z; host.read w; host.read y", slots="y=0 z=64 w=128 x=64"
    ),
    place="caller",
    change={"slots": "y=0 w=0", "believed": {"y": (1, 3)}, "pinned": "w"},
    expected=(("C05", "caller"),),
    reports={"S": "StaleRead Overlap", "L": "MissingPin", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check that reports a host read of a buffer that is not pinned, before anyone relies on the numbers.",
)
