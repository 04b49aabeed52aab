"""A buffer is freed twice, and its slot is given to two other buffers."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="double-free",
    title="a buffer is freed twice, and its slot is given to two other buffers",
    source="https://github.com/pytorch/pytorch/pull/103720",
    story=(
        "An in-place op frees its operand, but the list of buffers to free at the end still has that operand. So the "
        "generated code deleted one buffer twice. An allocator that accepts both frees gives its bytes to two buffers."
    ),
    sound=SmallDocument(
        text="x = host.write; a = f x; b = relu! a; c = g b; d = h b; e = k c d; host.read e",
        slots="x=0 a=64 b=64 c=0 d=128 e=192",
        share="a>b",
        events="0+x 1+a 1-x 2+b 2-a 3+c 4+d 4-b 5+e 5-c 5-d 6-e",
    ),
    place="placement",
    change={"slots": "x=0 a=64 b=64 c=0 d=0 e=192", "events": "0+x 1+a 1-x 2+b 2-a 3-x 3+c 4+d 4-b 5+e 5-c 5-d 6-e"},
    expected=(("C12", "plan"), ("C13", "plan")),
    reports={"S": "DoubleFree AllocOverLive StaleRead Overlap LifetimeIgnored", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A replay of allocations and frees, which checks that each block is freed once.",
)
