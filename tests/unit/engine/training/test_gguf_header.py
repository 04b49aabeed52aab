"""A GGUF header is walked before the library loops over its counts."""

import struct

import pytest

from allocsim.errors import EngineError
from engine.models.gguf_header import check_header


def text(value):
    return struct.pack("<Q", len(value)) + value


def entry(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def header(entries=(), tensors=(), *, version=3, said=None):
    counts = (len(tensors), len(entries)) if said is None else said
    return b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(entries) + b"".join(tensors)


TENSOR = text(b"t") + struct.pack("<IQQIQ", 2, 4, 4, 0, 0)
ENTRIES = [
    entry(b"a", 4, struct.pack("<I", 7)),
    entry(b"s", 8, text(b"llama")),
    entry(b"l", 9, struct.pack("<IQ", 8, 2) + text(b"x") + text(b"yz")),
    entry(b"n", 9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 0, 3) + b"abc"),
    entry(b"f", 12, b"\0" * 8),
]


def test_a_header_as_it_ought_to_be_passes(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(header(ENTRIES, [TENSOR, TENSOR]))
    check_header(path)


HUGE = 1 << 60


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (header(said=(HUGE, 0)), f"byte 16: says {HUGE} tensors; 8 bytes are left"),
        (header(said=(0, HUGE)), f"byte 24: says {HUGE} entries; 0 bytes are left"),
        (header([entry(b"l", 9, struct.pack("<IQ", 0, HUGE))]), f"says {HUGE} entries of a list"),
        (header([entry(b"l", 9, struct.pack("<IQ", 8, 4_000_000_000))]), "says 4000000000 entries of a list"),
        (header([text(b"a") + struct.pack("<I", 4)]), "a value of 4 bytes; 0 are left"),
        (header([struct.pack("<Q", HUGE) + b"padding bytes"]), f"a text of {HUGE} bytes"),
        (header([entry(b"a", 13, b"")]), "a value of type 13"),
        (header([entry(b"a", 9, struct.pack("<IQ", 9, 1) * 6 + b"\0" * 12)]), "a value of type 9"),
        (header([], [text(b"t") + struct.pack("<I", 5) + b"\0" * 60]), "a tensor of 5 dimensions; 4 are the most"),
        (header([], [TENSOR[:-1]]), "a tensor of 28 bytes; 27 are left"),
        (header(version=1), "version 1; 2 and 3 are read"),
        (b"GGML" + header()[4:], "it does not begin with GGUF"),
        (b"", "it has 0 bytes"),
    ],
)
def test_a_header_that_lies_is_refused_where_it_does(tmp_path, content, says):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(EngineError, match=says) as raised:
        check_header(path)
    assert "\n" not in str(raised.value)


def test_every_header_that_is_cut_short_is_refused(tmp_path):
    path = tmp_path / "m.gguf"
    whole = header(ENTRIES, [TENSOR])
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(EngineError, match="is no readable GGUF file"):
            check_header(path)
