"""A block that left a sliding window is given out while a step in flight reads it."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="window-in-flight",
    title="a block that left a sliding window is given out while a step in flight reads it",
    source="https://github.com/vllm-project/vllm/issues/47282",
    story=(
        "The window slides when a step is scheduled, and the block behind it goes back to the "
        "pool at once. The step still reads it when a load on a second stream (1) writes the "
        "block's new keys. Cure: free it after the step has ended, not when it is scheduled. "
        "Rebuilt from the class of fault that the report names; the pool of the report itself is "
        "not run here."
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
        "Happens-before with a step in flight as an op on its stream, and a free as the moment "
        "from which others may write."
    ),
)
