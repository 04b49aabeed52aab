"""An application keeps features in an input."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="features-in-input",
    title="an application keeps features in an input",
    source="https://github.com/tensorflow/tensorflow/issues/35117",
    story=(
        "The application writes its input once and expects it to be there in the next invocation. "
        "The input's memory is the arena's, and op results go there."
    ),
    sound=SmallDocument(
        text="f = host.write; a = one f; b = two a; host.read b", slots="f=0 a=64 b=0", runs=((), (), ())
    ),
    place="caller",
    change={"runs": ((), (0,), (0,))},
    expected=(("C06", "caller"),),
    reports={"S": "StaleRead HistoryRead", "R": "StaleRead", "P": "StaleRead", "D": "operand"},
    not_run="H",
    caught="A session of three runs: the first is right, the second reads what the first left.",
)
