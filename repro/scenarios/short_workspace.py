"""A slot has half the bytes of its buffer."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="short-workspace",
    title="a slot has half the bytes of its buffer",
    source="https://github.com/ggml-org/llama.cpp/pull/15760",
    story=(
        "The rank of a scratch tensor was computed wrongly, so the workspace of a norm is smaller than the bytes that "
        "the norm writes."
    ),
    sound=SmallDocument(text="x = host.write; a = f x; b = g x; c = h b a; host.read c", slots="a=0 b=64"),
    place="size",
    change={"short": "a"},
    expected=(("C12", "plan"),),
    reports={"S": "Undersized"},
    not_run="H R",
    caught="A comparison of the size of each slot with the size of its buffer, when the plan is made.",
)
