"""What the generated documents hold, measured: a law is worth what its examples are.

Seeds are fixed, so the counts are the same on every run; they are printed (`pytest -s`).
"""

from collections import Counter

import pytest
import strategies
from facts import accesses, permitted, planned
from hypothesis import HealthCheck, given, seed, settings
from oracle import judge

from allocsim.judge.violations import KINDS
from allocsim.model import Document

EXAMPLES = 120


def drawn(strategy, examples=EXAMPLES):
    """Return examples of a strategy, the same ones every time."""
    found = []

    @seed(1501)
    @settings(max_examples=examples, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(example):
        found.append(example)

    collect()
    return found


def judged(strategy):
    """Return examples, each with what the oracle says of it."""
    return [(document, judge(document)) for document in drawn(strategy)]


@pytest.fixture(scope="module")
def mixed():
    return judged(strategies.documents())


@pytest.fixture(scope="module")
def sound():
    return judged(strategies.documents(sound=True))


def uses_in_place(document: Document) -> bool:
    """Return whether some run lays one buffer over another as a declared pair permits."""
    for run in document.runs:
        where, done = planned(document, run), accesses(run.program, run.skip)
        for one in range(len(done)):
            for other in range(len(done)):
                if one == other or not strategies.overlaps(run.plan, one, other):
                    continue
                declared = done[one] and run.program.ops[done[one][-1].step].in_place
                if declared and permitted(run.program, one, other, where, run.skip):
                    return True
    return False


def counted(judgements) -> Counter[str]:
    count: Counter[str] = Counter()
    for document, report in judgements:
        count["documents"] += 1
        count["in place"] += uses_in_place(document)
        count["sessions"] += document.session is not None and len(document.runs) >= 2
        count["skips"] += any(run.skip for run in document.runs)
        count["stale plans"] += any(run.program is not run.plan.program for run in document.runs)
        count["several programs"] += len({id(run.program) for run in document.runs}) > 1
        count["several arenas"] += len(document.arenas) > 1
        count["streams"] += any(len(program.streams) > 1 for program in document.programs)
        count["beliefs"] += bool(document.problems)
        count["events"] += any(len(plan.events) > 0 for plan in document.plans)
        count["clean"] += not report.violations
    print(dict(count))  # noqa: T201  (the counts are what this test is read for)
    return count


def test_a_fifth_of_mixed_documents_use_in_place_and_a_fifth_have_sessions(mixed):
    count = counted(mixed)
    assert count["in place"] * 5 >= count["documents"]
    assert count["sessions"] * 5 >= count["documents"]
    assert count["documents"] // 10 <= count["clean"] <= count["documents"] // 2
    for feature in ("skips", "stale plans", "several programs", "several arenas", "streams", "beliefs", "events"):
        assert count[feature] * 20 >= count["documents"], feature


def test_a_fifth_of_sound_documents_use_in_place_and_a_fifth_have_sessions(sound):
    count = counted(sound)
    assert count["in place"] * 5 >= count["documents"]
    assert count["sessions"] * 5 >= count["documents"]
    assert count["clean"] == count["documents"]


def test_mixed_documents_hold_every_kind(mixed):
    count = Counter(kind for _, report in mixed for kind in {v.kind for v in report.violations + report.warnings})
    print(dict(count))  # noqa: T201
    assert set(count) == set(KINDS)
