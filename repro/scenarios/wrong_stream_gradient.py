"""A gradient buffer is allocated for one stream and used on another stream."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="wrong-stream-gradient",
    title="a gradient buffer is allocated for one stream and used on another stream",
    source="https://github.com/NVIDIA/Megatron-LM/pull/6187",
    story=(
        "A main gradient is allocated on the default stream. The gradient is used and replaced on the stream of the "
        "reduce-scatter (1). The allocator gives the old storage to work on the default stream before the "
        "reduce-scatter has read it."
    ),
    sound=SmallDocument(
        text=(
            "x = host.write; m = backward x; s = reduce_scatter m ~1 ^1; t = forward x ^2; "
            "o = loss t; u = step s o ^4 ~1; host.read u ^5"
        ),
        slots="x=0 m=64 t=64 s=128 o=192 u=256",
    ),
    place="placement",
    change={
        "text": (
            "x = host.write; m = backward x; s = reduce_scatter m ~1 ^1; t = forward x; o = loss t; "
            "u = step s o ^4 ~1; host.read u ^5"
        )
    },
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught=(
        "A happens-before check over the streams, in which an allocation is a write on its stream. The losses in the "
        "project's test did not show the bug."
    ),
)
