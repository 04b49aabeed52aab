"""An accumulator is written in place and returned as well."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="accumulator-returned",
    title="an accumulator is written in place and returned as well",
    source="https://github.com/iree-org/iree/issues/16168",
    story=(
        "A matmul adds into an accumulator in place, and the function also returns the accumulator as a second result. "
        "The host then gets the sum in both results."
    ),
    sound=SmallDocument(
        text="x = host.write; acc = f x; r = matmul! acc x; host.read r; host.read acc", slots="acc=0 r=64"
    ),
    place="belief",
    change={"slots": "acc=0 r=0", "share": "acc>r"},
    expected=(("C03", "plan"),),
    reports={"S": "StaleRead Overlap PinIgnored", "L": "BadShare", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check that no op overwrites a value before the host has read it.",
)
