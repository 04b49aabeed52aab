"""The source of a copy on a side stream is freed and reused."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="side-stream-copy",
    title="the source of a copy on a side stream is freed and reused",
    source="https://github.com/meta-pytorch/torchrec/pull/4231",
    story=(
        "A tensor is copied on a side stream, and its storage is freed at once, without record_stream. The main stream "
        "overwrites the storage while the copy still reads it."
    ),
    sound=SmallDocument(
        text="x = host.write; a = f x; d = copy a ~1 ^1; b = g x ^2; o = h b d ^2; host.read o",
        slots="a=0 b=0 x=64 d=128 o=192",
    ),
    place="placement",
    change={"text": "x = host.write; a = f x; d = copy a ~1 ^1; b = g x; o = h b d ^2; host.read o"},
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught="A happens-before check over the streams, or a run that fills memory with poison when it is freed.",
)
