"""A gradient buffer comes from one stream's pool and is filled on another."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="wrong-stream-gradient",
    title="a gradient buffer comes from one stream's pool and is filled on another",
    source="https://github.com/NVIDIA/Megatron-LM/pull/6187",
    story=(
        "A main gradient is allocated on the default stream, and used and replaced on the stream "
        "of the reduce-scatter (1). The allocator hands the old storage to work on the default "
        "stream before the asynchronous reduce-scatter has read it."
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
        "Happens-before over the streams, with an allocation as a write of its stream; the losses "
        "of the project's test did not show it."
    ),
)
