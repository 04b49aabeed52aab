"""The tail after an in-place result is freed at an unaligned offset."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="tail-free",
    title="the tail after an in-place result is freed at an unaligned offset",
    source="https://github.com/ggml-org/llama.cpp/pull/17884",
    story=(
        "A result is smaller than the operand whose bytes it takes, and the rest of the operand's bytes is freed. The "
        "offset of the rest was computed without alignment, so the rest begins inside the result."
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
    caught="A replay of the plan, byte by byte.",
)
