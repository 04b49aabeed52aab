"""Of two chains without a barrier between them, one frees buffers by list index."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="concurrent-chains",
    title="of two chains without a barrier between them, one frees buffers by list index",
    source="https://github.com/ggml-org/llama.cpp/pull/2757",
    story=(
        "Nodes run concurrently between barriers, and a tensor was freed at its last reader's "
        "index. Index order says nothing of two chains without a barrier."
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
    caught="Happens-before with barriers as the only waits.",
)
