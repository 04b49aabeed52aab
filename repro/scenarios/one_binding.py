"""A kernel gets one buffer for two operands and reads it for the first operand only."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="one-binding",
    title="a kernel gets one buffer for two operands and reads it for the first operand only",
    source="https://github.com/ggml-org/llama.cpp/pull/22456",
    story=(
        "Several operands of a scan were one tensor, which was bound once for each operand. WebGPU forbids this, so "
        "the fix makes one binding of them. Here a kernel has one binding and reads it for the first operand only; for "
        "the second operand it reads zeros."
    ),
    sound=SmallDocument(text="x = host.write; a = f x; y = scan a a; host.read y", slots="a=0 y=64"),
    place="kernel",
    change={"kernels": {"scan": "one_binding"}},
    expected=(("C04", "kernel"),),
    reports={"K": "unsafe"},
    not_run="H R",
    caught="The audit of the kernel with one buffer for both operands, which needs no plan.",
)
