"""Two updates of one fusion share a result slot."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="fusion-slot",
    title="two updates of one fusion share a result slot",
    source="https://github.com/jax-ml/jax/issues/39100",
    story=(
        "A fusion with two in-place updates wrote both results to one slot. The sum of the results is then twice the "
        "second result."
    ),
    sound=SmallDocument(text="z = host.write; t1 t2 = dus z; o = add t1 t2; host.read o", slots="t1=0 t2=64"),
    place="placement",
    change={"slots": "t1=0 t2=0"},
    expected=(("C11", "plan"),),
    reports={"S": "ResultsOverlap Overlap StaleRead LifetimeIgnored", "P": "StaleRead", "D": "operand result"},
    not_run="H R",
    caught="A check that two results of one op never overlap.",
)
