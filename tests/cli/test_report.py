"""`allocsim report`: one page out of a file or a folder."""

import json

import pytest
from samples import DATA
from scenario_runs import small

from allocsim import document as native
from allocsim.cli import main
from allocsim.model import Document
from allocsim.verdict.evidence import save
from repro.small.words import plan, program


def test_a_file_gives_a_page_with_verdict_and_map(tmp_path, capsys):
    made = program("x = host.write; a = f x; b = g x; c = h b a; host.read c")
    native.write(Document.of(plan(made, "x=0 a=64 b=64 c=128")), tmp_path / "plan.json")
    assert main(["report", str(tmp_path / "plan.json"), "-o", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'page.html'}\n"
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h1>plan.json</h1>" in page
    assert "fault: <strong>plan</strong>" in page
    assert '"words":"StaleRead: victim a' in page
    assert {entry.name for entry in tmp_path.iterdir()} == {"plan.json", "page.html"}


def test_a_folder_gives_losses_too_and_the_verdict_of_its_evidence(tmp_path):
    result = small("ggml-1501")
    save(result.evidence, tmp_path)
    record = {**result.as_json(), "verdict": {"text": "not this one"}, "scenario": "from the record"}
    (tmp_path / "report.json").write_text(json.dumps(record))
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for said in (
        "<h1>from the record</h1>",
        "Class C04, fault: <strong>kernel</strong>",
        "Loss by training step",
        "C04, fault kernel: victim",
    ):
        assert said in page
    assert "not this one" not in page


def test_a_folder_that_a_system_dumped_is_a_document(tmp_path):
    dump = DATA / "plans" / "xla" / "layout"
    assert main(["report", str(dump), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h1>layout</h1>" in page
    assert "Class C03, fault: <strong>plan</strong>" in page


def test_a_document_without_a_plan_is_not_called_legal(tmp_path):
    native.write(Document.of(program("x = host.write; host.read x")), tmp_path / "program.json")
    assert main(["report", str(tmp_path / "program.json"), "-o", str(tmp_path / "page.html")]) == 0
    assert "legal" not in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("source", "out", "says"),
    [
        ("none.json", "page.html", "none.json: cannot be read: No such file or directory"),
        ("folder", "page.html", "folder: is not an evidence folder: it has no session.json"),
        ("record", "page.html", "report.json: is no record of a run"),
        ("plan.json", "page.png", "the suffix '.png' names no page; .html does"),
        ("plan.json", "none/page.html", "none/page.html: cannot be written: No such file or directory"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, capsys, source, out, says):
    made = program("x = host.write; host.read x")
    document = Document.of(plan(made, "x=0"))
    native.write(document, tmp_path / "plan.json")
    (tmp_path / "folder").mkdir()
    save(small("ggml-1501").evidence, tmp_path / "record")
    (tmp_path / "record" / "report.json").write_text("{")
    assert main(["report", str(tmp_path / source), "-o", str(tmp_path / out)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert not (tmp_path / out).exists()
