"""`allocsim record ggml`: a program run and judged, its log judged again, and one line for what cannot be."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ggml_live import live

from allocsim.cli import main
from allocsim.systems.ggml.access.library import find
from tests.ggml_host import programs

SCRIPT = Path(__file__).parents[1] / "data" / "ggml_host" / "ctypes_host.py"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def test_a_program_is_run_and_its_log_and_documents_say_the_same(tmp_path, capsys):
    """The fault is the caller's: by the program, by its log, and by the document that was kept."""
    live("before")
    log, folder = tmp_path / "log.jsonl", tmp_path / "kept"
    program = [sys.executable, str(SCRIPT), str(find("before")), "wrong", "named"]

    assert main(["record", "ggml", "-o", str(log), "--documents", str(folder), "--json", "--", *program]) == 1
    first = json.loads(capsys.readouterr().out)["files"]
    assert [row["buffer"] for entry in first for row in entry["memory"]] == ["CPU"] * len(first)
    assert [[(cause["class"], cause["party"]) for cause in one["causes"]] for one in first] == [[("C07", "caller")], []]
    assert main(["record", "ggml", "--log", str(log)]) == 1
    assert "C07 caller" in capsys.readouterr().out
    assert main(["check", str(folder / "session-0.json")]) == 1
    assert main(["record", "ggml", "-o", str(log), "--", *program]) == 2
    assert "a log does not replace it" in capsys.readouterr().err


def test_documents_of_one_program_are_written_together_or_not_at_all(tmp_path, capsys):
    """The second cannot be written; the first, which an earlier command left, is as it was."""
    live("before")
    log, folder = tmp_path / "log.jsonl", tmp_path / "kept"
    program = [sys.executable, str(SCRIPT), str(find("before")), "wrong", "named"]
    (folder / "session-1.json").mkdir(parents=True)
    (folder / "session-0.json").write_text("old")

    assert main(["record", "ggml", "-o", str(log), "--documents", str(folder), "--", *program]) == 2
    assert "session-1.json: cannot be written" in capsys.readouterr().err
    assert (folder / "session-0.json").read_text() == "old"
    (folder / "session-1.json").rmdir()
    assert main(["record", "ggml", "--log", str(log), "--documents", str(folder)]) == 1
    assert [main(["check", str(folder / f"session-{number}.json")]) for number in (0, 1)] == [1, 0]


@pytest.fixture(scope="module", name="layers")
def _layers(tmp_path_factory):
    """The program of 30 layers."""
    return str(programs(tmp_path_factory.mktemp("layers")) / "thirty_layers")


def _started(*arguments):
    """Start the command with pipes, and end it and its program where they take minutes."""
    command = [sys.executable, "-m", "allocsim", "record", "ggml", "--live", *arguments]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, text=True, start_new_session=True, **pipes)
    ender = threading.Timer(300, os.killpg, (process.pid, signal.SIGKILL))
    ender.daemon = True
    ender.start()
    return process, ender


def test_a_finding_is_said_while_the_program_runs(layers):
    """The program waits behind its second step until somebody has read the finding."""
    process, ender = _started("--", layers, "4", "8", "4", "kept", "wrong", "waits")
    said = process.stderr.readline()
    out, rest = process.communicate("\n")
    ender.cancel()
    assert "thirty_layers: compute 2: C06 caller: " in said
    assert "'node_0' (rms_norm) reads 'x'" in said
    assert process.returncode == 1
    assert "compute 2" not in rest
    assert "1. C06 caller" in out


def test_a_program_is_ended_at_its_first_finding(layers):
    """Of a million steps few are computed, and what was done is judged."""
    process, ender = _started("--stop", "--", layers, "1000000", "8", "4", "kept", "wrong")
    out, said = process.communicate()
    ender.cancel()
    assert process.returncode == 1
    assert "compute 2: C06 caller" in said
    assert "was ended by signal 15; what it did before is judged" in said
    assert "1. C06 caller" in out


def test_the_recorder_is_written_to_be_linked(tmp_path, capsys):
    """A source that needs no other file, and an option of the linker for each function that it stands before."""
    folder = tmp_path / "my recorder"
    assert main(["record", "ggml", "--object", str(folder)]) == 0
    words = shlex.split(capsys.readouterr().out)[-2:]
    assert words == [str(folder / "allocsim_record.c"), f"@{folder / 'allocsim_record.wrap'}"]
    source = (folder / "allocsim_record.c").read_text()
    options = (folder / "allocsim_record.wrap").read_text().splitlines()
    assert source.startswith("#define ALLOCSIM_LINKED\n")
    assert '#include "' not in source
    assert {"-Wl,--wrap=ggml_backend_sched_reset", "-Wl,--wrap=llama_decode"} <= set(options)


@pytest.mark.parametrize("name", ["allocsim_record.c", "allocsim_record.wrap"])
def test_a_file_that_is_no_recorder_is_not_written_over(name, tmp_path, capsys):
    """One line, and the file as it was; by --force it is written, and what was written before is written anew."""
    taken = tmp_path / name
    taken.write_text("mine\n")
    assert main(["record", "ggml", "--object", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "is there, and is no recorder; --force writes over it" in error
    assert error.count("\n") == 1
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [(name, "mine\n")]
    for more in (["--force"], []):
        assert main(["record", "ggml", "--object", str(tmp_path), *more]) == 0
    assert "mine" not in taken.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--", "true"), "no graph was computed"),
        (("--", "/nowhere/at/all"), "cannot be run"),
        (("--log", "x.jsonl", "--", "true"), "give a program behind `--`, a log by --log"),
        (("--log", "missing.jsonl"), "cannot be read"),
        (("--live", "--log", "x.jsonl"), "--live needs a program"),
        (("--stop", "--", "true"), "--stop needs --live"),
        (("--object", "here", "-o", "x.jsonl"), "--object records nothing"),
        (("--force", "--", "true"), "--force --object"),
        (("--object", "here", "--live", "--json"), "--object records nothing"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(arguments, said, capsys):
    assert main(["record", "ggml", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
