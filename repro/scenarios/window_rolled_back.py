"""Speculative tokens are rolled back, and the window slides back over a freed block."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="window-rolled-back",
    title="speculative tokens are rolled back, and the window slides back over a freed block",
    source="https://github.com/vllm-project/vllm/issues/47728",
    story=(
        "The first block of a window is freed by the count of tokens with the drafts in it. The "
        "drafts are rejected, the window lies further back again, and attention reads a block "
        "that the next tokens have taken. Cure: free the block by the count of accepted tokens, after "
        "verify has ended. Rebuilt from the class of fault that the report names; the pool of the "
        "report itself is not run here."
    ),
    sound=SmallDocument(
        text="x = host.write; k = put x; d = draft k; v = verify d; n = put v; y = attend k n; host.read y",
        slots="x=0 k=64 d=128 v=0 n=192 y=256",
    ),
    place="belief",
    change={"slots": "x=0 k=64 d=128 v=0 n=64 y=256", "believed": {"k": (1, 3)}},
    expected=(("C01", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "LifetimeTooShort", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A replay with the tokens that were accepted: the reader of the block comes after its free.",
)
