"""The planner may choose between two donors, and takes the donor that is still read."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="two-donors",
    title="the planner may choose between two donors, and takes the donor that is still read",
    source="https://github.com/dmlc/nnvm/pull/67",
    story=(
        "The op may overwrite either of its operands. The planner chose the operand that another op still reads. (Only "
        "the title of the pull request was read.)"
    ),
    sound=SmallDocument(
        text="x = host.write; a = f x; b = g x; y = op!01 a b; c = use y b; host.read c",
        slots="a=0 b=64 y=0",
        share="a>y",
    ),
    place="belief",
    change={"slots": "b=0 y=0", "share": "b>y"},
    expected=(("C03", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "BadShare", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check of each in-place pair that a plan uses, instead of a check of each op.",
)
