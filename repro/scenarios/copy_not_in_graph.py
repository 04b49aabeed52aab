"""A copy into a view is not part of the graph."""

from repro import Role, SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="copy-not-in-graph",
    title="a copy into a view is not part of the graph",
    source="https://github.com/ggml-org/ggml/issues/1131",
    story=(
        "The copy into a view of h cannot be reached from the result, so it is not in the graph. The op that reads h "
        "reads bytes that no op has written."
    ),
    sound=SmallDocument(
        text="d = host.write; c:h = cpy d; y = f w:h; host.read y", slots="h=0 d=64", roles={"h": Role.TEMPORARY}
    ),
    place="caller",
    change={"text": "d = host.write; y = f w:h; host.read y"},
    expected=(("C14", "caller"),),
    reports={"S": "UninitialisedRead", "P": "UninitialisedRead"},
    not_run="H R",
    caught="A shadow memory of the bytes written: the first read of h finds no writer.",
)
