"""A kernel writes x and then reads dz again."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="rms-norm-back",
    title="a kernel writes x and then reads dz again",
    source="https://github.com/ggml-org/ggml/issues/1491",
    story=(
        "The result may take the memory of the incoming gradient. The kernel copies x into the result first, and then "
        "reads the gradient, which is overwritten by then. The plan is legal."
    ),
    sound=SmallDocument(
        text="z = host.write; x = host.write; dz = f z; dx = norm! dz x; host.read dx", slots="dz=0 dx=0", share="dz>dx"
    ),
    place="kernel",
    change={"kernels": {"norm": "two_pass"}},
    expected=(("C04", "kernel"),),
    reports={"D": "result", "K": "unsafe"},
    not_run="H R",
    caught=("An audit of every kernel on the in-place list, with the result over each operand that the list names."),
)
