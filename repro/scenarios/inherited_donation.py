"""A subgraph uses its parent's list of donated inputs as its own."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="inherited-donation",
    title="a subgraph uses its parent's list of donated inputs as its own",
    source="https://github.com/pytorch/pytorch/pull/192840",
    story=(
        "A backward graph may overwrite the inputs that are donated to it; a list has their numbers. Subgraphs "
        "inherited the list, although their inputs are numbered differently. So a saved tensor that "
        "was never donated counted as donated. The backward of a region that is used twice overwrote the tensor with "
        "its result in the first call, and the second call read that result. Gradients were silently wrong."
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
            "no input was donated, the subgraph only assumed so; the fault that remains is an in-place op over a value "
            "with a second reader, and removing the pair mends it"
        )
    },
)
