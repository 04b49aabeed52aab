"""The planner does not see a use through an address."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="address-of",
    title="the planner does not see a use through an address",
    source="https://github.com/apache/tvm/issues/13976",
    story=(
        "StorageRewrite looked for uses in index expressions only. A scratch buffer whose address was passed to an "
        "external call had no use there. So the bytes of the buffer went to the next buffer while the call still "
        "needed them."
    ),
    sound=SmallDocument(
        text="x = host.write; a = fill x; n = call a; b = fill2 n; m = call a; c = h m b; host.read c",
        slots="a=0 b=64 x=128 n=192 m=128",
    ),
    place="belief",
    change={"slots": "a=0 b=0", "believed": {"a": (1, 3)}},
    expected=(("C01", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught=(
        "A static check that counts every operand of a call as a read: the second call reads bytes that the second "
        "fill wrote."
    ),
)
