"""A loop writes its loop-invariant destination in place in each iteration."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="loop-destination",
    title="a loop writes its loop-invariant destination in place in each iteration",
    source="https://github.com/llvm/llvm-project/issues/90019",
    story=(
        "A destination outside the loop is overwritten in place in the first iteration. The second iteration expects "
        "the bytes from before the loop."
    ),
    sound=SmallDocument(
        text="x = host.write; e = f x; r1 = map! e; s = keep r1; r2 = map! e; o = add s r2; host.read o",
        slots="e=0 r1=64 r2=0",
        share="e>r2",
    ),
    place="belief",
    change={"slots": "e=0 r1=0", "share": "e>r1"},
    expected=(("C03", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "BadShare", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check of the unrolled program: from the second iteration on, the destination is stale.",
)
