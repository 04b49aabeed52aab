"""A pipelined loop starts the copy into a buffer before the buffer is read."""

from repro import SmallDocument, SmallScenario

READ = (
    "x = host.write; y = host.write; a = load x; s = use a; n:a = copy y ~1 ^{}; t = use2 n ^4; "
    "z = join s t; host.read z"
)

SCENARIO = SmallScenario(
    name="copy-before-read",
    title="a pipelined loop starts the copy into a buffer before the buffer is read",
    source="https://github.com/tile-ai/tilelang/issues/2668",
    story=(
        "The body of a loop reads a buffer in shared memory, and then copies the next values into it. With two or more "
        "stages, the asynchronous copy (stream 1) starts before the read, and the copy does not wait for the read of "
        "the iteration before. The read then sees values of the next iteration. Without pipelining the loop is right."
    ),
    sound=SmallDocument(text=READ.format(3), slots="x=0 y=64 a=128 s=192 t=256 z=320"),
    place="schedule",
    change={"text": READ.format(2)},
    expected=(("C09", "schedule"),),
    reports={"H": "Race"},
    not_run="R",
    caught="A happens-before check over the copies: no wait orders the read before the copy that overwrites its bytes.",
    reasons={
        "S": "S replays the order of the list, in which nothing is wrong; H examines other orders and reports the race",
        "class": "the program leaves the order open under every plan; the missing wait is a fault of the schedule",
    },
)
