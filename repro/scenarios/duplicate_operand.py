"""X + x runs in place although x is read again."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="duplicate-operand",
    title="x + x runs in place although x is read again",
    source="https://github.com/libxsmm/tpp-mlir/pull/588",
    story=(
        "An op that reads the same value twice was assumed to have no conflict with itself, so y = x + x ran in place "
        "over x. Then z = y + x reads y instead of x."
    ),
    sound=SmallDocument(text="x = host.write; a = f x; y = add!01 a a; z = mul y a; host.read z", slots="a=0 y=64"),
    place="belief",
    change={"slots": "a=0 y=0", "share": "a>y"},
    expected=(("C03", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "BadShare", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check of each in-place pair that looks for later reads of the operand through any of its names.",
)
