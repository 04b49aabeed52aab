"""`allocsim record ggml`: a program run and judged, its log judged again, and one line for what cannot be."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from ggml_live import live

from allocsim.cli import main
from allocsim.systems.ggml.access.library import find

SCRIPT = Path(__file__).parents[1] / "data" / "ggml_host" / "ctypes_host.py"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def test_a_program_is_run_and_its_log_and_documents_say_the_same(tmp_path, capsys):
    """The fault is the caller's: by the program, by its log, and by the document that was kept."""
    live("before")
    log, folder = tmp_path / "log.jsonl", tmp_path / "kept"
    program = [sys.executable, str(SCRIPT), str(find("before")), "wrong", "named"]

    assert main(["record", "ggml", "-o", str(log), "--documents", str(folder), "--json", "--", *program]) == 1
    first = json.loads(capsys.readouterr().out)["files"]
    assert [[(cause["class"], cause["party"]) for cause in one["causes"]] for one in first] == [[("C07", "caller")], []]
    assert main(["record", "ggml", "--log", str(log)]) == 1
    assert "C07 caller" in capsys.readouterr().out
    assert main(["check", str(folder / "session-0.json")]) == 1
    assert main(["record", "ggml", "-o", str(log), "--", *program]) == 2
    assert "a log is not written over" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--", "true"), "no graph was computed"),
        (("--", "/nowhere/at/all"), "cannot be run"),
        (("--log", "x.jsonl", "--", "true"), "give a program behind `--`, or a log by --log"),
        (("--log", "missing.jsonl"), "cannot be read"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(arguments, said, capsys):
    assert main(["record", "ggml", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
