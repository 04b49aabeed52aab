"""Faults that were reported of caches of keys and values, rebuilt as recordings: class, party, and a
cure in the allocator's terms; the same recording put right is clean. Each has a scenario as well
(`repro/scenarios`). The classes of fault are the reports'; their code is not run here.
"""

from typing import Any

import pytest

from allocsim.recordings import judge
from repro import scenarios

Event = dict[str, Any]


def alloc(block: str, page: int, stream: str = "main") -> Event:
    return {"event": "alloc", "block": block, "address": 64 * page, "nbytes": 64, "stream": stream}


def use(name: str, stream: str = "main", **keys: Any) -> Event:
    return {"event": "use", "name": name, "stream": stream, "mark": name, **keys}


def free(block: str) -> Event:
    return {"event": "free", "block": block}


def done(mark: str) -> Event:
    return {"event": "done", "mark": mark}


def cells(block: str, sequence: str, position: int) -> Event:
    return {"block": block, "sequence": sequence, "position": position, "count": 4}


POOL: Event = {"event": "pool", "page": 64, "cells": 4, "pages": 8}

REPORTS: dict[str, tuple[list[Event], list[Event], str, str, str]] = {
    "window-in-flight": (
        [
            alloc("0", 0),
            use("step 157", writes=["0"]),
            use("step 158", reads=["0"]),
            free("0"),
            alloc("0'", 0, "load"),
            use("load", "load", writes=["0'"]),
        ],
        [
            alloc("0", 0),
            use("step 157", writes=["0"]),
            use("step 158", reads=["0"]),
            done("step 158"),
            free("0"),
            alloc("0'", 0, "load"),
            use("load", "load", writes=["0'"]),
        ],
        "C09",
        "plan",
        "free block '0' after 'step 158' (event 2) has ended, not when it is scheduled: event 3 gave it back",
    ),
    "window-rolled-back": (
        [
            POOL,
            {"event": "alloc", "block": "k", "page": 0},
            use("prefill", writes=[cells("k", "A", 0)]),
            use("draft", reads=[cells("k", "A", 0)]),
            free("k"),
            {"event": "alloc", "block": "n", "page": 0},
            use("verify", writes=[cells("n", "A", 4)]),
            use("attend", reads=[cells("k", "A", 0), cells("n", "A", 4)]),
        ],
        [
            POOL,
            {"event": "alloc", "block": "k", "page": 0},
            use("prefill", writes=[cells("k", "A", 0)]),
            use("draft", reads=[cells("k", "A", 0)]),
            {"event": "alloc", "block": "n", "page": 1},
            use("verify", writes=[cells("n", "A", 4)]),
            use("attend", reads=[cells("k", "A", 0), cells("n", "A", 4)]),
            free("k"),
        ],
        "C01",
        "caller",  # of a recording: who frees a block and then reads it; the scenario has no caller that frees
        "free block 'k' after 'attend' (event 7), not at event 4",
    ),
    "request-in-flight": (
        [
            alloc("k", 0),
            use("step 9", writes=["k"]),
            free("k"),
            alloc("m", 0, "load"),
            use("load", "load", writes=["m"]),
        ],
        [
            alloc("k", 0),
            use("step 9", writes=["k"]),
            done("step 9"),
            free("k"),
            alloc("m", 0, "load"),
            use("load", "load", writes=["m"]),
        ],
        "C09",
        "plan",
        "free block 'k' after 'step 9' (event 1) has ended, not when it is scheduled: event 2 gave it back",
    ),
    "stolen-prefix": (
        [
            POOL,
            {"event": "alloc", "block": "p", "page": 3},
            use("prefill", writes=[cells("p", "A", 0)]),
            {"event": "share", "slot": 0, **cells("p", "B", 0)},
            {"event": "alloc", "block": "n", "page": 3},
            use("prefill B", writes=[cells("n", "B", 4)]),
            use("decode B", reads=[cells("p", "B", 0)]),
        ],
        [
            POOL,
            {"event": "alloc", "block": "p", "page": 3},
            use("prefill", writes=[cells("p", "A", 0)]),
            {"event": "share", "slot": 0, **cells("p", "B", 0)},
            {"event": "alloc", "block": "n", "page": 4},
            use("prefill B", writes=[cells("n", "B", 4)]),
            use("decode B", reads=[cells("p", "B", 0)]),
        ],
        "C12",
        "plan",
        "give block 'n' other bytes than block 'p': it is held to the end",
    ),
    "unmapped-page": (
        [
            alloc("k", 0),
            use("put", writes=["k"]),
            use("attend", reads=["k"]),
            free("k"),
            alloc("other", 0, "theirs"),
            use("write", "theirs", writes=["other"]),
        ],
        [
            alloc("k", 0),
            use("put", writes=["k"]),
            use("attend", reads=["k"]),
            done("attend"),
            free("k"),
            alloc("other", 0, "theirs"),
            use("write", "theirs", writes=["other"]),
        ],
        "C09",
        "plan",
        "free block 'k' after 'attend' (event 2) has ended, not when it is scheduled: event 3 gave it back",
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_convicted_with_party_and_cure_and_its_twin_is_clean(name: str):
    wrong, right, class_, party, cure = REPORTS[name]
    (fault,) = judge(wrong).findings
    assert (fault.class_, fault.party, fault.cure) == (class_, party, cure)
    assert judge(right).findings == []


@pytest.mark.parametrize("name", REPORTS)
def test_the_scenario_of_a_report_names_the_same_class_and_says_what_it_is(name: str):
    scenario = scenarios.find_small(name)
    assert [found for found, _ in scenario.expected] == [REPORTS[name][2]]
    assert "reproduces the class of fault of the report" in scenario.story
    assert "Cure: " in scenario.story


def test_a_block_that_is_found_by_the_hash_of_what_it_held_before_is_the_allocators_fault():
    """The pool of ovg-project/kvcached#362 leaves the old hash on a block that it gives to another prefix; put right, that prefix is computed anew."""
    begun = [
        POOL,
        {"event": "alloc", "block": "p", "page": 3},
        use("prefill A", writes=[{**cells("p", "A", 0), "content": "prefix"}]),
        free("p"),
        {"event": "alloc", "block": "n", "page": 3},
        use("prefill B", writes=[{**cells("n", "B", 0), "content": "other"}]),
    ]
    found = [
        {"event": "share", "slot": 0, **cells("n", "C", 0), "content": "prefix"},
        use("decode C", reads=[cells("n", "C", 0)]),
    ]
    anew = [
        {"event": "alloc", "block": "m", "page": 4},
        use("prefill C", writes=[{**cells("m", "C", 0), "content": "prefix"}]),
        use("decode C", reads=[cells("m", "C", 0)]),
    ]

    (fault,) = judge(begun + found).findings
    assert (fault.class_, fault.party) == ("C14", "plan")
    assert "they hold other content" in fault.text
    assert judge(begun + anew).findings == []
