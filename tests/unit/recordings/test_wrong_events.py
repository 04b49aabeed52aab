"""Events whose fields are anything: a recording that cannot be is refused in words, never otherwise."""

from random import Random
from typing import Any

import pytest

from allocsim.errors import ModelError
from allocsim.programs.allocator_trace import trace
from allocsim.programs.trace_events import KEYS
from allocsim.recordings import judge

ANYTHING: tuple[Any, ...] = (
    *(0, 1, 3, 64, -1, 1.5, float("nan"), True, None, 1 << 62, 1 << 63, 10**30, -(1 << 63)),
    *("a", "b", "", "0", "state", "host.write", [], [0], ["a"], [["a"]], [[0, 0]], {}, {"a": 1}),
    *({"block": "a"}, {"block": ["a"]}, {"block": "a", "offset": -1}, {"block": "a", "nbytes": 10**25}),
    *({"block": "a", "sequence": "s", "position": 0}, [{"block": "a", "sequence": "s", "position": 9}]),
)
"""What stands in a field."""

POOL = {"event": "pool", "page": 64, "cells": 4, "pages": 8}


def part(random: Random) -> Any:
    block = random.choice("abc")
    return random.choice(
        (
            block,
            {"block": block, "offset": 16, "nbytes": 16},
            {"block": block, "sequence": "s", "position": random.randrange(8)},
            {"block": block, "sequence": "t", "position": 1, "count": 2, "slot": 1, "content": "x"},
        )
    )


def event(random: Random) -> dict[str, Any]:
    """Return an event that is right by itself."""
    word, block = random.choice(list(KEYS)), random.choice("abc")
    known: dict[str, Any] = {
        "block": block,
        "address": 64,
        "nbytes": 64,
        "page": 1,
        "stream": 1,
        "mark": "m",
        "actors": [0, 1],
        "reads": [part(random)],
        "writes": [part(random)],
        "program": "p",
        "after": ["m"],
        "from": block,
        "to": "c",
        "sequence": "s",
        "position": 1,
        "count": 2,
        "slot": 1,
        "pages": 2,
        "cells": 4,
        "device": 0,
    }
    needed, more = KEYS[word]
    keys = [*needed, *(key for key in more if key in known and random.random() < 0.5)]
    return {"event": word, **{key: known[key] for key in keys}}


def recording(seed: int) -> list[dict[str, Any]]:
    random = Random(seed)
    paged = random.random() < 0.5
    place = (lambda at: {"page": at}) if paged else (lambda at: {"address": 64 * at, "nbytes": 64})
    found = [POOL] * paged + [{"event": "alloc", "block": block, **place(at)} for at, block in enumerate("abc")]
    for _ in range(random.randint(1, 6)):
        made = event(random)
        if random.random() < 0.6:
            parts = [one for side in ("reads", "writes") for one in made.get(side, ()) if isinstance(one, dict)]
            target = random.choice(parts) if parts and random.random() < 0.5 else made
            target[random.choice([key for key in (*target, "slot", "count") if key != "event"])] = random.choice(
                ANYTHING
            )
        found.append(made)
    return found


@pytest.mark.parametrize("first", range(0, 8000, 1000))
def test_no_field_of_an_event_ends_in_anything_but_a_refusal(first: int):
    refused, judged = list[str](), 0
    for seed in range(first, first + 1000):
        for asked in (judge, trace):
            try:
                asked(recording(seed))
                judged += 1
            except ModelError as error:
                refused.append(str(error))
    assert not any("\n" in said for said in refused)
    assert len(refused) > 100
    assert judged > 100


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([POOL, {"event": "alloc", "block": "a", "page": 1.5}], "page: 1.5 is not an integer between 0 and 2^62"),
        ([POOL, {"event": "alloc", "block": "a", "page": -1}], "page: -1 is not an integer between 0 and 2^62"),
        ([POOL, {"event": "alloc", "block": "a", "page": 1 << 61}], "address: "),
        ([POOL, {"event": "alloc", "block": "a", "address": [], "nbytes": 4}], "address: [] is not an integer"),
        (
            [
                {"event": "alloc", "block": "a", "address": 0, "nbytes": 64},
                {"event": "ref", "block": "a"},
                {"event": "use", "reads": [{"block": "a", "sequence": "s", "position": 0}]},
            ],
            "'a' is no page that was given out",
        ),
    ],
)
def test_what_a_page_cannot_be_is_said(events: list[dict[str, Any]], said: str):
    for asked in (judge, trace):
        with pytest.raises(ModelError) as refusal:
            asked(events)
        assert said in str(refusal.value)


PAGED = [
    {"event": "pool", "device": "kv", "page": 4096, "cells": 4},
    {"event": "alloc", "block": "a", "page": 0, "device": "kv"},
]


@pytest.mark.parametrize("pool", [True, False])
@pytest.mark.parametrize(
    "part", [{"sequence": "s", "position": 0}, ("a", 0, 64), ("a",), (), ("a", 0, 64, "s", 0, 0, 1, None)]
)
@pytest.mark.parametrize("take", [judge, trace])
def test_a_part_that_is_none_is_refused_whatever_it_is(take, part, pool):
    start = PAGED if pool else [{"event": "alloc", "block": "a", "address": 0, "nbytes": 64}]
    with pytest.raises(ModelError, match=r"writes"):
        take([*start, {"event": "use", "writes": [part]}])
