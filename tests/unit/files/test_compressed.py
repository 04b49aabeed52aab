"""Files that gzip compressed are read as what is in them, within bounds of what is stored and what comes of it."""

import gzip
import io
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocsim.cli import main
from allocsim.errors import DocumentError
from allocsim.files import gate


def read(stored):
    """What is in a file, by the gate's own reader over a stream that can be looked into."""
    with gate._inflating(io.BufferedReader(io.BytesIO(stored))) as file:
        return file.read()


@settings(max_examples=60)
@given(
    st.lists(st.binary(max_size=3000).map(lambda data: data * 50), max_size=4),
    st.integers(0, 2000),
    st.integers(1, 9),
)
def test_members_one_after_the_other_are_read_as_gzip_reads_them(members, zeros, level):
    stored = b"".join(gzip.compress(part, level) for part in members) + b"\0" * zeros
    if not members:
        stored = gzip.compress(b"") + stored
    assert read(stored) == b"".join(members) == gzip.decompress(stored)


@settings(max_examples=60)
@given(st.binary(min_size=1, max_size=2000), st.data())
def test_what_is_cut_or_damaged_is_refused_or_as_gzip_reads_it(data, draw):
    stored = bytearray(gzip.compress(data * 20))
    at = draw.draw(st.integers(2, len(stored) - 1))
    if draw.draw(st.booleans()):
        del stored[at:]
    else:
        stored[at] ^= draw.draw(st.integers(1, 255))
    try:
        wanted = gzip.decompress(bytes(stored))
    except (OSError, EOFError, zlib.error):
        with pytest.raises((EOFError, zlib.error)):
            read(bytes(stored))
    else:
        if stored[3] & 0xE0:  # RFC 1952, 2.3.1.2: a reserved flag is an error; Python's gzip does not look
            with pytest.raises(zlib.error):
                read(bytes(stored))
        else:
            assert read(bytes(stored)) == wanted


@pytest.mark.parametrize(
    "stored",  # made where the test runs, not in each process that collects it
    [
        lambda most: gzip.compress(b"[\n" * (most // 2) + b"\n", 1),
        lambda most: gzip.compress(b"[") + b"\0" * (most + 1),
        lambda most: gzip.compress(b"\n" * (most + 1), 1),
    ],
    ids=["much in it", "much behind it", "lines without end"],
)
@pytest.mark.parametrize("ceiling", [4, pytest.param(64, marks=pytest.mark.campaign)])
def test_no_more_is_read_of_it_or_in_it_than_the_ceiling(stored, ceiling, tmp_path, monkeypatch):
    assert gate.INFLATED == 64 << 20
    monkeypatch.setattr(gate, "INFLATED", ceiling << 20)
    path = tmp_path / "x.gz"
    path.write_bytes(stored(gate.INFLATED))
    for read_all in (gate.content, lambda path: list(gate.file_lines(path, str(path)))):
        with pytest.raises(DocumentError, match=f"more than {ceiling} MiB, the most that is read of a compressed file"):
            read_all(path)


def test_a_document_that_could_not_be_read_again_is_not_written(tmp_path, monkeypatch, capsys):
    case = gate.Path(__file__).parents[2] / "data" / "cases" / "both-plans-faulty.json"
    monkeypatch.setattr("allocsim.systems.INFLATED", 100)
    assert main(["convert", str(case), str(tmp_path / "x.json.gz")]) == 2
    assert "a compressed file that can be read again holds at most" in capsys.readouterr().err
    assert not (tmp_path / "x.json.gz").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"\n" * 100_000, "holds no event"),
        (b'\n \n\n{"x":\n', "line 4: is not JSON"),
        (b'\n\n{"event": "alloc"}\n\n\n{"event": "nothing"}\n', "line 3"),
    ],
)
def test_a_recording_names_the_line_however_many_are_blank(text, says, tmp_path, capsys):
    path = tmp_path / "events.jsonl"
    path.write_bytes(text)
    assert main(["trace", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{path}: {says}" in said
