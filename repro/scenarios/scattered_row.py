"""A kernel writes past the end of its result, into a neighbour that is still read."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="scattered-row",
    title="a kernel writes past the end of its result, into a neighbour that is still read",
    source="https://github.com/ggml-org/llama.cpp/pull/27283",
    story=(
        "A row index was not checked against the number of rows of the result. The write goes past the end of the "
        "result, into another tensor of the same pool. Nothing crashes."
    ),
    sound=SmallDocument(
        text="x = host.write; a[16] = f x; b[16] = scale a; c = h b x; host.read c", slots="b=0 x=64 a=128"
    ),
    place="kernel",
    change={"kernels": {"scale": "overrun"}},
    expected=(("C12", "kernel"),),
    reports={"P": "Overrun", "D": "operand"},
    not_run="H R",
    caught="Guard bytes or an owner for each byte: the write goes beyond the bytes that the op owns.",
)
