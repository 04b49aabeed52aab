"""A subgraph takes its parent's list of donated inputs for its own."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="inherited-donation",
    title="a subgraph takes its parent's list of donated inputs for its own",
    source="https://github.com/pytorch/pytorch/pull/192840",
    story=(
        "A backward graph may write over the inputs that are donated to it; a list names them by "
        "number. Subgraphs inherited the list, though their inputs are numbered in another way, so a "
        "saved tensor that was never donated counted as such. The backward of a region that is used "
        "twice then wrote its result over it in the first call, and the second call read that: "
        "gradients were silently wrong."
    ),
    sound=SmallDocument(
        text="s = host.write; t = host.write; @region/1 g = mul! s t; @region/2 h = mul! s t; d = add g h; host.read d",
        slots="s=0 t=64 g=128 h=192 d=256",
    ),
    place="belief",
    change={"slots": "s=0 t=64 g=0 h=192 d=256", "share": "s>g"},
    expected=(("C03", "plan"),),
    reports={"S": "StaleRead Overlap", "L": "BadShare", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A check of the pair at each call: the donor is read by the second call.",
    reasons={
        "class": (
            "no input was handed over, the subgraph only took it for one; what is left is an op in place over a "
            "value with a second reader, and what mends it is the pair"
        )
    },
)
