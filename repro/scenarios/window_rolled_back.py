"""Speculative tokens are rejected, and the window moves back over a block that was freed."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="window-rolled-back",
    title="speculative tokens are rejected, and the window moves back over a block that was freed",
    source="https://github.com/vllm-project/vllm/issues/47728",
    story=(
        "The first block of a window is freed by a count of tokens that includes the drafts. The drafts are rejected, "
        "so the window moves back, and attention reads a block that the next tokens have taken. Cure: free the block "
        "by the count of accepted tokens, after the verification has ended. This scenario reproduces the class of "
        "fault of the report; the memory pool of the report itself is not run."
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
    caught="A replay with the accepted tokens: the reader of the block comes after its free.",
)
