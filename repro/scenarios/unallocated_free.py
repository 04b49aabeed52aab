"""A buffer that was never allocated is freed."""

from repro import SmallScenario
from repro.scenarios import double_free

SCENARIO = SmallScenario(
    name="unallocated-free",
    title="a buffer that was never allocated is freed",
    source="https://github.com/microsoft/nnfusion/issues/61",
    story=(
        "Fusion and the memory allocator count references differently, and a check of the counts failed at a bad free. "
        "Here a buffer is freed that was never allocated."
    ),
    sound=double_free.SCENARIO.sound,
    place="placement",
    change={"events": "0+x 1-x 2+b 2-a 3+c 4+d 4-b 5+e 5-c 5-d 6-e"},
    expected=(("C13", "plan"),),
    reports={"S": "FreeOfUnallocated"},
    not_run="H R",
    caught="A replay of allocations and frees, on the log of a real run.",
)
