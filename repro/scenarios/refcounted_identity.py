"""An identity runs in place over a value that has a second reader."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="refcounted-identity",
    title="an identity runs in place over a value that has a second reader",
    source="https://github.com/dmlc/nnvm/pull/124",
    story=(
        "An identity shares the storage of its input. The count of readers was kept for each entry instead of for each "
        "storage, so the second reader of the input did not keep the storage alive."
    ),
    sound=SmallDocument(
        text="x = host.write; a = f x; y = identity! a; u = use a; w = use2 y u; host.read w", slots="a=0 y=64"
    ),
    place="belief",
    change={"slots": "a=0 y=0", "share": "a>y"},
    expected=(("C03", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "BadShare", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A count of readers for each storage, compared with a replay.",
)
