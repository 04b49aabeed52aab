"""A buffer is taken to be free between its epochs, although the next turn is loaded ahead."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="loop-live-epochs",
    title="a buffer is taken to be free between its epochs, although the next turn is loaded ahead",
    source="https://github.com/tile-ai/tilelang/pull/2185",
    story=(
        "A planner of shared memory follows the life of a buffer from barrier to barrier, epoch by "
        "epoch: behind the last use in one turn of a loop its bytes are free until the next turn "
        "fills it. The loop is pipelined, so the next turn is filled ahead, before the rest of "
        "this one has run, and a buffer of that rest has the bytes. The planner was taken back "
        "(#2281). The turn stands here as it runs, one behind the other."
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
    caught="The gaps believed, compared with the accesses in the order in which the pipeline has put them.",
)
