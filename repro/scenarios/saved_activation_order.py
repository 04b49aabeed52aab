"""A saved activation is changed while another stream may still reduce it."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="saved-activation-order",
    title="a saved activation is changed while another stream may still reduce it",
    source="https://github.com/nntile/nntile/pull/371",
    story=(
        "A kernel changes a saved activation in place that a reduction reads. The two are right "
        "in the order in which they were registered, and nothing else orders them."
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
    caught="All legal orders instead of the one that is run.",
    reasons={
        "S": ("S replays the order of the list, in which nothing is wrong; the other orders are H's, which reports it"),
        "class": (
            "the program itself leaves the order open, under every plan: a wait is missing, which is the schedule's"
        ),
    },
)
