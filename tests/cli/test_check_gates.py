"""`allocsim check` as a gate in CI, and `allocsim bisect`: files written, exit status, bad input."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from allocsim import check, document
from allocsim.cli import main
from allocsim.model import Document, Run
from repro.small.words import plan, program

MADE = program("x = host.write; a = f x; b = g x; c = h a b; host.read c")


@pytest.fixture
def wrong(tmp_path):
    path = tmp_path / "wrong.json"
    document.write(Document.of(plan(MADE, "x=0 a=64 b=64 c=128")), path)
    return str(path)


@pytest.fixture
def sound(tmp_path):
    path = tmp_path / "sound.json"
    document.write(Document.of(plan(MADE, "x=0 a=64 b=128 c=192")), path)
    return str(path)


def test_a_baseline_written_is_a_baseline_read(wrong, sound, tmp_path, capsys):
    known = str(tmp_path / "known.json")
    assert main(["check", wrong, "--write-baseline", known]) == 0
    assert main(["check", wrong, "--baseline", known]) == 0
    assert "  2 violations known, 0 new" in capsys.readouterr().out
    assert main(["check", wrong, sound, "--baseline", known, "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)["files"]
    assert [(entry["new"], entry["passes"], entry["clean"]) for entry in entries] == [(0, True, False), (0, True, True)]


def test_a_new_fault_beside_known_ones_is_told(wrong, tmp_path, capsys):
    known = tmp_path / "known.json"
    main(["check", wrong, "--write-baseline", str(known)])
    listed = json.loads(known.read_text())
    listed["known"] = listed["known"][:1]
    known.write_text(json.dumps(listed))
    assert main(["check", wrong, "--baseline", str(known)]) == 1
    assert "1 violation known, 1 new" in capsys.readouterr().out


def test_what_is_beyond_the_limit_is_never_known(wrong, tmp_path):
    known = str(tmp_path / "known.json")
    main(["check", wrong, "--write-baseline", known])
    assert main(["check", wrong, "--baseline", known, "--limit", "1"]) == 1


@pytest.mark.parametrize(("most", "status"), [("256", 0), ("255", 1), ("1KiB", 0)])
def test_max_peak_is_a_gate(sound, capsys, most, status):
    assert main(["check", sound, "--max-peak", most]) == status
    assert ("at most 255 B (255 bytes) are allowed" in capsys.readouterr().out) == bool(status)


def test_reports_are_written_for_all_files_readable_or_not(wrong, sound, tmp_path, capsys):
    junit, sarif = tmp_path / "junit.xml", tmp_path / "log.sarif"
    gone = str(tmp_path / "gone.json")
    assert main(["check", wrong, gone, sound, "--junit", str(junit), "--sarif", str(sarif)]) == 2
    assert [suite.get("name") for suite in ET.parse(junit).getroot()] == [wrong, gone, sound]
    run = json.loads(sarif.read_text())["runs"][0]
    assert len(run["results"]) == 2
    assert not run["invocations"][0]["executionSuccessful"]
    capsys.readouterr()


def test_explain_shows_the_ops_round_the_first_faults(wrong, capsys):
    assert main(["check", wrong]) == 1
    assert "<-" not in capsys.readouterr().out  # in a pipe, unless asked
    assert main(["check", wrong, "--explain", "1"]) == 1
    said = capsys.readouterr().out
    assert "  >      3  h (a, b) -> c  <- reads it late: bytes [0, 32)" in said
    assert said.count("program 0 'p'") == 1


def test_stories_and_stale_plans_fit_80_columns(tmp_path, capsys):
    long = "a_kind.with.a.long.name_"
    text = f"x = host.write; a = {long}1 x; b = {long}2 x; c = {long}3 a b; host.read c"
    laid = plan(program(text, sizes="a=64 b=64"), "x=0 a=64 b=64 c=128")
    other = program(text.replace("3 a b", "3 b a"), name="other")
    path = tmp_path / "stale.json"
    document.write(Document.of(Run.of(laid), Run(program=other, plan=laid)), path)

    assert main(["check", str(path), "--explain", "1"]) == 1
    lines = capsys.readouterr().out.replace(str(path), "F").splitlines()
    assert max(map(len, lines)) <= 80
    assert any("was made for program" in line for line in lines)
    assert any(line.startswith("  >") for line in lines)


@pytest.mark.parametrize(
    "arguments",
    [["--max-peak", "much"], ["--baseline", "gone.json"], ["--baseline", "WRONG"], ["--junit", "no/such/folder/x"]],
)
def test_bad_options_are_one_line(wrong, capsys, arguments):
    assert main(["check", wrong, *[wrong if a == "WRONG" else a for a in arguments]]) == 2
    said = capsys.readouterr().err
    assert said.startswith("allocsim: ")
    assert said.count("\n") == 1


# bisect -------------------------------------------------------------------------------------------------------------------


def test_bisect_of_a_file_writes_what_a_bug_report_needs(wrong, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["bisect", wrong, "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "cure (amended): keep a until op 3 (h) has run" in said
    assert "smallest: 3 of 5 ops, 2 buffers, 1 run" in said
    assert sorted(path.name for path in out.iterdir()) == [
        "bisect.json",
        "cured.json",
        "smallest.json",
        "smallest.png",
        "test_smallest.py",
    ]
    assert check(document.read(out / "cured.json")).clean
    assert check(document.read(out / "smallest.json")).of_kind("StaleRead")
    assert (out / "smallest.png").read_bytes().startswith(b"\x89PNG")
    space = {}
    exec((out / "test_smallest.py").read_text(), space)
    space["test_the_fault_is_found"]()


def test_bisect_json_is_one_document(wrong, capsys):
    assert main(["bisect", wrong, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["found"]
    assert record["cause"]["kind"] == "StaleRead"
    assert record["cure"]["elements"] == ["keep a until op 3 (h) has run"]
    assert record["cure"]["minimal"]
    assert record["cure"]["seconds"] is None
    assert record["cure"]["why_no_seconds"].startswith("op 1 'f' is of kind 'f', for which the engine has no kernel")
    assert (record["smallest"]["ops"], record["smallest"]["ops_before"]) == (3, 5)
    assert check(document.loads(json.dumps(record["smallest"]["document"]))).of_kind("StaleRead")


def test_the_price_of_a_cure_is_in_bytes_and_where_the_engine_can_run_it_in_time(tmp_path, capsys):
    path = tmp_path / "known.json"
    document.write(
        Document.of(
            plan(program("x = host.write; a = exp x; b = neg x; c = add a b; host.read c"), "x=0 a=64 b=64 c=128")
        ),
        path,
    )
    assert main(["bisect", str(path), "--json"]) == 0
    cure = json.loads(capsys.readouterr().out)["cure"]
    # x, a and b live at once, so three slots are the least, and b and c find places among them
    assert (cure["bytes"], cure["pin_all_bytes"], cure["why_no_seconds"]) == (0, 64, None)
    assert set(cure["seconds"]) == {"default", "cured", "pinned"}
    assert all(seconds > 0 for seconds in cure["seconds"].values())
    assert main(["bisect", str(path)]) == 0
    assert "  a run takes " in capsys.readouterr().out


def test_bisect_of_a_clean_file_finds_nothing(sound, capsys):
    assert main(["bisect", sound]) == 1
    assert capsys.readouterr().out.endswith("nothing is wrong with it\n")


def test_bisect_of_a_program_that_is_wrong_by_itself_has_no_cure(tmp_path, capsys):
    path = tmp_path / "program.json"
    document.write(Document.of(plan(program("x = f w; host.read x"), "x=0 w=64")), path)
    assert main(["bisect", str(path)]) == 1
    said = capsys.readouterr().out
    assert "cure: none was found" in said
    assert "smallest: 1 of 2 ops" in said


def test_bisect_of_nothing_known_is_one_line(capsys, tmp_path):
    assert main(["bisect", "ggml-1502"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("allocsim: file or scenario 'ggml-1502' does not exist; did you mean ggml-1501")
    assert said.count("\n") == 1
    (tmp_path / "file").write_text("")
    assert main(["bisect", str(tmp_path / "file"), "-o", str(tmp_path / "file")]) == 2
    assert Path(tmp_path / "file").read_text() == ""


def test_bisect_of_a_scenario_ends_with_the_kernel(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["bisect", "ggml-1501", "--seq", "4", "--steps", "1", "--layers", "1", "--json", "-o", str(out)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["cause"]["class"], record["cause"]["fault"]) == ("C04", "kernel")
    assert record["cure"]["bytes"] == 0
    assert set(record["cure"]["seconds"]) == {"default", "cured", "pinned"}
    assert record["smallest"]["ops"] == 4
    assert json.loads((out / "bisect.json").read_text()) == record
