"""An in-place op runs over a parameter seen through a view."""

from repro import Role, SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="foreign-view",
    title="an in-place op runs over a parameter seen through a view",
    source="https://github.com/ggml-org/whisper.cpp/pull/1677",
    story=(
        "Views came to belong to the allocator's buffer, so the test of ownership let an in-"
        "place op run over a view of memory that the allocator does not own; transcriptions "
        "came out wrong. Here that memory is a parameter, and the first run changes it."
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
    caught=("Two runs in the test instead of one, and a check that nothing in a plan writes to what outlives the run."),
    reasons={
        "class": (
            "the view is not lost, it is only how the op sees the parameter; without it the same op over the "
            "same parameter is the same fault, and what mends either is the pair"
        )
    },
)
