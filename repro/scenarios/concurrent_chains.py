"""Two chains have no barrier between them, and one frees buffers by list index."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="concurrent-chains",
    title="two chains have no barrier between them, and one frees buffers by list index",
    source="https://github.com/ggml-org/llama.cpp/pull/2757",
    story=(
        "Nodes run concurrently between barriers. The planner freed a tensor at the list index of its last reader. "
        "That index does not order two chains that have no barrier between them."
    ),
    sound=SmallDocument(
        text=(
            "x = host.write; y = host.write; a = f x; c = g y ~1 ^1; b = h a; d = k c ~1 ^4; "
            "e = join b d ^5; host.read e"
        ),
        slots="a=0 d=0 x=64 y=128 c=192 b=256 e=320",
    ),
    place="placement",
    change={
        "text": (
            "x = host.write; y = host.write; a = f x; c = g y ~1 ^1; b = h a; d = k c ~1; e = join b d ^5; host.read e"
        )
    },
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught="A happens-before check in which barriers are the only waits.",
)
