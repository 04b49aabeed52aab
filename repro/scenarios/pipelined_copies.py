"""The fifth run overwrites the first of four copies without waiting for its event."""

from repro import SmallDocument, SmallScenario

COPIED = (
    "x0 = host.write; x1 = host.write; x2 = host.write; x3 = host.write; x4 = host.write; "
    "c0 = copy x0; y0 = f0 c0 ~1 ^5; c1 = copy x1; y1 = f1 c1 ~1 ^7; c2 = copy x2; y2 = f2 c2 ~1 ^9; "
    "c3 = copy x3; y3 = f3 c3 ~1 ^11; c4 = copy x4{}; y4 = f4 c4 ~1 ^13; "
    "o = sum y0 y1 y2 y3 y4 ~1; host.read o ^15"
)

SCENARIO = SmallScenario(
    name="pipelined-copies",
    title="the fifth run overwrites the first of four copies without waiting for its event",
    source="https://github.com/ggml-org/llama.cpp/pull/20463",
    story=(
        "A pipelined scheduler keeps four copies of the data that go from one backend to another, one for each run in "
        "flight. The second backend (stream 1) records an event after each split. After copies were made asynchronous, "
        "the fifth run copies into the bytes of the first copy before the event of the split that reads them. This "
        "scenario reproduces the class of fault: two CPU backends cannot show it, because their calls are synchronous."
    ),
    sound=SmallDocument(text=COPIED.format(" ^6"), slots="c0=0 c1=64 c2=128 c3=192 c4=0"),
    place="schedule",
    change={"text": COPIED.format("")},
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught="A happens-before check over the backends. The fault shows only four runs later, and then not in every run.",
)
