"""A sum of five fills its output with zeros first."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="add-n-zero-fill",
    title="a sum of five fills its output with zeros first",
    source="https://github.com/apache/mxnet/issues/14858",
    story=(
        "The sum of more than four operands starts by filling its output with zeros. If the output is in place over "
        "the first operand, that operand is lost."
    ),
    sound=SmallDocument(
        text=("x = host.write; a = f x; b = g x; c = h x; d = k x; e = l x; y = add_n! a b c d e; host.read y"),
        slots="a=0 y=0",
        share="a>y",
    ),
    place="kernel",
    change={"kernels": {"add_n": "zero_first"}},
    expected=(("C04", "kernel"),),
    reports={"D": "result", "K": "unsafe"},
    not_run="H R",
    caught="The audit of the kernel with five operands, because with four operands the kernel takes another path.",
)
