"""The tail behind an in-place result is freed unaligned."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="tail-free",
    title="the tail behind an in-place result is freed unaligned",
    source="https://github.com/ggml-org/llama.cpp/pull/17884",
    story=(
        "A result is smaller than the operand it replaces, and the rest is given back. The rest "
        "was computed without alignment, so it begins inside the result."
    ),
    sound=SmallDocument(
        text="i = host.write; x[10] = f i; y[10] = g! x; z = h i; w = k y z; host.read w",
        slots="x=0 y=0 z=64",
        share="x>y",
        sizes="x=128 y=40",
    ),
    place="size",
    change={"slots": "x=0 y=0 z=32"},
    expected=(("C12", "plan"),),
    reports={"S": "StaleRead Overlap LifetimeIgnored", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A replay of the plan in bytes.",
)
