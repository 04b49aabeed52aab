"""The result of an encoder is in memory that the decoder's plan reuses."""

from repro import Role, SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="encoder-result",
    title="the result of an encoder is in memory that the decoder's plan reuses",
    source="https://github.com/ggml-org/whisper.cpp/pull/1964",
    story=(
        "The result of the encoder is kept for the graphs of the decoder. The plan of the decoder reuses the memory of "
        "that result."
    ),
    sound=SmallDocument(
        text="x = host.write; r:e = enc x; host.read r",
        slots="e=0 x=64",
        roles={"e": Role.STATE},
        others={
            "decode": SmallDocument(
                text="q = host.write; t = f q; y = dec t e; host.read y",
                slots="e=0 q=64 t=128 y=192",
                roles={"e": Role.STATE},
            )
        },
        order="p decode",
    ),
    place="placement",
    change={
        "others": {
            "decode": SmallDocument(
                text="q = host.write; t = f q; y = dec t e; host.read y",
                slots="e=0 q=64 t=0 y=192",
                roles={"e": Role.STATE},
            )
        }
    },
    expected=(("C07", "plan"),),
    reports={"S": "StaleRead Overlap LifetimeIgnored", "R": "StaleRead Overlap"},
    not_run="H P D K",
    caught="One session with both graphs: the state is written in one run and read in the next.",
    reasons={"P": "two programs run over one memory, and the sanitized runtime can run only one of them"},
)
