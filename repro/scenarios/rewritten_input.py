"""The host rewrites an input that is still being read."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="rewritten-input",
    title="the host rewrites an input that is still being read",
    source="https://github.com/ggml-org/llama.cpp/pull/25863",
    story="The host writes the next tokens into the input while the device still reads the last tokens.",
    sound=SmallDocument(
        text="x = host.write; y = f x ~1 ^0; n:x = host.write ^1; z = g n; host.read z; host.read y ^1",
        slots="x=0 y=64 z=128",
    ),
    place="schedule",
    change={"text": "x = host.write; y = f x ~1 ^0; n:x = host.write; z = g n; host.read z; host.read y ^1"},
    expected=(("C09", "schedule"),),
    reports={"H": "Race"},
    not_run="R P D K",
    caught="A schedule in which the host's writes are ops: no wait orders the read before the write.",
)
