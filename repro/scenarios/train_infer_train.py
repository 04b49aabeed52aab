"""An inference call replaces the plan of the next training step."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="train-infer-train",
    title="an inference call replaces the plan of the next training step",
    source="https://github.com/apache/mxnet/pull/16553",
    story=(
        "Three plans share one table of in-place indices, and the plan that was made last overwrites the table. After "
        "an inference call, the training step runs with the indices of the inference plan, and its gradient is stale."
    ),
    sound=SmallDocument(
        text="x = host.write; a = f x; b = relu! a; c = g b a; host.read c",
        slots="x=0 a=64 b=128 c=0",
        others={
            "infer": SmallDocument(
                text="x = host.write; a = f x; b = relu! a; c = g b b; host.read c",
                slots="x=0 a=64 b=64 c=0",
                share="a>b",
            )
        },
        order="p infer p",
    ),
    place="caller",
    change={"order": "p infer p/infer"},
    expected=(("C08", "plan"),),
    reports={"S": "StaleRead Overlap", "R": "StaleRead Overlap"},
    not_run="H P D K",
    caught="A session of a training, an inference and a training call, because each call alone is right.",
)
