"""A kernel is given one buffer for two operands and reads it for the first alone."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="one-binding",
    title="a kernel is given one buffer for two operands and reads it for the first alone",
    source="https://github.com/ggml-org/llama.cpp/pull/22456",
    story=(
        "Several operands of a scan were one tensor, bound once for each. WebGPU does not allow "
        "that, so the repair makes one binding of them. Here a kernel has that one binding and "
        "reads it for the first operand alone; the second is not there."
    ),
    sound=SmallDocument(text="x = host.write; a = f x; y = scan a a; host.read y", slots="a=0 y=64"),
    place="kernel",
    change={"kernels": {"scan": "one_binding"}},
    expected=(("C04", "kernel"),),
    reports={"K": "unsafe"},
    not_run="H R",
    caught="The audit with repeated operands: no plan is needed to see it.",
)
