"""A fused kernel checks only one of its two operands for overlap with its result."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="fused-norm-overlap",
    title="a fused kernel checks only one of its two operands for overlap with its result",
    source="https://github.com/ggml-org/llama.cpp/pull/22266",
    story=(
        "A fused norm and product checked only one source for overlap with its result. In WebGPU, an overlap with the "
        "other source is a validation error. Here no validation runs: both sources are one buffer, the result takes "
        "its bytes, and the kernel reads the second source after it was overwritten."
    ),
    sound=SmallDocument(text="x = host.write; a = f x; y = rms!01 a a; host.read y", slots="a=0 y=0", share="a>y"),
    place="kernel",
    change={"kernels": {"rms": "second_again"}},
    expected=(("C04", "kernel"),),
    reports={"D": "result", "K": "unsafe"},
    not_run="H R",
    caught="The audit of the kernel in place, with one buffer for both operands.",
)
