"""`allocsim repro` and `allocsim verdict` as a user meets them: output, exit status, one clear line on bad usage."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from expected import refused
from scenario_runs import small
from threadpoolctl import threadpool_info

from allocsim.cli import main
from allocsim.processor import VARIABLE
from allocsim.verdict.evidence import EVIDENCE_FILE, SESSION_FILE, save
from engine.models.llama import SMOLLM2_135M
from repro import scenarios

ROOT = Path(__file__).parents[2]
SMALL = ("--layers", "2", "--seq", "8", "--steps", "2")

NUMBER, WITNESS = (int, float), (dict, type(None))
SHAPE = {
    "scenario": str,
    "matches": bool,
    "expected": {"class": str, "fault": str},
    "verdict": {
        "class": str,
        "fault": str,
        "victim": WITNESS,
        "writer": WITNESS,
        "reader": WITNESS,
        "belief": (str, type(None)),
        "also": list,
        "cure": str,
        "cure_bytes": int,
        "pin_all_bytes": int,
        "text": str,
        "causes": list,
    },
    "detectors": dict,
    "causes": list,
    "examined": dict,
    "modes": {
        mode: {
            "loss": [NUMBER],
            "arena_bytes": int,
            "gradients": [
                {
                    "step": int,
                    "layer": int,
                    "tensor": str,
                    "ratio": (*NUMBER, type(None)),
                    "cosine": (*NUMBER, type(None)),
                }
            ],
        }
        for mode in ("default", "pinned", "reference")
    },
}
"""An entry of `runs`: keys and types, a list by what each of its entries is."""


def fits(thing, shape, place="run"):
    """Fail at the first place where a thing has other keys or types than its shape."""
    if isinstance(shape, dict):
        assert set(thing) == set(shape), place
        for name, inner in shape.items():
            fits(thing[name], inner, f"{place}.{name}")
    elif isinstance(shape, list):
        assert isinstance(thing, list), place
        for index, entry in enumerate(thing):
            fits(entry, shape[0], f"{place}[{index}]")
    else:
        assert isinstance(thing, shape), place
        assert shape is int or not isinstance(thing, bool) or shape is bool, place


def allocsim(*arguments, **environment):
    """Run the command; no traceback is ever acceptable."""
    done = subprocess.run(
        [sys.executable, "-m", "allocsim", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment},
    )
    assert "Traceback" not in done.stderr
    return done


def kernels_of_this_process():
    """Return the environment that gives a child's BLAS the kernels that numpy's has here, none where it is no OpenBLAS.

    The command asks OpenBLAS for kernels of its own choice (`allocsim.processor`), a process that only imports the library never: where the two
    choices differ (a processor newer than OpenBLAS's table, say), so do the last bits of the losses.
    """
    rows = [row for row in threadpool_info() if row["internal_api"] == "openblas" and "numpy" in row["filepath"]]
    return {VARIABLE: rows[0]["architecture"]} if rows else {}


@pytest.fixture
def evidence(tmp_path):
    """A folder with saved evidence of a fault."""
    folder = tmp_path / "evidence"
    save(small("ggml-1501").evidence, folder)
    return folder


def test_json_is_one_document_of_the_published_shape_and_nothing_else():
    done = allocsim("repro", "run", "ggml-1501", *SMALL, "--json", **kernels_of_this_process())
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert set(printed) == {"runs"}
    (run,) = printed["runs"]
    fits(run, SHAPE)
    assert run == json.loads(json.dumps(small("ggml-1501", base=SMOLLM2_135M).as_json()))
    assert set(run["detectors"]) == set("SHPDKRL")
    assert all({"status", "count"} <= set(says) for says in run["detectors"].values())


@pytest.mark.parametrize("name", ["ggml-1501-as-reported", "ggml-1501-seed", "ggml-1501+ggml-1501-as-reported"])
def test_every_scenario_has_that_shape(name):
    entry = small(name).as_json()
    fits(entry, SHAPE)
    for also in entry["verdict"]["also"]:
        assert {"class", "fault", "victim", "writer", "reader", "belief", "text"} <= set(also)


def test_a_repaired_twin_has_no_class_no_fault_and_no_cure():
    entry = small("ggml-1501", fixed=True).as_json()
    assert entry["expected"] == {"class": None, "fault": None}
    assert {name: entry["verdict"][name] for name in ("class", "fault", "victim", "belief", "cure", "also")} == {
        "class": None, "fault": None, "victim": None, "belief": None, "cure": None, "also": [],
    }  # fmt: skip


def test_a_run_prints_losses_gradients_detectors_and_the_verdict(monkeypatch, capsys):
    monkeypatch.setattr("repro.commands.repro.run", lambda *_, **__: small("ggml-1501-seed"))
    assert main(["repro", "run", "ggml-1501-seed", *SMALL]) == 0
    printed = capsys.readouterr().out
    for heading in (
        "loss by step",
        "gradients of step 2, default against reference",
        "arenas",
        "detectors",
        "verdict: ",
    ):
        assert heading in printed
    assert printed.endswith("as expected\n")


def test_a_wrong_expectation_exits_1_and_is_said(monkeypatch, capsys):
    wrong = replace(small("ggml-1501"), scenario=scenarios.find("ggml-1501-seed"))
    monkeypatch.setattr("repro.commands.repro.run", lambda *_, **__: wrong)
    assert main(["repro", "run", "ggml-1501-seed", *SMALL]) == 1
    assert capsys.readouterr().out.endswith("NOT as expected: C06 by the caller\n")
    assert main(["repro", "run", "ggml-1501-seed", *SMALL, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["runs"][0]["matches"] is False


def test_one_wrong_verdict_among_several_exits_1(monkeypatch, capsys):
    monkeypatch.setattr(
        "repro.commands.repro.run", lambda scenario, *_, **__: replace(small("ggml-1501"), scenario=scenario)
    )
    assert main(["repro", "run", *scenarios.MODULES, "--json"]) == 1
    assert [run["matches"] for run in json.loads(capsys.readouterr().out)["runs"]] == [True, False, False, False]


@pytest.mark.usefixtures("one_picture")
def test_a_report_folder_holds_the_record_the_page_and_the_evidence(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("repro.commands.repro.run", lambda *_, **__: small("ggml-1501"))
    out = tmp_path / "new" / "report"
    assert main(["repro", "run", "ggml-1501", "--json", "--out", str(out)]) == 0
    assert {"report.json", "report.md", "figures", SESSION_FILE, EVIDENCE_FILE} == {
        entry.name for entry in out.iterdir()
    }
    assert json.loads((out / "report.json").read_text()) == json.loads(capsys.readouterr().out)["runs"][0]
    assert main(["verdict", "--json", str(out)]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == json.loads((out / "report.json").read_text())["verdict"]


def test_a_verdict_is_recomputed_from_the_folder_alone(evidence):
    done = allocsim("verdict", evidence)
    assert (done.returncode, done.stderr) == (1, "")
    said = " ".join(done.stdout.split())  # lines are wrapped, and what was examined stands behind
    assert said.startswith(" ".join(" ".join(small("ggml-1501").verdict.clauses).split()))


def test_sound_evidence_exits_0(tmp_path, capsys):
    save(small("ggml-1501", fixed=True).evidence, tmp_path)
    assert main(["verdict", str(tmp_path)]) == 0
    assert "nothing wrong was found" in capsys.readouterr().out


HOSTILE = {
    "nothing": None,
    "empty": b"",
    "no JSON": b"{",
    "another format": b'{"format": "x"}',
    "another version": b'{"version": 2}',
    "unknown field": b'{"nope": 1}',
    "binary": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "no run": b'{"origins": [{"run": 9, "op": 0, "what": "result", "position": 0, "value": 0, "max_error": null}]}',
    "negative run": b'{"origins": [{"run": -1, "op": 0, "what": "result", "position": 0, "value": 0, "max_error": null}]}',
    "no op": b'{"origins": [{"run": 0, "op": 99999, "what": "result", "position": 0, "value": 0, "max_error": null}]}',
    "no value": b'{"origins": [{"run": 0, "op": 90, "what": "result", "position": 0, "value": -1, "max_error": null}]}',
    "no position": b'{"origins": [{"run": 0, "op": 90, "what": "result", "position": 7, "value": 0, "max_error": null}]}',
    "no such origin": b'{"origins": [{"run": 0, "op": 90, "what": "magic", "position": 0, "value": 0, "max_error": null}]}',
    "a huge number": b'{"origins": [{"run": 1e400, "op": 0, "what": "result", "position": 0, "value": 0, "max_error": null}]}',
    "too many digits": b'{"cure": {"elements": [], "nbytes": '
    + b"9" * 400
    + b', "pin_all_bytes": 0, "minimal": true, "trials": 1}}',
    "a value of another op": b'{"origins": [{"run": 0, "op": 90, "what": "result", "position": 0, "value": 0, "max_error": null}]}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_evidence_is_refused_in_one_line(name, evidence, capsys):
    path = evidence / EVIDENCE_FILE
    path.unlink()
    if HOSTILE[name] is not None:
        path.write_bytes(HOSTILE[name])
    assert EVIDENCE_FILE in refused(capsys, "verdict", evidence)


@pytest.mark.parametrize("broken", ["nothing", "empty", "no JSON", "binary", "deep", "another format"])
def test_a_hostile_session_is_refused_in_one_line(broken, evidence, capsys):
    path = evidence / SESSION_FILE
    path.unlink()
    if HOSTILE[broken] is not None:
        path.write_bytes(HOSTILE[broken])
    assert SESSION_FILE in refused(capsys, "verdict", evidence)


def test_names_in_evidence_cannot_break_a_line(evidence, capsys):
    path = evidence / EVIDENCE_FILE
    cure = {"elements": ["pin a\nb\x1b[31m"], "nbytes": 0, "pin_all_bytes": 0, "minimal": True, "trials": 1}
    path.write_text(json.dumps({"cure": cure}))
    assert main(["verdict", str(evidence)]) == 0
    said = capsys.readouterr().out
    assert "nothing wrong was found\n" in said
    assert "a\nb" not in said
    assert "\x1b" not in said


def test_no_folder_and_a_file_in_its_place_are_refused(tmp_path, capsys):
    refused(capsys, "verdict", tmp_path / "none")
    (tmp_path / "file").write_text("")
    refused(capsys, "verdict", tmp_path / "file")
    refused(capsys, "verdict")


STRANGERS = """
import sys
from allocsim.allocators import find

def raises(program):
    raise ValueError("two\\nlines")

def leaves(program):
    sys.exit(3)

def nonsense(program):
    return "nonsense"

def too_few(program):
    return [0]

def fractions(program):
    return [0.5] * len(program.buffers)

def another(program):
    from allocsim.programs.builder import ProgramBuilder, plan_of
    return plan_of(ProgramBuilder("other").build(), [])

def unplaced(program):
    return [None] * len(program.buffers)

def far(program):
    return [1 << 61] * len(program.buffers)
"""


@pytest.mark.parametrize(
    "name", ["raises", "leaves", "nonsense", "too_few", "fractions", "another", "unplaced", "far", "missing"]
)
def test_a_stranger_that_makes_no_plan_to_run_is_refused_in_one_line(name, tmp_path, monkeypatch, capsys):
    (tmp_path / "strangers_of_a_test.py").write_text(STRANGERS)
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "out"
    refused(capsys, "repro", "run", "ggml-1501", *SMALL, "--allocator", f"strangers_of_a_test:{name}", "--out", out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "scenario 'nothing' does not exist"),
        (("ggml-1501+nothing",), "scenario 'nothing' does not exist"),
        (("ggml-1501+",), "scenario '' does not exist"),
        (("ggml-1501+ggml-1501",), "joined with itself"),
        (("ggml-1501", "--all"), "not both"),
        ((), "--all"),
        (("ggml-1501", "--layers", "0"), "layers"),
        (("ggml-1501", "--layers", "-3"), "layers"),
        (("ggml-1501", "--layers", "x"), "--layers"),
        (("ggml-1501", "--seq", "0", "--layers", "2"), "seq"),
        (("ggml-1501", "--steps", "0", "--layers", "2", "--seq", "8"), "steps"),
        (("ggml-1501-seed", "--steps", "1", "--layers", "2", "--seq", "8"), "at least 2 steps"),
        (("ggml-1501-as-reported", "--layers", "1", "--seq", "8"), "at least 2 layers"),
        (("ggml-1501", "--seed", "-1"), "--seed"),
        (("ggml-1501", "--threads", "-1"), "--threads"),
        (("ggml-1501", "--allocator", "nobody", *SMALL), "allocator 'nobody' does not exist"),
        (("ggml-1501", "--allocator", "no_such_module:plan", *SMALL), "no_such_module"),
        (("ggml-1501", "--layers", "99999999999"), "layers"),
        (("ggml-1501", "--seq", "99999999999", "--layers", "2"), "seq"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(arguments, said, capsys):
    assert said in refused(capsys, "repro", "run", *arguments)


def test_a_folder_of_somebody_elses_is_refused_before_any_work(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("mine")
    assert "holds other things" in refused(capsys, "repro", "run", "ggml-1501", "--out", tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]
    assert "is a file" in refused(capsys, "repro", "run", "ggml-1501", "--out", tmp_path / "thesis.tex")
    refused(capsys, "repro", "run", "ggml-1501", "--out", tmp_path / "thesis.tex" / "below")
    refused(capsys, "repro", "run", "ggml-1501", "--out", "/proc/no/folder")


def test_list_and_show_say_what_must_be_found(capsys, monkeypatch):
    asked = []

    def recorded(scenario, options, *_):
        asked.append((scenario.name, options.fixed))
        return small("ggml-1501")

    monkeypatch.setattr("repro.commands.showing.run", recorded)
    assert main(["repro", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["scenarios"]
    assert [(s["name"], s["expected"]) for s in listed if s["runtime"] == "engine"] == [
        ("ggml-1501", [{"class": "C04", "fault": "kernel"}]),
        ("ggml-1501-as-reported", [{"class": "C01", "fault": "plan"}]),
        ("ggml-1501-seed", [{"class": "C06", "fault": "caller"}]),
        ("parallel-branches", [{"class": "C09", "fault": "plan"}]),
    ]
    assert main(["repro", "show", "ggml-1501+ggml-1501-seed"]) == 0
    shown = capsys.readouterr().out
    assert "expected: C04, fault of the kernel: " in shown
    assert "expected: C06, fault of the caller: " in shown
    assert asked == [("ggml-1501+ggml-1501-seed", fixed) for fixed in (True, False)]
    assert "does not exist" in refused(capsys, "repro", "show", "nothing")


def test_a_mode_that_is_none_is_refused_before_anything_is_trained(capsys):
    arguments = ["repro", "run", "ggml-1501", "--layers", "1", "--seq", "2", "--modes"]
    assert main([*arguments, "default,defualt"]) == 2
    assert capsys.readouterr().err == "allocsim: mode or allocator 'defualt' does not exist; did you mean default?\n"
