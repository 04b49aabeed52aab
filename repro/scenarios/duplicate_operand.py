"""X + x runs in place although x is read again."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="duplicate-operand",
    title="x + x runs in place although x is read again",
    source="https://github.com/libxsmm/tpp-mlir/pull/588",
    story=(
        "An op that reads the same value twice was taken to have no conflict with itself, so y = "
        "x + x went in place. z = y + x then reads y for x."
    ),
    sound=SmallDocument(text="x = host.write; a = f x; y = add!01 a a; z = mul y a; host.read z", slots="a=0 y=64"),
    place="belief",
    change={"slots": "a=0 y=0", "share": "a>y"},
    expected=(("C03", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "BadShare", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught=("A check that asks for each in-place pair whether the operand is read later, by whatever name."),
)
