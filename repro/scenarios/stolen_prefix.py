"""A block of a prefix that was found in the cache is given out for new tokens."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="stolen-prefix",
    title="a block of a prefix that was found in the cache is given out for new tokens",
    source="https://github.com/vllm-project/vllm/issues/37076",
    story=(
        "The blocks that may be given out are counted off by one: a cached block that the request "
        "has just found as its prefix is among them, and its new tokens are written there. Cure: "
        "take what was found off the free blocks before new ones are given out. Rebuilt from the "
        "class of fault that the report names; the pool of the report itself is not run here."
    ),
    sound=SmallDocument(
        text="x = host.write; p = put x; a = attend p; n = put a; y = attend2 p n; host.read y",
        slots="x=0 p=64 a=128 n=192 y=256",
    ),
    place="placement",
    change={"slots": "x=0 p=64 a=128 n=64 y=256"},
    expected=(("C12", "plan"),),
    reports={"S": "StaleRead Overlap LifetimeIgnored", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A replay of the blocks given out: no block is given to a second holder before the first let go.",
)
