"""A state is placed where a temporary is placed as well."""

from repro import Role, SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="expert-cache",
    title="a state is placed where a temporary is placed as well",
    source="https://github.com/ggml-org/llama.cpp/pull/23170",
    story=(
        "A cache of expert weights lies in the scheduler's temporary memory. The next computation "
        "takes it while the cache says that it is valid."
    ),
    sound=SmallDocument(
        text="x = host.write; a = f x; b = g a s; host.read b", slots="s=0 a=64 b=128", roles={"s": Role.STATE}
    ),
    place="placement",
    change={"slots": "s=0 a=0 b=64"},
    expected=(("C07", "plan"),),
    reports={"S": "StaleRead Overlap LifetimeIgnored", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check that nothing in a plan lies on a state.",
)
