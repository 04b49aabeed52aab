"""An in-place op runs over a parameter seen through a view."""

from repro import Role, SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="foreign-view",
    title="an in-place op runs over a parameter seen through a view",
    source="https://github.com/ggml-org/whisper.cpp/pull/1677",
    story=(
        "After a change, views belonged to the allocator's buffer. So the test of ownership let an in-place op run "
        "over a view of memory that the allocator does not own, and transcriptions were wrong. Here that memory is a "
        "parameter, and the first run changes it."
    ),
    sound=SmallDocument(
        text="x = host.write; v:w = view w; y = relu! v; z = add y x; host.read z",
        slots="w=0 y=64",
        roles={"w": Role.PARAMETER},
        runs=((), ()),
    ),
    place="belief",
    change={"slots": "w=0 y=0", "share": "w>y"},
    expected=(("C03", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "BadShare", "R": "StaleRead", "P": "StaleRead", "D": "operand"},
    not_run="H",
    caught="A test with two runs, and a check that no buffer of a plan overlaps memory that persists after a run.",
    reasons={
        "class": (
            "the view is tracked correctly; the op only reads the parameter through it. The same op without the view "
            "has the same fault, and in both cases removing the in-place pair mends it"
        )
    },
)
