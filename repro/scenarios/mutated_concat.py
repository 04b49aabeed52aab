"""A slice of a concatenation is read after the concatenation was changed."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="mutated-concat",
    title="a slice of a concatenation is read after the concatenation was changed",
    source="https://github.com/pytorch/pytorch/pull/178032",
    story=(
        "A pass made the operands of a concatenation views of its result, and the result was changed later. A read of "
        "an operand then finds the changed value."
    ),
    sound=SmallDocument(text="x = host.write; c = cat x x; n:c = put! c; u = use n; host.read u", slots="c=0 u=64"),
    place="caller",
    change={"text": "x = host.write; c = cat x x; n:c = put! c; u = use c; host.read u"},
    expected=(("program", "caller"),),
    reports={"S": "OverwrittenRead", "P": "OverwrittenRead"},
    not_run="H R",
    caught="A replay by value: the read expects the version from before the mutation.",
    reasons={
        "class": (
            "the read finds the changed value under every plan; the program that the pass made is wrong, not its plan"
        )
    },
)
