"""A slot is reused while its copy to the host is pending."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="pending-host-copy",
    title="a slot is reused while its copy to the host is pending",
    source="https://github.com/ggml-org/llama.cpp/issues/27572",
    story="A result is copied to the host asynchronously. The next batch overwrites its slot before the copy is done.",
    sound=SmallDocument(
        text="x = host.write; t = f x; d = copy t ~1 ^1; n = g x ^2; o = h n d ^2; host.read o",
        slots="x=64 t=0 n=0 d=0 o=128",
        gpu="d",
    ),
    place="schedule",
    change={"text": "x = host.write; t = f x; d = copy t ~1 ^1; n = g x; o = h n d ^2; host.read o"},
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught="A happens-before check in which the copy is an op on its own stream.",
)
