"""An application expects an input to keep its bytes from run to run."""

from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="features-in-input",
    title="an application expects an input to keep its bytes from run to run",
    source="https://github.com/tensorflow/tensorflow/issues/35117",
    story=(
        "The application writes its input once, and expects the input to have the same bytes in the next invocation. "
        "But the input is in the arena, where later ops write their results."
    ),
    sound=SmallDocument(
        text="f = host.write; a = one f; b = two a; host.read b", slots="f=0 a=64 b=0", runs=((), (), ())
    ),
    place="caller",
    change={"runs": ((), (0,), (0,))},
    expected=(("C06", "caller"),),
    reports={"S": "StaleRead HistoryRead", "R": "StaleRead", "P": "StaleRead", "D": "operand"},
    not_run="H",
    caught="A session of three runs: the first run is right, and the second run reads bytes that the first run left.",
)
