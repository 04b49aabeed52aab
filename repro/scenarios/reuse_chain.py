"""The planner loses the root of a chain of reuse over two streams, and a late reader."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="reuse-chain",
    title="the planner loses the root of a chain of reuse over two streams, and a late reader of the root",
    source="https://github.com/microsoft/onnxruntime/pull/32466",
    story=(
        "b reuses the buffer of a, and c, on another stream (1), reuses the buffer of b. The scratch table that "
        "follows such chains is reset for each stream. So c is recorded under b instead of under the root a. The "
        "readers of c do not keep the root alive, and its bytes are given away while they run."
    ),
    sound=SmallDocument(
        text=(
            "x = host.write; a = f x; b = g! a; c = h! b ~1 ^2; e = use c ~1; d = k x ^4; o = join d e ^4; host.read o"
        ),
        slots="x=64 a=0 b=0 c=0 d=0 e=128 o=192",
        share="a>b b>c",
    ),
    place="placement",
    change={
        "text": (
            "x = host.write; a = f x; b = g! a; c = h! b ~1 ^2; e = use c ~1; d = k x; o = join d e ^4; host.read o"
        )
    },
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught=(
        "A happens-before check over the streams, by storage: the reader of c and the writer of d access the same "
        "bytes, whatever the table says."
    ),
)
