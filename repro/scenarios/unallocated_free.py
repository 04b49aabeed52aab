"""A buffer is freed that was never allocated."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="unallocated-free",
    title="a buffer is freed that was never allocated",
    source="https://github.com/microsoft/nnfusion/issues/61",
    story=(
        "Fusion and the memory allocator count references differently; a buffer is freed that was never handed out."
    ),
    sound=SmallDocument(
        text="x = host.write; a = f x; b = relu! a; c = g b; d = h b; e = k c d; host.read e",
        slots="x=0 a=64 b=64 c=0 d=128 e=192",
        share="a>b",
        events="0+x 1+a 1-x 2+b 2-a 3+c 4+d 4-b 5+e 5-c 5-d 6-e",
    ),
    place="placement",
    change={"events": "0+x 1-x 2+b 2-a 3+c 4+d 4-b 5+e 5-c 5-d 6-e"},
    expected=(("C13", "plan"),),
    reports={"S": "FreeOfUnallocated"},
    not_run="H R",
    caught="The same replay, on the log of a real run.",
)
