"""The third layer overwrites the first of two alternating buffers, because one wait is missing."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="double-buffer",
    title="the third layer overwrites the first of two alternating buffers, because one wait is missing",
    source="https://github.com/NVIDIA/Megatron-LM/pull/5222",
    story=(
        "The gradients of three layers alternate between two buffers, and a reduce-scatter on its own stream (1) reads "
        "each buffer. Before the third layer writes the first buffer again, it must wait for the reduce-scatter of "
        "that buffer. This wait is missing, so a gradient is overwritten while it is being reduced."
    ),
    sound=SmallDocument(
        text=(
            "x = host.write; g0 = wgrad x; r0 = reduce_scatter g0 ~1 ^1; g1 = wgrad2 x; "
            "r1 = reduce_scatter g1 ~1 ^3; g2 = wgrad3 x ^2; r2 = reduce_scatter g2 ~1 ^5; "
            "u = step r0 r1 r2 ~1; host.read u ^7"
        ),
        slots="x=0 g0=64 g1=128 g2=64 r0=192 r1=256 r2=320 u=384",
    ),
    place="schedule",
    change={
        "text": (
            "x = host.write; g0 = wgrad x; r0 = reduce_scatter g0 ~1 ^1; g1 = wgrad2 x; "
            "r1 = reduce_scatter g1 ~1 ^3; g2 = wgrad3 x; r2 = reduce_scatter g2 ~1 ^5; "
            "u = step r0 r1 r2 ~1; host.read u ^7"
        )
    },
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught=(
        "A happens-before check over the streams. The error is small and depends on timing, so a comparison of losses "
        "does not find it."
    ),
)
