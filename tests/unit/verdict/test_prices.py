"""The price of a cure in words: never nothing of what costs something."""

import pytest

from allocsim.verdict.judging import _mib


@pytest.mark.parametrize(
    ("nbytes", "words"),
    [
        (0, "+0.00 MiB"),
        (256, "+256 B"),
        (-4096, "-4 KiB"),
        (5242, "+5.119 KiB"),
        (5243, "+0.01 MiB"),
        (1 << 20, "+1.00 MiB"),
    ],
)
def test_a_price_of_some_bytes_is_never_zero_in_words(nbytes, words):
    assert _mib(nbytes) == words
