"""The planner misses one of two readers of a value."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="dropped-reader",
    title="the planner misses one of two readers of a value",
    source="https://github.com/ggml-org/ggml/issues/1501",
    story=(
        "The planner walks the graph and misses one edge, so it believes that a is dead after its first reader. "
        "Another value takes the bytes of a, and the second reader reads the numbers of that value. ggml 1501 was "
        "reported as this bug, but in every reproduction of it the kernel was at fault."
    ),
    sound=SmallDocument(text="x = host.write; a = f x; b = g x; c = h b a; host.read c", slots="x=0 a=64 b=128 c=0"),
    place="belief",
    change={"slots": "x=0 a=64 b=64 c=0", "believed": {"a": (1, 2)}},
    expected=(("C01", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught=(
        "A replay of the finished plan against the graph, for every plan in the tests: the replay names a, the value "
        "that took the bytes of a, and the late reader."
    ),
)
