"""Gathered weights are freed while a layer still computes with them."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="freed-gathered-weights",
    title="gathered weights are freed while a layer still computes with them",
    source="https://github.com/NVIDIA/Megatron-LM/issues/5788",
    story=(
        "The weights of a layer are gathered on the communication stream (1) and used on the compute stream. The "
        "weights are freed without record_stream, so the next gather takes their block as soon as the communication "
        "stream is free. The reporter withdrew the report: in that project the communication stream waits for the "
        "compute stream before each gather. The twin has this wait."
    ),
    sound=SmallDocument(
        text=(
            "x = host.write; p = host.write; q = host.write; w0 = all_gather p ~1 ^1; "
            "y = layer x w0 ^3; w1 = all_gather q ~1 ^2 ^4; z = layer2 y w1 ^5; host.read z"
        ),
        slots="x=0 p=64 q=128 w0=192 y=256 w1=192 z=0",
    ),
    place="placement",
    change={
        "text": (
            "x = host.write; p = host.write; q = host.write; w0 = all_gather p ~1 ^1; "
            "y = layer x w0 ^3; w1 = all_gather q ~1 ^2; z = layer2 y w1 ^5; host.read z"
        )
    },
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught="A happens-before check over the streams: the next gather does not wait for the layer that reads the block.",
)
