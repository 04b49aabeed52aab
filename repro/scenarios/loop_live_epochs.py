"""The planner takes a buffer to be free although the next iteration is loaded ahead."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="loop-live-epochs",
    title="the planner takes a buffer to be free between two iterations, although the next is loaded ahead",
    source="https://github.com/tile-ai/tilelang/pull/2185",
    story=(
        "A planner of shared memory follows the life of a buffer from barrier to barrier. After the last use in one "
        "iteration of a loop, the planner takes the bytes to be free until the next iteration fills the buffer. But the "
        "loop is pipelined: the next iteration fills the buffer early, while the rest of this iteration still uses "
        "another buffer in the same bytes. The planner was reverted (#2281). The program here has the iterations "
        "unrolled, in the order in which they run."
    ),
    sound=SmallDocument(
        text=(
            "x = host.write; a = load x; s = use a; n:a = load2 x s; c = stage s; r = put c; t = use2 n; "
            "y = join r t; host.read y"
        ),
        slots="x=0 a=64 s=128 c=192 r=256 t=320 y=384",
    ),
    place="belief",
    change={"slots": "x=0 a=64 s=128 c=64 r=256 t=320 y=384", "gaps": {1: ((3, 6),)}},
    expected=(("C01", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A comparison of the believed gaps with the accesses in the order in which the pipeline executes them.",
)
