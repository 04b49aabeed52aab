"""The host reads an intermediate that nobody flagged as an output."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="unflagged-look",
    title="the host reads an intermediate that nobody flagged as an output",
    source="https://github.com/ggml-org/ggml/issues/1151",
    story=(
        "An intermediate is read after the run, to debug. It is not flagged as output, and its "
        "memory belongs to somebody else by then."
    ),
    sound=SmallDocument(
        text="x = host.write; y = f x; z = g y; w = h z; host.read w; host.read y", slots="y=0 z=64 w=128 x=64"
    ),
    place="caller",
    change={"slots": "y=0 w=0", "believed": {"y": (1, 3)}, "pinned": "w"},
    expected=(("C05", "caller"),),
    reports={"S": "StaleRead Overlap", "L": "MissingPin", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="The same: a host read of what is not pinned, told before the numbers are believed.",
)
