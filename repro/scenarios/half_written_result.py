"""A kernel leaves half of its result unwritten."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="half-written-result",
    title="a kernel leaves half of its result unwritten",
    source="https://github.com/ggml-org/ggml/issues/1131",
    story=(
        "The kernel writes only some of its result's rows, and relies on memory that is zero. In an arena it never is."
    ),
    sound=SmallDocument(text="x = host.write; a = f x; y = rows a; host.read y", slots="x=0 a=64 y=0"),
    place="kernel",
    change={"kernels": {"rows": "half"}},
    expected=(("C14", "kernel"),),
    reports={"P": "ResultUnwritten", "D": "result"},
    not_run="H R",
    caught="Poison in the result before each op: what is still poison afterwards was not written.",
)
