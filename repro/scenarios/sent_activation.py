"""An activation is freed while it is still being sent to the next stage."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="sent-activation",
    title="an activation is freed while it is still being sent to the next stage",
    source="https://github.com/NVIDIA/Megatron-LM/pull/4047",
    story=(
        "A pipeline stage sends the activation of a microbatch on its own stream (1) and continues. The memory is "
        "freed before the stage has waited for the send, so the activation of the next microbatch overwrites the bytes "
        "that are being sent. The next stage gets wrong numbers, and NaN in a large run."
    ),
    sound=SmallDocument(
        text=(
            "x = host.write; y = host.write; a = forward x; s = send a ~1 ^2; b = forward y ^3; "
            "t = send b ~1 ^4; host.read s t ^5"
        ),
        slots="x=0 y=64 a=128 s=192 b=128 t=256",
    ),
    place="placement",
    change={
        "text": (
            "x = host.write; y = host.write; a = forward x; s = send a ~1 ^2; b = forward y; "
            "t = send b ~1 ^4; host.read s t ^5"
        )
    },
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught=(
        "A happens-before check over the streams: the next forward pass does not wait for the send that reads the "
        "block. The project found the bug only in runs of a model with 405 billion parameters."
    ),
)
