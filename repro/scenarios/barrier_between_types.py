"""Two uses of one address with elements of different sizes have no barrier between them."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="barrier-between-types",
    title="two uses of one address with elements of different sizes have no barrier between them",
    source="https://github.com/tile-ai/tilelang/pull/2293",
    story=(
        "Two buffers in shared memory, of f32 and of f8, use one address in turn. The pass that sets barriers compared "
        "indices of elements, and took an equal index in both buffers for the same bytes of the same thread. So the "
        "pass left out the barrier between the reads of one warp (stream 0) and the writes of another (stream 1)."
    ),
    sound=SmallDocument(
        text=(
            "x = host.write; a = load x; s = reduce a; b = cast x ~1 ^0 ^2; t = product b ~1; "
            "r = add s t ^4; host.read r"
        ),
        slots="x=0 a=64 s=128 b=64 t=192 r=256",
    ),
    place="schedule",
    change={
        "text": (
            "x = host.write; a = load x; s = reduce a; b = cast x ~1 ^0; t = product b ~1; r = add s t ^4; host.read r"
        )
    },
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught="A happens-before check over the warps that compares byte ranges instead of indices of elements.",
)
