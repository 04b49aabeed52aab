"""A cached block that a request uses as its prefix is given out for new tokens."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="stolen-prefix",
    title="a cached block that a request uses as its prefix is given out for new tokens",
    source="https://github.com/vllm-project/vllm/issues/37076",
    story=(
        "The count of the free blocks is too large by one. A cached block that the request has just found as its "
        "prefix is counted as free, so the request's new tokens are written there. Cure: remove the found blocks from "
        "the free blocks before new blocks are given out. This scenario reproduces the class of fault of the report; "
        "the memory pool of the report itself is not run."
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
    caught="A replay of the blocks given out: no block is given to a second holder before the first has freed it.",
)
