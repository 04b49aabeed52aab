"""Padding wraps and a slot begins before its arena."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="wrapped-padding",
    title="padding wraps and a slot begins before its arena",
    source="https://github.com/ggml-org/llama.cpp/pull/26318",
    story="A huge size is padded and wraps round; the slot begins before its arena.",
    sound=SmallDocument(text="x = host.write; a = f x; b = g x; c = h b a; host.read c", slots="a=0 b=64"),
    place="placement",
    change={"slots": "a=-32 b=64"},
    expected=(("C12", "plan"),),
    reports={"S": "OutOfBounds"},
    not_run="H R P D K",
    caught="Bounds of each slot, checked when the plan is made.",
)
