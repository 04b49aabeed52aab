"""Two empty outputs are merged because they are equal."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="merged-empty-outputs",
    title="two empty outputs are merged because they are equal",
    source="https://github.com/ROCm/hip-ep/pull/421",
    story=(
        "Two empty tensors, each the destination of one result, are equal, so common subexpression elimination merged "
        "them. V is then read as K."
    ),
    sound=SmallDocument(
        text="x = host.write; k v = qkv x; a = f k; b = g v; host.read a; host.read b", slots="k=0 v=64"
    ),
    place="placement",
    change={"slots": "k=0 v=0"},
    expected=(("C11", "plan"),),
    reports={"S": "ResultsOverlap Overlap StaleRead LifetimeIgnored", "P": "StaleRead", "D": "operand result"},
    not_run="H R",
    caught="A check of the plan after that pass: two live results have one slot.",
)
