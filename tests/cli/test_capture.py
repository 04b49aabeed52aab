"""`allocsim capture ggml`: a legal plan with the kernel's fault in it, a document that checks, a library that is not there."""

import json
from pathlib import Path

import pytest
from commands import allocsim
from ggml_live import live
from gguf_models import write_model


@pytest.fixture(scope="module", name="faulty")
def _faulty(tmp_path_factory):
    """The faulty graph, captured once: how the command ended, and the file."""
    live("before")
    path = tmp_path_factory.mktemp("faulty") / "plan.json"
    return allocsim("capture", "ggml", "--ggml", "before", "--layers", "2", "--json", "-o", str(path)), path


def test_a_captured_plan_is_legal_written_and_checks_again_and_the_kernel_is_convicted(faulty):
    captured, path = faulty
    checked = allocsim("check", "--json", str(path))

    assert (captured.returncode, checked.returncode) == (1, 0)
    first, second = json.loads(captured.stdout), json.loads(checked.stdout)["files"][0]
    assert first["source"] == "ggml 0.13.1"
    assert {letter for letter, row in first["examined"].items() if row["state"] == "not run"} == {"H"}
    assert [(cause["class"], cause["party"]) for cause in first["causes"]] == [("C04", "kernel")]
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
    assert ran.stderr == f"allocsim: {path}: is no kept finding: Object missing required field meta\n"


def test_the_faulty_graph_is_the_kernels_fault_on_one_screen_and_again_from_its_evidence(tmp_path):
    live("before")

    captured = allocsim("capture", "ggml", "--ggml", "before", "--layers", "2", "--evidence", str(tmp_path / "found"))
    again = allocsim("verdict", str(tmp_path / "found"))

    assert (captured.returncode, again.returncode) == (1, 1)
    for shown in (captured.stdout, again.stdout):
        said = " ".join(shown.split())
        assert (
            "C04, fault of the kernel: the kernel of rms_norm_back is not safe with its result over operand 0" in said
        )
        assert "S clean: 211 ops" in said
        assert "D found: 211 ops; K found: 7 kinds of kernels; R clean: 2 runs" in said
        assert "H not run: one stream" in said
    assert "first at op 88 'grad for node_81'" in captured.stdout
    assert "first wrong tensor: grad for node_81 at op 88 (rms_norm_back)" in again.stdout
    assert "P clean: " in captured.stdout


def test_diagnose_of_a_captured_graph_asks_the_library_that_it_came_from(faulty):
    """The version chooses among the installed libraries; a library of another version runs nothing."""
    live("after")
    _, path = faulty

    found = allocsim("diagnose", str(path), "--json")
    named = allocsim("diagnose", str(path), "--json", "--ggml", "before")
    other = allocsim("diagnose", str(path), "--require", "K", "--ggml", "after")

    assert (found.returncode, named.returncode, other.returncode) == (1, 1, 2)
    assert json.loads(found.stdout) == json.loads(named.stdout)
    (cause,) = json.loads(found.stdout)["files"][0]["causes"]
    assert (cause["class"], cause["party"]) == ("C04", "kernel")
    assert "D, K not run: the graph is of ggml 0.13.1, the library is ggml 0.26.0" in " ".join(other.stdout.split())


def test_diagnose_refuses_a_library_for_what_is_no_captured_graph():
    path = Path(__file__).parents[1] / "data" / "cases" / "plan-over-output.json"

    for target in (path, path.parent / "plan-and-kernel-KD"):
        ran = allocsim("diagnose", str(target), "--ggml", "before")

        assert (ran.returncode, ran.stdout) == (2, "")
        assert "no captured graph that could be run" in ran.stderr


def test_a_graph_without_output_flags_is_said_to_be_one(tmp_path):
    live("after")
    recipe = {
        "steps": [{"make": "tensor", "arguments": ["f32", 8], "flag": "input"}, {"make": "sqr", "arguments": ["%0"]}]
    }
    recipe |= {"expand": [1], "outputs": [], "seed": 0, "name": "unread"}
    path = tmp_path / "finding.json"
    path.write_text(json.dumps({"meta": {"finding": {"recipe": recipe}}}))

    ran = allocsim("capture", "ggml", "--recipe", str(path))

    assert ran.returncode == 0
    assert "hint: no tensor is flagged OUTPUT, so nothing is judged to be read after the run" in " ".join(
        ran.stdout.split()
    )


def test_the_witnesses_of_an_audit_come_with_evidence_that_names_the_kernel(tmp_path):
    live("after")

    ran = allocsim("audit", "--ggml", "after", "--ops", "ADD_ID", "--layouts", "over", "-o", str(tmp_path))
    verdict = allocsim("verdict", str(tmp_path / "add_id-1"))

    assert (ran.returncode, verdict.returncode) == (1, 1)
    assert "C04, fault of the kernel: the kernel of add_id is not safe with its result over operand 1" in " ".join(
        verdict.stdout.split()
    )


def test_bisect_of_a_captured_graph_names_the_kernel_and_its_cure(faulty):
    _, path = faulty

    ran = allocsim("bisect", str(path))

    assert ran.returncode == 1
    said = " ".join(ran.stdout.split())  # lines are wrapped
    assert "C04, fault of the kernel: the kernel of rms_norm_back is not safe with its result over operand 0" in said
    assert "forbid the in-place pair of rms_norm_back (result 0 over operand 0)" in said


def test_bisect_of_a_graph_whose_library_is_not_there_says_what_was_not_examined(tmp_path):
    live("after")
    path = tmp_path / "plan.json"
    allocsim("capture", "ggml", "--ggml", "after", "--layers", "2", "-o", str(path))
    path.write_text(path.read_text().replace('"0.26.0"', '"0.25.9"'))

    ran = allocsim("bisect", str(path))

    assert ran.returncode == 1
    assert "the plan is legal; a fault of a kernel is not excluded" in ran.stdout
    assert "K not run: no installed libggml is ggml 0.25.9" in ran.stdout


def test_a_model_in_a_file_is_one_session_that_diagnose_judges_again(tmp_path):
    live("after")
    model, path = write_model(tmp_path / "m.gguf", experts=4), tmp_path / "session.json"

    captured = allocsim(
        "capture", "ggml", "--gguf", str(model), "--prompt", "4", "--decode", "3", "--json", "-o", str(path)
    )
    again = allocsim("diagnose", "--json", str(path))

    assert (captured.returncode, again.returncode) == (0, 0), captured.stderr + again.stderr
    first, second = json.loads(captured.stdout), json.loads(again.stdout)["files"][0]
    assert first["graph"] == "m.gguf, prefill of 4, 3 steps"
    for found in (first, second):
        assert {letter for letter, one in found["examined"].items() if one["state"] == "clean"} == set("SLDKRP")


def test_a_model_that_is_not_there_and_two_graphs_at_once_are_refused(tmp_path):
    nowhere = allocsim("capture", "ggml", "--gguf", str(tmp_path / "none.gguf"))
    both = allocsim("capture", "ggml", "--gguf", "m.gguf", "--recipe", "r.json")
    (tmp_path / "long.gguf").write_bytes(b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 32)
    long = allocsim("capture", "ggml", "--gguf", str(tmp_path / "long.gguf"))

    assert (nowhere.returncode, both.returncode) == (2, 2)
    assert nowhere.stderr == f"allocsim: {tmp_path / 'none.gguf'}: there is no such file\n"
    assert "llama_model_load_from_file" not in long.stderr
    assert (long.returncode, len(long.stderr.splitlines())) == (2, 1)
    assert "is no readable GGUF file" in long.stderr
    assert "--recipe and --gguf are two graphs; give one" in both.stderr
