"""The blocks of a finished request are reused while its step in flight writes them."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="request-in-flight",
    title="the blocks of a finished request are reused while its step in flight writes them",
    source="https://github.com/vllm-project/vllm/issues/45357",
    story=(
        "A request is ended while its step is in flight, and the scheduler frees its blocks. Another request takes a "
        "block and loads its keys there on a second stream (1). The step of the first request overwrites these keys "
        "with its own. Cure: free the block after the step in flight has ended. This scenario reproduces the class of "
        "fault of the report; the memory pool of the report itself is not run."
    ),
    sound=SmallDocument(
        text="x = host.write; p = host.write; k = step x; s = sample k; m = load p ~1 ^1 ^3; y = attend m ^4; o = join y s; host.read o",
        slots="x=0 p=64 k=128 s=192 m=128 y=256 o=320",
    ),
    place="placement",
    change={
        "text": "x = host.write; p = host.write; k = step x; s = sample k; m = load p ~1 ^1; y = attend m ^4; o = join y s; host.read o"
    },
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught=(
        "A happens-before check in which the step is an op of its stream. The order of the scheduler does not order "
        "the ops on the device."
    ),
)
