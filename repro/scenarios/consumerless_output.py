"""A result that nobody reads gets no lifetime, although its op writes it."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="consumerless-output",
    title="a result that nobody reads gets no lifetime, although its op writes it",
    source="https://github.com/microsoft/onnxruntime/pull/21019",
    story=(
        "The planner computed release times from consumers. An output without a consumer was released too early, so "
        "two values shared a buffer. The pull request does not name the values; here they are two outputs of one op."
    ),
    sound=SmallDocument(text="x = host.write; y u = split x; z = g y; host.read z", slots="y=0 u=64 z=64"),
    place="belief",
    change={"slots": "y=0 u=0", "believed": {"u": (1, 1)}},
    expected=(("C01", "plan"),),
    reports={"S": "ResultsOverlap Overlap StaleRead", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand result"},
    not_run="H R",
    caught="A check that a buffer lives while its producer writes it, so two results of one op never overlap.",
)
