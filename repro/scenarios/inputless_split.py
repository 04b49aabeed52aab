"""A split without inputs overwrites a slot and does not wait for the slot's asynchronous reader."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="inputless-split",
    title="a split without inputs overwrites a slot and does not wait for the slot's asynchronous reader",
    source="https://github.com/ggml-org/llama.cpp/pull/26040",
    story=(
        "A split that has no inputs waits for nothing. So this split overwrites a slot that an asynchronous split still "
        "reads."
    ),
    sound=SmallDocument(
        text="e0 = host.write; e = f e0; r = use e ~1 ^1; n = gen ^2; o = mix n r ^2; host.read o",
        slots="e0=64 e=0 n=0 r=128 o=192",
    ),
    place="placement",
    change={"text": "e0 = host.write; e = f e0; r = use e ~1 ^1; n = gen; o = mix n r ^2; host.read o"},
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught="A happens-before check over the accesses of the splits. A run of the program fails only now and then.",
)
