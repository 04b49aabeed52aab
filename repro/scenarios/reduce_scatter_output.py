"""A reduced gradient is copied on another stream, and its memory is reused too early."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="reduce-scatter-output",
    title="a reduced gradient is copied on another stream, and its memory is reused before the copy ends",
    source="https://github.com/pytorch/pytorch/pull/180665",
    story=(
        "The output of a reduce-scatter is allocated on the stream of the reduce-scatter (1), and copied to the host "
        "on the stream of the all-reduce (2). The caching allocator knows the first stream only. When the last "
        "reference is dropped, the next reduce-scatter gets the block while the copy may still read it."
    ),
    sound=SmallDocument(
        text=(
            "g0 = host.write; g1 = host.write; r0 = reduce_scatter g0 ~1 ^0; h0 = copy r0 ~2 ^2; "
            "r1 = reduce_scatter g1 ~1 ^1 ^3; h1 = copy r1 ~2 ^4; o = step h0 h1 ^5; host.read o"
        ),
        slots="g0=0 g1=64 r0=128 r1=128 h0=0 h1=64 o=128",
        gpu="r0 r1",
    ),
    place="placement",
    change={
        "text": (
            "g0 = host.write; g1 = host.write; r0 = reduce_scatter g0 ~1 ^0; h0 = copy r0 ~2 ^2; "
            "r1 = reduce_scatter g1 ~1 ^1; h1 = copy r1 ~2 ^4; o = step h0 h1 ^5; host.read o"
        )
    },
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught=(
        "A happens-before check over the streams: no wait orders the copy before the next reduce-scatter. The numbers "
        "are wrong in some runs only."
    ),
)
