"""`allocsim capture ggml` in a subprocess: a clean plan, a document that checks, a library that is not there."""

import json
import subprocess
import sys

from ggml_live import live


def allocsim(*arguments):
    return subprocess.run([sys.executable, "-m", "allocsim", *arguments], capture_output=True, text=True, check=False)


def test_a_captured_plan_is_clean_written_and_checks_again(tmp_path):
    live("before")
    path = tmp_path / "plan.json"

    captured = allocsim("capture", "ggml", "--ggml", "before", "--layers", "2", "--json", "-o", str(path))
    checked = allocsim("check", "--json", str(path))

    assert (captured.returncode, checked.returncode) == (0, 0)
    first, second = json.loads(captured.stdout), json.loads(checked.stdout)["files"][0]
    assert first["source"] == "ggml 0.13.1"
    assert first["clean"]
    assert first["stats"] == second["stats"]
    assert first["stats"]["peak_bytes"] == 57824


def test_a_library_that_is_not_there_is_one_line_and_status_2():
    ran = allocsim("capture", "ggml", "--ggml", "./nowhere.so")

    assert ran.returncode == 2
    assert ran.stderr == "allocsim: ./nowhere.so: no such library; give before, after or the path of a libggml\n"
    assert ran.stdout == ""


def test_a_file_that_is_no_finding_is_refused(tmp_path):
    live("after")
    path = tmp_path / "finding.json"
    path.write_text("{}")

    ran = allocsim("capture", "ggml", "--recipe", str(path))

    assert ran.returncode == 2
    assert ran.stderr.startswith("allocsim: not a recipe")
