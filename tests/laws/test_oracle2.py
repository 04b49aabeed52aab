"""The judge against the oracle of version 2: the same records, and the same sizes, of random documents with every feature."""

import pytest
from agreement_2 import agree
from few import few_of


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_the_judge_and_the_oracle_of_version_2_agree(first):
    for seed in range(first, first + 50):
        assert agree(seed) == [], f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("first", few_of(range(300, 2300, 100), 2))
def test_they_agree_on_many(first):
    for seed in range(first, first + 100):
        assert agree(seed) == [], f"seed {seed}"
