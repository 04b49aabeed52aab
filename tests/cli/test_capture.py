"""`allocsim capture ggml` in a subprocess: a legal plan with the kernel's fault in it, a document that checks, a library that is not there."""

import json
import subprocess
import sys

from ggml_live import live


def allocsim(*arguments):
    return subprocess.run([sys.executable, "-m", "allocsim", *arguments], capture_output=True, text=True, check=False)


def test_a_captured_plan_is_legal_written_and_checks_again_and_the_kernel_is_convicted(tmp_path):
    live("before")
    path = tmp_path / "plan.json"

    captured = allocsim("capture", "ggml", "--ggml", "before", "--layers", "2", "--json", "-o", str(path))
    checked = allocsim("check", "--json", str(path))

    assert (captured.returncode, checked.returncode) == (1, 0)
    first, second = json.loads(captured.stdout), json.loads(checked.stdout)["files"][0]
    assert first["source"] == "ggml 0.13.1"
    assert set(first["not_run"]) == {"P"}
    assert first["hints"] == []
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


def test_the_faulty_graph_is_the_kernels_fault_on_one_screen_and_again_from_its_evidence(tmp_path):
    live("before")

    captured = allocsim("capture", "ggml", "--ggml", "before", "--layers", "2", "--evidence", str(tmp_path / "found"))
    again = allocsim("verdict", str(tmp_path / "found"))

    assert (captured.returncode, again.returncode) == (1, 1)
    for said in (captured.stdout, again.stdout):
        assert "C04, fault of the kernel: the kernel of rms_norm_back is not safe with its result over operand 0" in said
        assert "first wrong tensor: grad for node_81 at op 88 (rms_norm_back)" in said
    assert "examined by S, D, K, R, L" in captured.stdout


def test_a_graph_without_output_flags_is_said_to_be_one(tmp_path):
    live("after")
    recipe = {"steps": [{"make": "tensor", "arguments": ["f32", 8], "flag": "input"}, {"make": "sqr", "arguments": ["%0"]}]}
    recipe |= {"expand": [1], "outputs": [], "seed": 0, "name": "unread"}
    path = tmp_path / "finding.json"
    path.write_text(json.dumps({"meta": {"finding": {"recipe": recipe}}}))

    ran = allocsim("capture", "ggml", "--recipe", str(path))

    assert ran.returncode == 0
    assert "hint: no tensor is flagged OUTPUT, so nothing is judged to be read after the run" in ran.stdout


def test_the_witnesses_of_an_audit_come_with_evidence_that_names_the_kernel(tmp_path):
    live("after")

    ran = allocsim("audit", "--ggml", "after", "--ops", "ADD_ID", "--layouts", "over", "-o", str(tmp_path))
    verdict = allocsim("verdict", str(tmp_path / "add_id-1"))

    assert (ran.returncode, verdict.returncode) == (1, 1)
    assert "C04, fault of the kernel: the kernel of add_id is not safe with its result over operand 1" in verdict.stdout


def test_bisect_of_a_captured_graph_names_the_kernel_and_its_cure(tmp_path):
    live("before")
    path = tmp_path / "plan.json"
    allocsim("capture", "ggml", "--ggml", "before", "--layers", "2", "-o", str(path))

    ran = allocsim("bisect", str(path))

    assert ran.returncode == 1
    assert "C04, fault of the kernel: the kernel of rms_norm_back is not safe with its result over operand 0" in ran.stdout
    assert "forbid the in-place pair of rms_norm_back (result 0 over operand 0)" in ran.stdout


def test_bisect_of_a_graph_whose_library_is_not_there_says_what_was_not_examined(tmp_path):
    live("after")
    path = tmp_path / "plan.json"
    allocsim("capture", "ggml", "--ggml", "after", "--layers", "2", "-o", str(path))
    path.write_text(path.read_text().replace('"0.26.0"', '"0.25.9"'))

    ran = allocsim("bisect", str(path))

    assert ran.returncode == 1
    assert "the plan is legal; a fault of a kernel is not excluded" in ran.stdout
    assert "K not run: no installed libggml is ggml 0.25.9" in ran.stdout
