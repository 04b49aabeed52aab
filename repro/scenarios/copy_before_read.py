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
        "The body of a loop reads a buffer of shared memory and then copies the next values into "
        "it. With two stages or more the copy, which runs by itself (stream 1), is started ahead "
        "of the read, and the read does not wait for the turn before: it sees what the next turn "
        "is to have. The loop is right where it is not pipelined."
    ),
    sound=SmallDocument(text=READ.format(3), slots="x=0 y=64 a=128 s=192 t=256 z=320"),
    place="schedule",
    change={"text": READ.format(2)},
    expected=(("C09", "schedule"),),
    reports={"H": "Race"},
    not_run="R",
    caught="Happens-before over the copies: nothing orders the read before the copy that takes its bytes.",
    reasons={
        "S": ("S replays the order of the list, in which nothing is wrong; the other orders are H's, which reports it"),
        "class": (
            "the program itself leaves the order open, under every plan: a wait is missing, which is the schedule's"
        ),
    },
)
