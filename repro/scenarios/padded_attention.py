"""Attention reads the padding after the rows that were written."""

from repro import Role, SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="padded-attention",
    title="attention reads the padding after the rows that were written",
    source="https://github.com/ggml-org/whisper.cpp/pull/3941",
    story=(
        "Keys and values are written for n rows, but read for n rounded up to 256 rows, without a mask. The bytes "
        "after the n rows are those of earlier requests."
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
    caught="A shadow memory of the bytes written in this run. Or a second request that gets a different answer.",
    reasons={"R": "the first run is already wrong; R reports only faults that a later run shows first"},
)
