"""What the gate reads of a file, and the one line it says of what cannot be read or kept to oneself."""

import pytest

from allocsim.errors import DocumentError, OutputError
from allocsim.files import claimed
from allocsim.files.gate import content, stream_content


def test_what_a_file_begins_with_is_at_most_64_kib_and_no_more_than_one_byte_above_the_ceiling(tmp_path):
    path = tmp_path / "long"
    path.write_bytes(bytes(200_000))
    heads = []

    def begins(head):
        heads.append(len(head))
        return len(heads) != 2

    assert len(content(path, 200_000, begins=begins)) == 200_000
    assert len(content(path, 200_000, begins=begins)) == 1 << 16
    assert heads == [1 << 16, 1 << 16]
    assert len(content(path, 200_000)) == 200_000
    for most in (199_999, 10):
        with pytest.raises(DocumentError):
            content(path, most, begins=begins)
    assert heads[2:] == [1 << 16, 11]


class Broken:
    """A stream whose reading fails."""

    def __init__(self, *said):
        self.said = said

    def read(self, _):
        raise OSError(*self.said)


@pytest.mark.parametrize(("said", "line"), [((5, "Input/output error"), "Input/output error"), (("odd",), "odd")])
def test_a_stream_that_fails_is_refused_with_what_the_system_says(said, line):
    with pytest.raises(DocumentError) as refused:
        stream_content(Broken(*said), "standard input")
    assert str(refused.value).endswith(f"cannot be read: {line}")
    assert "Errno" not in str(refused.value)


def test_what_is_claimed_is_a_folder(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"")
    with pytest.raises(OutputError, match="cannot be written"), claimed(path):
        pass
    with claimed(tmp_path):
        pass
