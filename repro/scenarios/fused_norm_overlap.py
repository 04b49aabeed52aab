"""A fused kernel asks only one of its two operands whether its result overlaps it."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="fused-norm-overlap",
    title="a fused kernel asks only one of its two operands whether its result overlaps it",
    source="https://github.com/ggml-org/llama.cpp/pull/22266",
    story=(
        "A fused norm and product asked of one source only whether its result overlaps it. In "
        "WebGPU an overlap with the other is an error of validation. Here nobody validates: "
        "both sources are one buffer, the result lies over it, and the second is read after it "
        "was written."
    ),
    sound=SmallDocument(text="x = host.write; a = f x; y = rms!01 a a; host.read y", slots="a=0 y=0", share="a>y"),
    place="kernel",
    change={"kernels": {"rms": "second_again"}},
    expected=(("C04", "kernel"),),
    reports={"D": "result", "K": "unsafe"},
    not_run="H R",
    caught="The audit with repeated operands, in place.",
)
