"""A block that left a sliding window is reused while a step in flight reads it."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="window-in-flight",
    title="a block that left a sliding window is reused while a step in flight reads it",
    source="https://github.com/vllm-project/vllm/issues/47282",
    story=(
        "The window slides when a step is scheduled, and the block that leaves it is freed at once. The step still "
        "reads this block when a load on a second stream (1) writes new keys to it. Cure: free the block after the "
        "step has ended, not when the step is scheduled. This scenario reproduces the class of fault of the report; "
        "the memory pool of the report itself is not run."
    ),
    sound=SmallDocument(
        text="x = host.write; p = host.write; k = put x; y = step k; n = load p ~1 ^1 ^3; z = next y n ^4; host.read z",
        slots="x=0 p=64 k=128 y=192 n=128 z=0",
    ),
    place="placement",
    change={
        "text": "x = host.write; p = host.write; k = put x; y = step k; n = load p ~1 ^1; z = next y n ^4; host.read z"
    },
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught=(
        "A happens-before check in which a step in flight is an op on its stream, and others may write the block as "
        "soon as it is freed."
    ),
)
