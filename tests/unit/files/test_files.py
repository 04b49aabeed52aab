"""Files appear whole or not at all."""

import errno
import os
import subprocess
import sys
import threading

import pytest

from allocsim.errors import OutputError
from allocsim.files import MARK, claimed, replacing, sweep, write_atomic


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


# ------------------------------------------------------------------------------- what is on the disk, and who may write there


def calls(monkeypatch, *names):
    """Record which of these functions of `os` are called, in order."""
    seen = []
    for name in names:
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *given, real=real, name=name, **how: seen.append(name) or real(*given, **how)
        )
    return seen


def test_bytes_are_synced_before_the_rename_and_the_folder_after_it(tmp_path, monkeypatch):
    seen = calls(monkeypatch, "fsync", "rename", "replace")
    write_atomic(tmp_path / "x", b"1")
    assert seen == ["fsync", "replace", "fsync"]


@pytest.mark.parametrize("which", [1, 2])
def test_a_sync_that_fails_is_told_and_leaves_nothing_half_written(tmp_path, monkeypatch, which):
    (tmp_path / "x").write_bytes(b"old")
    real, seen = os.fsync, []

    def fails(handle):
        seen.append(handle)
        if len(seen) == which:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(handle)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OutputError, match="x: cannot be written: Input/output error"):
        write_atomic(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == (b"old" if which == 1 else b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_what_a_killed_command_left_is_swept_by_the_next_and_nothing_else(tmp_path):
    """A writer is killed in mid-write; one that lives keeps its file; a file of the user's stays."""
    script = (
        "import os, signal, sys\nfrom allocsim.files import replacing\n"
        "with replacing(sys.argv[1]) as place:\n    place.write_bytes(b'half')\n    os.kill(os.getpid(), "
        "signal.SIGKILL)\n"
    )
    (tmp_path / ".mine.tmp").write_bytes(b"mine")
    for _ in range(3):
        subprocess.run([sys.executable, "-c", script, str(tmp_path / "x.json")], check=False)
    left = [entry.name for entry in tmp_path.iterdir()]
    assert sum(MARK in name for name in left) == 1, "each sweeps what was left before it"
    with replacing(tmp_path / "y.json") as place:
        assert not [entry for entry in tmp_path.iterdir() if MARK in entry.name and entry != place]
        assert sweep(tmp_path) == 0, "what is being written now stays"
        assert place.exists()
        place.write_bytes(b"whole")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".mine.tmp", "y.json"]


def test_writers_of_one_folder_and_sweepers_do_not_meet(tmp_path):
    """Four writers of one file and two sweepers at once: every write succeeds, and the file is one of theirs."""
    failed, done = [], threading.Event()

    def write(number):
        try:
            for _ in range(100):
                write_atomic(tmp_path / "x", bytes([number]) * 1_000)
        except OutputError as error:
            failed.append(error)

    def sweeps():
        while not done.is_set():
            sweep(tmp_path)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    sweepers = [threading.Thread(target=sweeps) for _ in range(2)]
    for thread in (*writers, *sweepers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in sweepers:
        thread.join()
    assert not failed
    assert len(set((tmp_path / "x").read_bytes())) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_a_folder_is_claimed_by_one_command_and_free_when_that_is_killed(tmp_path):
    script = "import sys\nfrom pathlib import Path\nfrom allocsim.files import claimed\n"
    script += "with claimed(Path(sys.argv[1])):\n    print('claimed', flush=True)\n    sys.stdin.read()\n"
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == "claimed\n"
    with pytest.raises(OutputError, match="another command writes there now"), claimed(tmp_path):
        pass
    other.kill()
    other.communicate()
    with claimed(tmp_path):
        pass
    assert not list(tmp_path.iterdir()), "a claim leaves nothing"
