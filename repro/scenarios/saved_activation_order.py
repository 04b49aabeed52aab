"""A saved activation is changed while another stream may still reduce it."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="saved-activation-order",
    title="a saved activation is changed while another stream may still reduce it",
    source="https://github.com/nntile/nntile/pull/371",
    story=(
        "A kernel changes a saved activation in place, and a reduction reads the same activation. The result is right "
        "in the order in which the two were registered, but nothing enforces that order."
    ),
    sound=SmallDocument(
        text=("x = host.write; s = f x; g = reduce s x ~1 ^1; d:s = mul! s x ^2; o = add d g ^2; host.read o"),
        slots="x=0 s=64 g=128 o=192",
    ),
    place="schedule",
    change={"text": "x = host.write; s = f x; g = reduce s x ~1 ^1; d:s = mul! s x; o = add d g ^2; host.read o"},
    expected=(("C09", "schedule"),),
    reports={"H": "Race"},
    not_run="R",
    caught="A check of all legal orders instead of the order that ran.",
    reasons={
        "S": "S replays the order of the list, in which nothing is wrong; H examines other orders and reports the race",
        "class": "the program leaves the order open under every plan; the missing wait is a fault of the schedule",
    },
)
