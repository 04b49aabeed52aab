"""A slot has half the bytes of its buffer."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="short-workspace",
    title="a slot has half the bytes of its buffer",
    source="https://github.com/ggml-org/llama.cpp/pull/15760",
    story=(
        "The rank of a scratch tensor was taken wrongly, and the workspace that a norm was given "
        "is smaller than what it writes."
    ),
    sound=SmallDocument(text="x = host.write; a = f x; b = g x; c = h b a; host.read c", slots="a=0 b=64"),
    place="size",
    change={"short": "a"},
    expected=(("C12", "plan"),),
    reports={"S": "Undersized"},
    not_run="H R",
    caught="The size of each slot compared with that of its buffer, when the plan is made.",
)
