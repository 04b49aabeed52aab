"""One of two readers is forgotten."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="dropped-reader",
    title="one of two readers is forgotten",
    source="https://github.com/ggml-org/ggml/issues/1501",
    story=(
        "The planner walks the graph and misses one edge, so it believes that a is dead after "
        "its first reader. Another value takes the bytes, and the second reader gets that one's "
        "numbers. This is what ggml 1501 was reported as; in every rebuild of it the kernel was "
        "the culprit."
    ),
    sound=SmallDocument(text="x = host.write; a = f x; b = g x; c = h b a; host.read c", slots="x=0 a=64 b=128 c=0"),
    place="belief",
    change={"slots": "x=0 a=64 b=64 c=0", "believed": {"a": (1, 2)}},
    expected=(("C01", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught=(
        "A replay of the finished plan against the graph, run on every plan in the tests: it "
        "names a, who took its bytes and who read them late."
    ),
)
