"""A page is unmapped while a kernel still uses it."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="unmapped-page",
    title="a page is unmapped while a kernel still uses it",
    source="https://github.com/ovg-project/kvcached/issues/463",
    story=(
        "When the last block of a page is freed, the page is at once unmapped and given to another model. The kernels "
        "of that model, on their own stream (1), write the page while a kernel of the first model reads it. Cure: "
        "unmap the page after all kernels launched before have ended. This scenario reproduces the class of fault of "
        "the report; the memory pool of the report itself is not run."
    ),
    sound=SmallDocument(
        text="x = host.write; q = host.write; k = put x; y = attend k; z = attend2 k; m = other q ~1 ^1 ^4; r = mine y z; w = theirs m ~1; host.read r; host.read w ^7",
        slots="x=0 q=64 k=128 y=192 z=256 m=128 r=320 w=384",
    ),
    place="placement",
    change={
        "text": "x = host.write; q = host.write; k = put x; y = attend k; z = attend2 k; m = other q ~1 ^1 ^3; r = mine y z; w = theirs m ~1; host.read r; host.read w ^7"
    },
    expected=(("C09", "plan"),),
    reports={"H": "Race"},
    not_run="R",
    caught="A happens-before check in which the unmapping counts as a write of the page by its next owner.",
)
