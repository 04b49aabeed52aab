"""Numbers of bytes as people write them, and as they are said."""

import pytest

from allocsim.errors import AllocsimError
from allocsim.files.sizes import bytes_of, in_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("4096", 4096),
        ("7B", 7),
        ("7 b", 7),
        ("64KiB", 64 << 10),
        ("1.5 MiB", 3 << 19),
        ("2G", 2 << 30),
        ("2gb", 2 << 30),
        ("3T", 3 << 40),
        ("1P", 1 << 50),
        ("1.0", 1),
        ("0.3KiB", 307),
        ("4096P", 1 << 62),
        (" 8 K ", 8 << 10),
        ("0" * 39 + "1", 1),
    ],
)
def test_a_size_is_what_it_says(text, count):
    assert bytes_of(text) == count


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no number of bytes"),
        ("-1", "no number of bytes"),
        ("1e3", "no number of bytes"),
        ("1EiB", "no number of bytes"),
        ("1.K", "no number of bytes"),
        ("0" * 40 + "1", "no number of bytes"),
        ("1.5", "no whole number of bytes"),
        ("1.5B", "no whole number of bytes"),
        ("4097P", "exceeds 2^62 bytes"),
        ("4611686018427387905", "exceeds 2^62 bytes"),
    ],
)
def test_what_is_no_size_is_refused_in_a_line(text, said):
    with pytest.raises(AllocsimError, match=said.replace("^", r"\^")):
        bytes_of(text)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (-1023, "-1023 B"),
        (1024, "1 KiB"),
        (-1024, "-1 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1 MiB"),
        (5 << 40, "5 TiB"),
        (1 << 50, "1 PiB"),
        (1 << 60, "1024 PiB"),
        (1 << 62, "4096 PiB"),
    ],
)
def test_a_size_is_said_in_its_unit(count, said):
    assert in_bytes(count) == said
