"""Every choice is drawn for itself: what each op and each program is has met what each other is, or there is a reason."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from allocsim.fuzzing import CampaignSpec, Target, campaign
from allocsim.fuzzing.bulk import TELLINGS, batch_of
from allocsim.fuzzing.exhaustive import Odometer, total
from allocsim.fuzzing.fuzz_case import FuzzCase
from allocsim.fuzzing.pairwise import FACTORS, LEFT_OUT, LEVELS, OF_OPS, cells, empty, in_words, met, reason


def test_two_levels_are_counted_in_one_op_and_not_side_by_side():
    """By hand: of each op its operands, results and declaration, as many as there are of each two."""
    batch = batch_of(np.random.default_rng(4), 60)
    found = cells(met(batch, FuzzCase(program=batch.program)))
    expected = Counter()
    for op in batch.program.ops:
        if op.kind in {"view", "host.read", "host.write"}:
            continue
        many = lambda rows: ("none", "one", "two", "more")[min(len(rows), 3)]  # noqa: E731 - a word for a number
        declared = "unknown" if op.in_place is None else ("no pair", "a pair", "pairs")[min(len(op.in_place), 2)]
        levels = [f"operands: {many(op.operands)}", f"results: {many(op.results)}", f"declared: {declared}"]
        expected.update((one, other) for place, one in enumerate(levels) for other in levels[place + 1 :])
    assert {
        pair: count
        for pair, count in found.items()
        if count and {p.partition(":")[0] for p in pair} <= {"operands", "results", "declared"}
    } == expected


def test_every_level_is_one_of_its_factor_and_each_op_has_one_of_each():
    assert len(set(LEVELS)) == len(LEVELS) == sum(map(len, FACTORS.values()))
    assert all(level in LEVELS for levels in LEFT_OUT.values() for level in levels)
    batch = batch_of(np.random.default_rng(5), 60)
    found = cells(met(batch, FuzzCase(program=batch.program)))
    for streams in FACTORS["streams"]:
        each = [
            sum(
                count
                for (one, other), count in found.items()
                if one.startswith(f"{factor}:") and other == f"streams: {streams}"
            )
            for factor in OF_OPS
            if factor != "strength"
        ]
        assert len(set(each)) == 1, each


@pytest.mark.parametrize("source", ["hypothesis", "bulk"])
def test_no_choice_goes_with_another_alone(source):
    """Levels of ops meet each other, and what a program is and is told, but where a reason says why not."""
    examples = {"hypothesis": 300, "bulk": 4096}[source]
    pairs = campaign(
        CampaignSpec(target=Target(name="greedy_by_size"), source=source, examples=examples, seed=11)
    ).tally.pairs
    rare = (
        "above",
        "2^53",
        "strength: whole",
        "strength: bytes",
        "more",
        "2,000",
        "no power",
        "4 GiB",
        "streams: 3",
        "end",
        "told: gaps",
        "told: pairs",
        "in turn",
        "three views",
        "operands: none",
    )
    if source == "bulk":
        rare += ("arenas", "streams")  # drawn once for a batch
    missed = [
        pair
        for pair, why in empty(pairs, source).items()
        if not why and not any(word in level for word in rare for level in pair)
    ]
    assert cells(pairs)["operands: one", "declared: unknown"] > 20
    assert not missed


def test_a_reason_is_never_given_for_what_was_drawn():
    for source, batch in (
        ("bulk", batch_of(np.random.default_rng(3), 200)),
        ("exhaustive", Odometer(3).batch(total(3))),
    ):
        counts = Counter(met(batch, FuzzCase(program=batch.program)))
        for telling in TELLINGS.values():
            counts.update(met(batch, case)) if len((case := telling(batch.program)).program.ops) else None
        wrong = [pair for pair, count in cells(counts).items() if count and reason(*pair, source=source)]
        assert not wrong


def test_programs_of_a_scope_are_on_several_streams_where_these_are_promised():
    """Of a planner that promises them they meet what three ops can have; of another each empty cell has its reason."""
    asked = CampaignSpec(target=Target(name="reference"), source="exhaustive", options={"ops": 3})
    promised = campaign(asked).tally.pairs
    other = campaign(replace(asked, guarantees=("sound",))).tally.pairs
    levels = ("streams: 2", "streams: 3", "waits: as values need")

    assert cells(promised)["streams: 2", "waits: as values need"] > 20
    missed = {
        level
        for pair, why in empty(promised, "exhaustive").items()
        if not why and {*levels} & {*pair}
        for level in pair
    }
    assert missed <= {*levels, "reads: three views deep", "declared: pairs"}  # of which three ops have few
    assert not [pair for pair, why in empty(other, "exhaustive").items() if not why and {*levels} & {*pair}]


def test_the_line_says_how_many_met_and_names_what_did_not():
    assert in_words({}).startswith("pairs of choices: 0 of ")
    batch = Odometer(3).batch(total(3))
    words = in_words(met(batch, FuzzCase(program=batch.program)), "exhaustive")
    assert "never drawn: " in words
    assert "declared: unknown" not in words.partition("never drawn")[0]
