"""What `check` and `diagnose` say beside the verdict on a ggml graph whose host nobody saw."""

import json

import pytest

from allocsim.cli import main

ROW = {"op": "NONE", "name": "x", "type": "f32", "ne": [8, 1, 1, 1], "nb": [4, 32, 32, 32], "nbytes": 32, "off": 0}


def dump(flags, **made):
    """One op, its result flagged or not."""
    node = {**ROW, "op": "SQR", "name": "y", "off": 32, "flags": flags, "src": ["L0"], **made}
    return {"meta": {"version": "0.26.0"}, "leafs": [ROW], "nodes": [node]}


@pytest.mark.parametrize("command", ["check", "diagnose"])
def test_clean_ends_with_what_was_assumed(command, tmp_path, capsys):
    """Who dumped a graph showed no host: uploads and reads are assumed, and both commands say so."""
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(dump(2)))

    assert main([command, str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "assumed: the leaf of the plan is uploaded before each run" in said
    assert "assumed: the host reads the tensors flagged OUTPUT (1) and nothing else" in said


@pytest.mark.parametrize("command", ["check", "diagnose"])
def test_a_dump_without_a_flag_gets_the_hint(command, tmp_path, capsys):
    """The hint is not `capture`'s alone."""
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(dump(0)))

    assert main([command, str(path), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["files"]
    assert [hint.partition(",")[0] for hint in entry["hints"]] == ["no tensor is flagged OUTPUT"]
    assert entry["assumed"] == ["the leaf of the plan is uploaded before each run"]


def test_other_documents_get_none(tmp_path, capsys):
    """A document of anybody else is judged as before."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"format": "allocsim", "version": 1, "programs": [{"name": "p", "buffers": [], "values": [], "ops": []}], "plans": [{"program": 0, "slots": []}], "meta": {"ggml": 3}}))  # fmt: skip

    assert main(["check", str(path)]) == 0
    assert "assumed" not in capsys.readouterr().out
