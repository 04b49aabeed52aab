"""Files appear whole or not at all."""

import os
import threading

import pytest

from allocsim.errors import OutputError
from allocsim.files import replacing, write_atomic


def test_a_failing_writer_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "x.json"
    write_atomic(path, b"old")

    def fail():
        with replacing(path) as place:
            place.write_bytes(b"ne")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]


def test_the_file_is_invisible_until_it_is_whole(tmp_path):
    path = tmp_path / "x.png"
    with replacing(path) as place:
        assert place.suffix == ".png"
        assert place.parent == path.parent
        place.write_bytes(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"


def test_permissions_are_kept_or_those_of_a_new_file(tmp_path):
    kept, new = tmp_path / "kept", tmp_path / "new"
    write_atomic(kept, b"1")
    kept.chmod(0o640)
    before = os.umask(0o022)
    try:
        write_atomic(kept, b"2")
        write_atomic(new, b"2")
    finally:
        os.umask(before)
    assert kept.stat().st_mode & 0o777 == 0o640
    assert new.stat().st_mode & 0o777 == 0o644


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_a_pipe_is_written_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_atomic(pipe, b"through")
    reader.join()
    assert read == [b"through"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["none/x", "file/x", ""])
def test_what_cannot_be_written_is_told_before_the_work_begins(tmp_path, name):
    (tmp_path / "file").write_bytes(b"")
    began = []
    with pytest.raises(OutputError, match="cannot be written: "), replacing(tmp_path / name):
        began.append(True)
    assert not began
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
