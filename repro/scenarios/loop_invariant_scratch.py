"""A buffer that a loop reads dies in its first iteration."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="loop-invariant-scratch",
    title="a buffer that a loop reads dies in its first iteration",
    source="https://github.com/hw-native-sys/PTOAS/pull/913",
    story=(
        "A buffer that is filled before a loop is read in each iteration. The planner ended the life of the buffer at "
        "the last use inside the body. A scratch buffer that is allocated later in the same iteration takes its bytes, "
        "so the second iteration reads scratch."
    ),
    sound=SmallDocument(
        text="x = host.write; a = f x; s = use a; u = keep s; t = use a; v = keep2 u t; host.read v",
        slots="a=0 s=64 u=128 t=64",
    ),
    place="belief",
    change={"slots": "a=0 u=0", "believed": {"a": (1, 3)}},
    expected=(("C01", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught=(
        "A comparison of the believed lifetimes with those of the unrolled loop: a buffer that is read in each "
        "iteration lives to the end of the last iteration."
    ),
)
