"""An activation is freed while it is still being sent to the next stage."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="sent-activation",
    title="an activation is freed while it is still being sent to the next stage",
    source="https://github.com/NVIDIA/Megatron-LM/pull/4047",
    story=(
        "A stage of a pipeline sends the activation of a microbatch on a stream of its own (1) and "
        "goes on. Its memory is freed before the send was waited for, so the activation of the next "
        "microbatch is written over what is being sent; the next stage gets wrong numbers, in a "
        "large run NaN."
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
        "Happens-before over the streams: the next forward pass does not wait for the send that "
        "reads the block. The project found it in runs of 405 billion parameters alone."
    ),
)
