"""A state shares its slot with a temporary."""

from repro import Role, SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="expert-cache",
    title="a state shares its slot with a temporary",
    source="https://github.com/ggml-org/llama.cpp/pull/23170",
    story=(
        "A cache of expert weights is in the temporary memory of the scheduler. The next computation overwrites this "
        "memory, while the cache is still marked valid."
    ),
    sound=SmallDocument(
        text="x = host.write; a = f x; b = g a s; host.read b", slots="s=0 a=64 b=128", roles={"s": Role.STATE}
    ),
    place="placement",
    change={"slots": "s=0 a=0 b=64"},
    expected=(("C07", "plan"),),
    reports={"S": "StaleRead Overlap LifetimeIgnored", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check that no buffer of a plan overlaps a state.",
)
