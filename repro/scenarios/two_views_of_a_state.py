"""A state is read through one view while it may still be written through another."""

from repro import Role, SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="two-views-of-a-state",
    title="a state is read through one view while it may still be written through another",
    source="https://github.com/ggml-org/llama.cpp/pull/27812",
    story=(
        "A pass of the Vulkan backend reorders the nodes of a graph. If one node writes through a view and another "
        "node reads through a second view, the pass checks whether one is a view of the other. The pass does not check "
        "whether both are views of one tensor. The state is then read too early. The output differs on every start, "
        "without a message in the log."
    ),
    sound=SmallDocument(
        text=("x = host.write; u:s = view s; w:s = put! u x; v:s = view w; y = f v x ~1 ^2; o = g y x ^4; host.read o"),
        slots="s=0 x=64 y=128 o=192",
        roles={"s": Role.STATE},
    ),
    place="schedule",
    change={
        "text": (
            "x = host.write; u:s = view s; w:s = put! u x; v:s = view w; y = f v x ~1 ^0; o = g y x ^4; host.read o"
        )
    },
    expected=(("C09", "schedule"),),
    reports={"H": "Race"},
    not_run="R",
    caught="A check of the order of accesses to the same bytes, through whatever view.",
)
