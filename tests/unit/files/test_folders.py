"""`allocsim.files.folders`: at every moment of a replacement what is left is the old state or the new one, and nothing of anyone else's moves.

The moments are the calls of the operating system that a replacement makes, listed by a first undisturbed one; each is failed before and behind
by ENOSPC, by Ctrl-C, and by a SIGKILL in a process of its own.
"""

import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from few import few_of

from allocsim.errors import OutputError
from allocsim.files import claimed
from allocsim.files.folders import SWAP, current, replace_files, working_in

OLD = {"a.json": b"old a", "figures/one.png": b"old one", "figures/gone.png": b"old gone"}
NEW = {"figures/one.png": b"new one", "deep/er/two.png": b"new two", "a.json": b"new a"}
STALE = ("figures/gone.png", "never.csv")
FOREIGN = {
    "notes.txt": b"mine",
    "figures/mine.png": b"mine too",
    "never": b"a name that begins alike",
    ".hidden": b"mine as well",
}
CALLS = ("open", "mkdir", "rename", "replace", "unlink", "rmdir", "fsync", "chmod")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def laid(folder: Path) -> Path:
    for name, data in {**OLD, **FOREIGN}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@contextmanager
def disturbed(moment: int, fault: Callable[[], None]) -> Iterator[list[str]]:
    """Call `fault` at a moment: moment 2k before the k-th call of `CALLS`, 2k + 1 behind it; yield the names of the calls."""
    calls: list[str] = []
    real = {name: getattr(os, name) for name in CALLS}

    def counted(name: str) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            number = len(calls)
            calls.append(name)
            if moment == 2 * number:
                fault()
            answer = real[name](*arguments, **options)
            if moment == 2 * number + 1:
                fault()
            return answer

        return call

    for name in CALLS:
        setattr(os, name, counted(name))
    try:
        yield calls
    finally:
        for name in CALLS:
            setattr(os, name, real[name])


def full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupted() -> None:
    raise KeyboardInterrupt


def moments(folder: Path) -> range:
    with disturbed(-1, full) as calls:
        replace_files(laid(folder), NEW, stale=STALE)
    assert tree(folder) == {**FOREIGN, **NEW}
    assert {"rename", "fsync", "mkdir", "unlink"} <= set(calls)
    return range(2 * len(calls))


STATES = ({**FOREIGN, **OLD}, {**FOREIGN, **NEW})


@pytest.mark.parametrize("fault", [full, interrupted])
def test_a_failure_at_any_moment_leaves_one_of_two_states(
    tmp_path: Path, fault: Callable[[], None], capsys: pytest.CaptureFixture
) -> None:
    """Files of others are whole before anything is mended, and the next command finds or makes one of the two states."""
    back = 0
    for moment in moments(tmp_path / "whole"):
        folder = laid(tmp_path / str(moment))
        with disturbed(moment, fault), suppress(OutputError, KeyboardInterrupt):
            replace_files(folder, NEW, stale=STALE)
        left = tree(folder)
        assert left.items() >= FOREIGN.items(), moment
        if not (folder / SWAP).exists():
            assert left in STATES, moment
            back += left == STATES[0]
        with working_in(folder):
            pass
        assert tree(folder) in STATES, moment
    assert back > 20


@pytest.mark.parametrize("every", few_of([3, 1], 1))
def test_a_kill_at_any_moment_is_mended_by_the_next_command(
    every: int, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """After a SIGKILL each name has its old or its new bytes for `current`, all of one state, and foreign files never move.

    Asked at each third moment, the first of which is drawn; a campaign has them all.
    """
    seen: set[bool] = set()
    for moment in moments(tmp_path / "whole")[random.randrange(every) :: every]:
        folder = laid(tmp_path / str(moment))
        child = os.fork()
        if not child:
            with disturbed(moment, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                replace_files(folder, NEW, stale=STALE)
            os._exit(0)
        os.waitpid(child, 0)
        assert tree(folder).items() >= FOREIGN.items(), moment
        read = {name: current(folder, name).read_bytes() for name in ("a.json", "figures/one.png")}
        assert read in ({name: state[name] for name in read} for state in STATES), (moment, read)
        with working_in(folder):
            pass
        assert tree(folder) == STATES[read["a.json"] == b"new a"], moment
        seen.add(read["a.json"] == b"new a")
    assert seen == {True, False}
    said = capsys.readouterr().err
    assert "are put in place now" in said
    assert "had begun to write and not finished is removed" in said


def test_a_command_keeps_its_folder_and_may_ask_again(tmp_path: Path) -> None:
    """The process that holds a folder enters again; another is refused, and what it would have made is not there."""
    code = "import sys; from pathlib import Path; from allocsim.files.folders import replace_files; replace_files(Path(sys.argv[1]), {'x': b'theirs'})"
    with working_in(tmp_path / "out"), claimed(tmp_path / "out"):
        replace_files(tmp_path / "out", {"x": b"ours"})
        other = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "out")], capture_output=True, text=True, check=False
        )
        assert "another command writes there now" in other.stderr
        replace_files(tmp_path / "out", {"y": b"ours"})
    assert tree(tmp_path / "out") == {"x": b"ours", "y": b"ours"}
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], check=False).returncode == 0
    assert tree(tmp_path / "out") == {"x": b"theirs", "y": b"ours"}


def test_a_folder_made_for_nothing_is_removed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), working_in(tmp_path / "deep" / "out"):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_what_came_between_is_never_overwritten(tmp_path: Path) -> None:
    """A file laid in the place of one that a killed command had moved is named in one line, and stays."""
    folder = laid(tmp_path / "out")
    child = os.fork()
    if not child:
        with disturbed(-1, full) as calls:
            real = os.rename

            def stop(*arguments: object) -> None:
                real(*arguments)
                os._exit(9)

            os.rename = stop
            replace_files(folder, NEW, stale=())
        os._exit(len(calls))
    os.waitpid(child, 0)
    (folder / "figures" / "one.png").write_bytes(b"laid by hand")
    with pytest.raises(OutputError, match=r"one\.png: appeared while a command was replacing it"), working_in(folder):
        pass
    assert (folder / "figures" / "one.png").read_bytes() == b"laid by hand"


@pytest.mark.parametrize("name", ["../x", "/x", "", "a/../../x", "notes.txt/x", "kept"])
def test_a_name_that_is_no_file_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    (laid(tmp_path / "out") / "kept").mkdir()
    with pytest.raises(OutputError):
        replace_files(tmp_path / "out", {name: b"x"})
    assert tree(tmp_path / "out") == STATES[0]
    assert not (tmp_path / "x").exists()


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "far").write_bytes(b"old")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").symlink_to(tmp_path / "far")
    replace_files(tmp_path / "out", {"x": b"new"})
    assert (tmp_path / "out" / "x").is_symlink()
    assert (tmp_path / "far").read_bytes() == b"new"
