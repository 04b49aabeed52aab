"""Ways through nested choices: every three regions that can run together do so in one way."""

from itertools import combinations, product

import pytest

from allocsim.errors import ModelError
from allocsim.programs.ways import ways

SIDES = ("then", "else")


def test_without_choices_there_is_one_way():
    assert list(ways({})) == [{}]


def test_three_choices_side_by_side_meet_in_all_eight_ways():
    found = list(ways({(name,): SIDES for name in "abc"}))

    assert {tuple(way.values()) for way in found} == set(product(SIDES, repeat=3))


def test_every_three_alternatives_of_ten_choices_meet_in_few_ways():
    names = [(f"c{index}",) for index in range(10)]
    found = list(ways(dict.fromkeys(names, SIDES)))
    met = {(three, tuple(way[name] for name in three)) for way in found for three in combinations(names, 3)}

    assert len(met) == 120 * 8
    assert len(found) < 40


def test_an_inner_choice_is_met_where_its_alternative_is_taken():
    found = list(ways({("a",): SIDES, ("a", "then", "b"): SIDES}))

    assert {(way["a",], way["a", "then", "b"]) for way in found} >= {("then", "then"), ("then", "else")}
    assert "else" in {way["a",] for way in found}


def test_too_many_choices_are_refused():
    with pytest.raises(ModelError, match="combinations of three regions"):
        list(ways({(f"c{index}",): SIDES for index in range(3000)}))
