"""A tied operand is read after the call that overwrites it."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="tied-operand",
    title="a tied operand is read after the call that overwrites it",
    source="https://github.com/iree-org/iree/issues/13003",
    story=(
        "A call ties its result to an operand: the bytes of the operand become the result. If the operand is read "
        "again, a copy of it is needed. A pass removed the copy."
    ),
    sound=SmallDocument(text="x = host.write; e = empty x; p = fill! e; q = g p e; host.read q", slots="e=0 p=64"),
    place="belief",
    change={"slots": "e=0 p=0", "share": "e>p"},
    expected=(("C03", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "BadShare", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A replay of the plan after the pass that removes copies.",
)
