"""A donated buffer is also passed as another argument."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="donated-twice",
    title="a donated buffer is also passed as another argument",
    source="https://github.com/jax-ml/jax/issues/9635",
    story="The caller donates a buffer that it also passes as another argument.",
    sound=SmallDocument(text="a = host.write; b = host.write; c = f a b; host.read c", slots="a=0 b=64"),
    place="placement",
    change={"slots": "a=0 b=0"},
    expected=(("C11", "plan"),),
    reports={"S": "StaleRead Overlap LifetimeIgnored", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check that two inputs of one call do not share bytes.",
)
