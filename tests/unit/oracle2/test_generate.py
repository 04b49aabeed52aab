"""What the generator of small documents draws, and laws of the oracle that hold of every document."""

import json
from collections import Counter

import pytest
from oracle2 import judge
from oracle2.features import FEATURES, features
from oracle2.generate import generate, table
from oracle2.judging import KEYS

SEEDS = range(1000)


@pytest.fixture(scope="module")
def drawn():
    return [(document, judge(document)) for document in map(generate, SEEDS)]


def test_every_feature_is_drawn_and_none_is_unknown(drawn):
    count = Counter(name for document, _ in drawn for name in features(document))

    assert set(count) == FEATURES
    assert {name: n for name, n in count.items() if n < 3} == {}


def test_about_half_of_the_documents_are_clean_and_every_kind_is_found(drawn):
    share = sum(judged.clean for _, judged in drawn) / len(drawn)
    found = {r["kind"] for _, judged in drawn for r in judged.violations + judged.warnings}

    assert 0.4 < share < 0.6
    assert found == set(KEYS)


def test_sharing_is_used_by_clean_documents(drawn):
    """Sound plans with memory in use twice at one step: a judge that forbade all sharing would differ on these."""
    clean = [(d, j) for d, j in drawn if j.clean]
    shared = sum(j.stats["bound_as_planned"] < sum(_live_at_most(d)) for d, j in clean)

    assert shared > 20
    assert sum("same at one address" in features(d) for d, _ in clean) > 20
    assert sum("slots meet in part" in features(d) for d, _ in clean) > 20


def _live_at_most(document):
    """Return sizes of all buffers that have a slot, of the first plan."""
    plan = document["plans"][0]
    sizes = [b["nbytes"] for b in document["programs"][plan["program"]]["buffers"]]
    return [n for n, slot in zip(sizes, plan["slots"], strict=True) if isinstance(slot, dict)]


def test_a_seed_is_a_document_and_a_document_is_json(drawn):
    assert all(generate(seed) == drawn[seed][0] == json.loads(json.dumps(drawn[seed][0])) for seed in SEEDS[::50])


def test_of_a_clean_document_the_bound_is_no_higher_than_the_peak(drawn):
    for document, judged in drawn:
        if judged.clean:
            assert judged.stats["bound_as_planned"] <= judged.stats["peak_bytes"], document
            assert judged.stats["lower_bound_bytes"] <= judged.stats["bound_as_planned"], document


def test_what_may_share_at_one_address_is_never_more_than_what_does(drawn):
    assert any(j.stats["lower_bound_bytes"] < j.stats["bound_as_planned"] for _, j in drawn)


def test_memory_of_its_own_for_every_buffer_leaves_only_what_is_the_programs(drawn):
    """With no two buffers on one byte nothing is stale but what concurrent runs of one plan do to each other."""
    allowed = {
        "UninitialisedRead",
        "OverwrittenRead",
        "WriteToReadOnly",
        "UnsafeInPlace",
        "ResultsOverlap",
        "Race",
        "OutOfBounds",
    }
    allowed |= {
        "LifetimeTooShort",
        "MissingPin",
        "BadSize",
        "BadShare",
        "FreeOfUnallocated",
        "DoubleFree",
        "AllocOverLive",
    }
    for document, _ in drawn[::5]:
        if any(run.get("after") is not None or "read_after" in run for run in document.get("session", ())):
            continue
        apart = {**document, "plans": [{**plan, "slots": ["own"] * len(plan["slots"])} for plan in document["plans"]]}
        assert {v["kind"] for v in judge(apart).violations} <= allowed, document


def test_strict_and_a_table_only_move_what_nobody_knows(drawn):
    for seed, (document, judged) in list(enumerate(drawn))[::5]:
        strict = judge(document, strict=True)
        assert len(strict.violations) + len(strict.warnings) == len(judged.violations) + len(judged.warnings)
        told = {v["kind"] for v in judge(document, kinds=table(seed)).violations} - {
            v["kind"] for v in judged.violations
        }
        assert told <= {"UnsafeInPlace", "Overlap", "BadShare"}, document


def test_features_can_be_left_out():
    left_out = frozenset({"streams", "packed", "after", "read_after", "skip", "stale plan", "no ops", "same"})
    found = {name for seed in range(300) for name in features(generate(seed, left_out))}

    assert found.isdisjoint(
        {"streams", "bit offset", "dtype i4", "runs at once", "read_after", "skip", "stale plan", "no ops", "kind same"}
    )
