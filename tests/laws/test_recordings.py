"""A recording judged in windows says what its whole document says, wherever the windows end."""

import random

import pytest
from online_allocators import BROKEN, SOUND

from allocsim import check
from allocsim.online import Judge, drawn, trace_of
from allocsim.programs.allocator_trace import trace
from allocsim.recordings import judge
from allocsim.verdict.causes import causes_of

MAKES = [*SOUND.values(), *(make for make, _ in BROKEN.values())]
WINDOWS = (1, 3, 7, 20, 1 << 20)


def recording(seed: int, index: int):
    """Events of a sound or a broken allocator, one in two with a wait or a few uses left out."""
    pick = random.Random(f"{seed}/{index}")
    judged = Judge(make=pick.choice(MAKES))
    events = trace_of(judged, drawn(seed, index, judged.abilities()))
    if pick.random() < 0.6:
        able = [
            at for at, event in enumerate(events)
            if event["event"] in {"wait", "done", "record_stream"} or (event["event"] == "use" and pick.random() < 0.1)
        ]  # fmt: skip
        gone = set(pick.sample(able, min(len(able), pick.choice((1, 1, 2)))))
        events = [event for at, event in enumerate(events) if at not in gone]
    return events


@pytest.mark.parametrize("seed", range(4))
def test_windows_of_any_size_find_what_the_whole_document_has(seed):
    """What the screen lets pass is right, and what is carried over is all that is needed."""
    wrong = 0
    for index in range(60):
        events = recording(seed, index)
        document = trace(events)
        report = check(document)
        wrong += not report.clean
        for size in WINDOWS:
            found = judge(events, window=size, windows=len(events) + 1)
            assert bool(found.findings) == (not report.clean), (seed, index, size, found.findings)
            assert found.unjudged == 0
            assert (found.events, found.ops) == (len(events), len(document.programs[0].ops))
        classes = {cause.class_ for cause in causes_of(document)}
        assert {finding.class_ for finding in found.findings} == classes, (seed, index)
    assert wrong > 3
