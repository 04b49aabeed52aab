"""A kernel is bound one buffer for two operands and reads it for the first alone."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="one-binding",
    title="a kernel is bound one buffer for two operands and reads it for the first alone",
    source="https://github.com/ggml-org/llama.cpp/pull/22456",
    story=(
        "Two operands of the scan are one tensor. The backend bound the buffer once, and the "
        "second operand was not there."
    ),
    sound=SmallDocument(text="x = host.write; a = f x; y = scan a a; host.read y", slots="a=0 y=64"),
    place="kernel",
    change={"kernels": {"scan": "one_binding"}},
    expected=(("C04", "kernel"),),
    reports={"K": "unsafe"},
    not_run="H R",
    caught="The audit with repeated operands: no plan is needed to see it.",
)
