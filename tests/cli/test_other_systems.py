"""Without the modules and calls that only POSIX systems have: what judges still does, and the rest says so in one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

STEP = Path(__file__).parents[2] / "tests" / "data" / "cases" / "both-plans-faulty.json"

ELSEWHERE = """
import json, os, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios", "pty"):
    sys.modules[name] = None
del os.fork
from allocsim.cli import main
print(json.dumps([main(words) for words in json.loads(sys.argv[1])]))
"""


def ends(*commands):
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, json.dumps(commands)], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_plans_are_judged_explained_cured_planned_and_converted(tmp_path):
    step = str(STEP)
    statuses, said = ends(
        ["check", step],
        ["verdict", step],
        ["explain", step, "h"],
        ["plan", step, "--allocator", "best_fit", "-o", str(tmp_path / "planned.json")],
        ["check", str(tmp_path / "planned.json")],
        ["diff", step, step],
        ["bisect", step, "-o", str(tmp_path / "small")],
        ["convert", step, str(tmp_path / "x.trace.json")],
        ["compare", step, "--allocator", "best_fit"],
    )
    assert (statuses, said) == ([1, 1, 0, 0, 0, 0, 0, 0, 1], "")


def test_a_module_that_python_lacks_there_is_named_in_one_line(monkeypatch, capsys):
    from allocsim import cli  # noqa: PLC0415

    def lacking():
        raise ModuleNotFoundError("No module named 'resource'", name="resource")

    monkeypatch.setattr(cli, "_run", lambda _: lacking())
    assert cli.main(["fuzz"]) == 2
    assert (
        capsys.readouterr().err
        == f"allocsim: this needs resource, which Python does not have on {sys.platform} (docs/limits.md)\n"
    )


@pytest.mark.parametrize("words", [["fuzz", "best_fit", "--examples", "2"], ["record", "ggml", "--", "true"]])
def test_the_others_end_without_a_traceback(words):
    statuses, _ = ends(words)
    assert statuses[0] in (0, 1, 2)
