"""Attention reads the padding behind the rows written."""

from repro import Role, SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="padded-attention",
    title="attention reads the padding behind the rows written",
    source="https://github.com/ggml-org/whisper.cpp/pull/3941",
    story=(
        "Keys and values are written for n rows and read for n rounded up to 256, without a mask. "
        "What is behind the rows comes from earlier requests."
    ),
    sound=SmallDocument(
        text="n = host.write; k:kv[8] = put n; y = attn w:kv[8]; host.read y",
        slots="kv=0 n=64 y=128",
        roles={"kv": Role.TEMPORARY},
        runs=((), ()),
    ),
    place="caller",
    change={"text": "n = host.write; k:kv[4] = put n; y = attn w:kv[8]; host.read y"},
    expected=(("C14", "caller"),),
    reports={"S": "UninitialisedRead", "P": "UninitialisedRead"},
    not_run="H",
    caught=("A shadow of the bytes written in this run; or a second request that answers differently from the first."),
    reasons={
        "R": (
            "it is wrong in every run alike, and R reports what only a later run shows; the first run "
            "has already told it"
        )
    },
)
