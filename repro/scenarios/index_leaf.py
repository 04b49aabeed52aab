"""An index leaf is freed between the forward and the backward pass."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="index-leaf",
    title="an index leaf is freed between the forward and the backward pass",
    source="https://github.com/matz/spinel/issues/1449",
    story=(
        "The forward lookup reads the token ids, and the backward lookup reads them again. In a plan over the forward "
        "pass only, the ids are dead after the first lookup, and the loss takes their slot. The backward lookup then "
        "reads a loss as an index."
    ),
    sound=SmallDocument(
        text="i = host.write; h = rows i; loss = ce h; g = rows_back loss i; host.read g",
        slots="i=0 h=64 loss=128 g=64",
    ),
    place="belief",
    change={"slots": "i=0 loss=0", "believed": {"i": (0, 2)}},
    expected=(("C06", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught=(
        "One plan and one check for the forward and the backward pass together. An address sanitizer saw nothing, as "
        "the arena is one allocation."
    ),
    reasons={"R": "there is only one run, and R reports only faults that a later run shows first"},
)
