"""A kernel that now runs in place does not declare that its result is its operand."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="fallback-alias",
    title="a kernel that now runs in place does not declare that its result is its operand",
    source="https://github.com/pytorch/pytorch/pull/189735",
    story=(
        "A fallback kernel was changed to its in-place form, but its result was not recorded as an alias of operand 0. "
        "The planner believes that the operand is dead after the call, so the next buffer takes its memory while the "
        "result is still to be read. The random numbers of the kernel were wrong."
    ),
    sound=SmallDocument(
        text="x = host.write; a = f x; b:a = rand_! a; y:a = view b; t = g x; o = add y t; host.read o",
        slots="x=0 a=64 t=128 o=192",
    ),
    place="belief",
    change={"slots": "x=0 a=64 t=64 o=192", "believed": {"a": (1, 3)}},
    expected=(("C02", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A replay by storage: a read of the result is a read of the operand's bytes.",
)
