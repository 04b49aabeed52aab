"""A journal is read as it was written, or refused in one line; its last line alone may be cut short."""

import errno
import json
from io import FileIO
from typing import TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocsim.errors import OutputError
from allocsim.files import gate
from allocsim.files.journal import Journal, sealed, unsealed


class Row(TypedDict):
    n: int


def opened(path, head=None):
    return Journal(path, {"seed": 1, "of": "x"} if head is None else head, Row, what="campaign")


def written(folder, count=4):
    journal = opened(folder / "j")
    for number in range(count):
        journal.add({"n": number})
    return folder / "j"


def test_what_was_added_is_there_when_it_is_opened_again(tmp_path):
    path = written(tmp_path)
    again = opened(path)
    assert [row["n"] for row in again.rows] == [0, 1, 2, 3]
    again.add({"n": 4})
    assert [row["n"] for row in opened(path).rows] == [0, 1, 2, 3, 4]
    assert all(json.loads(line)["digest"] for line in path.read_text().splitlines())


def test_every_flipped_bit_is_refused_in_a_line(tmp_path):
    """A flip that makes a line break, or the last one none, cuts the last line short: fewer rows, never other ones."""
    path = written(tmp_path)
    content = path.read_bytes()
    for at in range(len(content)):
        for bit in range(8):
            spoiled = bytearray(content)
            spoiled[at] ^= 1 << bit
            path.write_bytes(spoiled)
            if at < len(content) - 1:
                with pytest.raises(OutputError, match=r"\A[^\n]+\Z"):
                    opened(path)
            else:
                assert [row["n"] for row in opened(path).rows] == [0, 1, 2]


@pytest.mark.parametrize("change", ["lost", "doubled", "moved", "first lost"])
def test_lines_that_are_lost_doubled_or_moved_are_refused(tmp_path, change):
    path = written(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    changed = {
        "lost": lines[:2] + lines[3:],
        "doubled": lines[:3] + lines[2:],
        "moved": [lines[0], lines[2], lines[1], *lines[3:]],
        "first lost": lines[1:],
    }
    path.write_bytes(b"".join(changed[change]))
    with pytest.raises(OutputError, match=r"line \d: was changed since it was written: its digest differs"):
        opened(path)


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_last_line_that_was_cut_short_is_taken_off(tmp_path, cut):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    again = opened(path)
    assert [row["n"] for row in again.rows] == [0, 1, 2]
    again.add({"n": 9})
    assert [row["n"] for row in opened(path).rows] == [0, 1, 2, 9]


def test_a_journal_of_something_else_is_refused_with_what_differs(tmp_path):
    path = written(tmp_path)
    with pytest.raises(OutputError, match=r"belongs to another campaign \(seed 1\); name another folder$"):
        opened(path, {"seed": 2, "of": "x"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "has no first line"),
        (b"x", "has no first line"),
        (b'{"seed": 1, "of": "x"}\n', "line 1: has no digest"),
        (b"\n\n\n", "line 1: has no digest"),
        (b"\xff\xfe\n", "line 1: has no digest"),
    ],
)
def test_what_is_no_journal_is_one_line(tmp_path, text, says):
    (tmp_path / "j").write_bytes(text)
    with pytest.raises(OutputError, match=says):
        opened(tmp_path / "j")


def test_a_row_of_another_type_is_refused_even_with_its_digest(tmp_path):
    journal = opened(tmp_path / "j")
    journal.add({"n": "many"})
    with pytest.raises(OutputError, match="line 2: is no line of a campaign: n: expected int, got str"):
        opened(tmp_path / "j")


@pytest.mark.parametrize("room", [0, 1, 7, 30])
def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch, room):
    path = written(tmp_path)
    journal, before = opened(path), path.read_bytes()
    left = [room]

    class Full(FileIO):
        def write(self, data):
            if not left[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            done = super().write(bytes(data[: left[0]]))
            left[0] -= done
            return done

    with monkeypatch.context() as patch:
        patch.setattr("allocsim.files.journal.Path.open", lambda self, mode, **_: Full(self, mode), raising=True)
        with pytest.raises(OutputError, match=r"cannot be written: No space left on device$"):
            journal.add({"n": 9})
    assert path.read_bytes() == before
    journal.add({"n": 9})
    assert [row["n"] for row in opened(path).rows] == [0, 1, 2, 3, 9]


def test_short_writes_are_gone_on_with(tmp_path, monkeypatch):
    path = written(tmp_path)
    journal = opened(path)

    class Short(FileIO):
        def write(self, data):
            return super().write(bytes(data[:3]))

    with monkeypatch.context() as patch:
        patch.setattr("allocsim.files.journal.Path.open", lambda self, mode, **_: Short(self, mode), raising=True)
        journal.add({"n": 9})
    assert [row["n"] for row in opened(path).rows] == [0, 1, 2, 3, 9]


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)))
def test_a_sealed_record_is_the_record(record):
    record.pop("digest", None)
    text = sealed(record)
    found = unsealed(text, dict, "f", refusal=gate.refused_with(OutputError))
    assert found.keys() == record.keys()


def test_a_journal_that_has_grown_past_a_record_is_opened_again(tmp_path, monkeypatch):
    monkeypatch.setattr("allocsim.files.journal.CEILINGS", {"record": 64, "stream": 1 << 20})
    path = tmp_path / "j.jsonl"
    for number in range(20):
        journal = Journal(path, {"of": 1}, dict[str, int], what="test")
        journal.add({"row": number})
    assert path.stat().st_size > 64
    assert len(Journal(path, {"of": 1}, dict[str, int], what="test").rows) == 20
