"""A second run has larger inputs than the plan."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="grown-input",
    title="a second run has larger inputs than the plan",
    source="https://github.com/microsoft/onnxruntime/issues/28359",
    story="The second run brings a larger batch and keeps the plan of the first.",
    sound=SmallDocument(
        text="x[16] = host.write; y = f x; host.read y",
        slots="x=0 y=64",
        others={"q": SmallDocument(text="x[32] = host.write; y = f x; host.read y", sizes="x=128")},
        order="p p",
    ),
    place="size",
    change={"order": "p q/p"},
    expected=(("C08", "plan"),),
    reports={"S": "Undersized UnsafeInPlace Overlap", "R": "UnsafeInPlace Overlap"},
    not_run="H",
    caught="The sizes of the plan compared with those of the program at each run.",
)
