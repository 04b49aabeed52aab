"""A kernel is unsafe over its second operand, which a pin makes the planner choose."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="softmax-back-partial-pin",
    title="a kernel is unsafe in place over its second operand, and a pin makes the planner choose that operand",
    source="https://github.com/ggml-org/ggml/pull/1521",
    story=(
        "The kernel is safe in place over dy but not over y. While dy is free, the plan takes dy and the result is "
        "right. A single pin on dy, set to look for a bug, makes the plan take y and so creates the bug."
    ),
    sound=SmallDocument(
        text=("p = host.write; q = host.write; dy = f p; y = g q; dx = soft!01 dy y; host.read dx; host.read dy"),
        slots="y=0 dx=0",
        share="y>dx",
    ),
    place="kernel",
    change={"kernels": {"soft": "second_again"}},
    expected=(("C04", "kernel"),),
    reports={"D": "result", "K": "unsafe"},
    not_run="H R",
    caught="The audit over every operand, and runs with one pin at a time: no run without a pin can show the fault.",
)
