"""A tied operand is read after the tied call."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="tied-operand",
    title="a tied operand is read after the tied call",
    source="https://github.com/iree-org/iree/issues/13003",
    story=(
        "A call ties its result to an operand: the operand's bytes become the result. The copy "
        "that is needed where the operand is read again was elided."
    ),
    sound=SmallDocument(text="x = host.write; e = empty x; p = fill! e; q = g p e; host.read q", slots="e=0 p=64"),
    place="belief",
    change={"slots": "e=0 p=0", "share": "e>p"},
    expected=(("C03", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "BadShare", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="The replay of the plan, run behind the pass that elides copies.",
)
