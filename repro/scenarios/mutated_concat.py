"""A slice of a concatenation is read after the concatenation was changed."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="mutated-concat",
    title="a slice of a concatenation is read after the concatenation was changed",
    source="https://github.com/pytorch/pytorch/pull/178032",
    story=(
        "The operands of a concatenation were made views of its result, and the result was "
        "changed later. What is read as the operand is the changed value."
    ),
    sound=SmallDocument(text="x = host.write; c = cat x x; n:c = put! c; u = use n; host.read u", slots="c=0 u=64"),
    place="caller",
    change={"text": "x = host.write; c = cat x x; n:c = put! c; u = use c; host.read u"},
    expected=(("program", "caller"),),
    reports={"S": "OverwrittenRead", "P": "OverwrittenRead"},
    not_run="H R",
    caught="A replay by value: the read wants the version before the mutation.",
    reasons={
        "class": (
            "what is read is the changed value under every plan: it is the program that the pass "
            "made, and no plan of it"
        )
    },
)
