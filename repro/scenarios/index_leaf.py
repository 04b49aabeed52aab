"""An index leaf is freed between the forward and the backward pass."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="index-leaf",
    title="an index leaf is freed between the forward and the backward pass",
    source="https://github.com/matz/spinel/issues/1449",
    story=(
        "The token ids are read by the forward lookup and once more by the backward one. Planned "
        "over the forward pass they are dead after the first, and the loss takes their slot; the "
        "backward lookup reads a loss as an index."
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
        "One plan and one check over forward and backward. An address sanitizer saw nothing: the "
        "arena is one allocation."
    ),
    reasons={
        "R": (
            "one run: it is wrong in every run alike, and R reports what only a later run shows; the "
            "first run has already told it"
        )
    },
)
