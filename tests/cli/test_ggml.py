"""`repro run` on real ggml, `audit` and `fuzz ggml`: what is printed, how it ends, one clear line where a library is missing."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from commands import allocsim
from ggml_live import BOTH, live

from allocsim.cli import main
from allocsim.systems.ggml.access import library
from repro import ggml_faults
from repro.on_ggml import library_run
from repro.scenarios import find

ROOT = Path(__file__).parents[2]
SMALL = ("--layers", "2", "--seq", "8")


def in_folder(folder, *arguments):
    """Run the command in a process of its own, in a folder with a module that it is to import."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, "-m", "allocsim", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """Run the command in this process, which imports what lies in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    _forget()
    yield allocsim
    _forget()


def _forget():
    """Forget the modules that tests write."""
    for name in ("plain", "some", "mine"):
        sys.modules.pop(name, None)


@pytest.fixture
def both():
    for which in BOTH:
        live(which)


@pytest.fixture
def warm(both, monkeypatch):
    """Runs take the children that all tests share, in which each task has a fork of its own as ever: none is started for each run."""
    for module in (ggml_faults, library_run):
        monkeypatch.setattr(module, "open_library", lambda which: nullcontext(live(which)))


MEASURED = {}
"""What was measured of a library, by what was asked."""


@pytest.fixture
def measured_once(monkeypatch):
    """The kernels of a library are measured once for the tests that ask for this: that is most of what a run costs."""
    measure, kept = library_run.audit, MEASURED

    def audit(child, **asked):
        key = child.which, str(asked)
        if key not in kept:
            kept[key] = measure(child, **asked)
        return kept[key]

    monkeypatch.setattr(library_run, "audit", audit)


@pytest.fixture
def no_wheels(monkeypatch):
    monkeypatch.setattr(library, "WHEELS", {which: (f"no-such-wheel-{which}", "*.so") for which in BOTH})


@pytest.mark.usefixtures("warm", "measured_once", "one_picture")
@pytest.mark.parametrize("steps", [4, pytest.param(20, marks=pytest.mark.campaign)])
def test_issue_1501_on_both_libraries_is_as_expected_and_kept(steps, tmp_path):
    asked = ("--runtime", "ggml", *SMALL, "--steps", steps, "--json", "--out", tmp_path)
    done = allocsim("repro", "run", "ggml-1501", *asked)
    assert (done.returncode, done.stderr) == (0, "")
    before, after = json.loads(done.stdout)["runs"]

    assert [run["library"] for run in (before, after)] == [
        {"name": "before", "version": "0.13.1"}, {"name": "after", "version": "0.26.0"},
    ]  # fmt: skip
    assert [run["expected"] for run in (before, after)] == [
        {"class": "C04", "fault": "kernel"},
        {"class": None, "fault": None},
    ]
    assert (before["verdict"]["class"], before["verdict"]["fault"]) == ("C04", "kernel")
    assert before["verdict"]["cure"].startswith("flag source 0 of every RMS_NORM_BACK as OUTPUT")
    assert (before["verdict"]["cure_bytes"], before["detectors"]["S"]["status"]) == (0, "clean")
    assert "soft_max_back" in before["partial_pins"]["text"]
    stated = find("ggml-1501").on_ggml
    for run, reports in ((before, stated.reports), (after, stated.reports_fixed)):
        assert run["matches"]
        status = {letter: one["status"] for letter, one in run["detectors"].items()}
        assert {letter for letter in status if status[letter] == "violations"} == set(reports.split())
        assert {letter for letter in status if status[letter] == "not run"} == set(stated.not_run.split())
        assert set(run["modes"]) == {"default", "pinned", "backward", "reference"}
        assert all(len(mode["loss"]) == steps for mode in run["modes"].values())
        assert {smoke["name"]: smoke["agrees"] for smoke in run["smokes"]} == {
            "rms_norm": True, "rope": True, "soft_max": True, "view": True, "concat": None,
        }  # fmt: skip
    assert {mode["first_difference"] for mode in after["modes"].values()} == {None}
    ratios = [row["ratio"] for row in before["modes"]["default"]["gradients"] if row["step"] == 1]
    assert all(ratio < 0.9 for ratio in ratios)
    for which, status in (("before", 1), ("after", 0)):
        assert allocsim("verdict", tmp_path / which).returncode == status
        assert json.loads((tmp_path / which / "report.json").read_text())["library"]["name"] == which


@pytest.mark.usefixtures("measured_once")
def test_a_run_prints_claims_smokes_and_the_verdict():
    live("before")
    done = allocsim("repro", "run", "ggml-1501", "--runtime", "ggml", "--ggml", "before", *SMALL, "--steps", "2")

    assert done.returncode == 0
    for said in (
        "loss by step",
        "gradients of step 1",
        "what ggml 0.13.1 must show",
        "only backward nodes pinned",
        "smoke tests",
        "C04",
    ):
        assert said in done.stdout
    assert done.stdout.endswith("as expected\n")


@pytest.mark.usefixtures("warm")
def test_the_seven_faults_get_their_verdicts_and_their_twins_come_out_clean(capsys):
    names = ["ggml-stale-plan", "ggml-late-output", "ggml-none-view", "ggml-output-on-view", "ggml-shared-gradient"]
    names += ["ggml-opt-accumulators", "ggml-forward-backward"]
    for options, status in (((), "violations"), (("--fixed",), "clean")):
        assert main(["repro", "run", *names, *options, "--json"]) == 0
        runs = json.loads(capsys.readouterr().out)["runs"]
        assert len(runs) == 14
        assert all(run["matches"] and run["detectors"]["D"]["status"] == status for run in runs)


def test_a_fault_prints_the_numbers_the_host_read():
    live("after")
    done = allocsim("repro", "run", "ggml-late-output", "--ggml", "after")

    assert done.returncode == 0
    assert "found   30" in done.stdout
    assert "wanted  2" in done.stdout


@pytest.mark.usefixtures("no_wheels")
def test_without_the_wheels_a_named_scenario_is_one_line_and_all_skips_with_the_reason(capsys, monkeypatch):
    monkeypatch.setattr("repro.commands.repro_ggml.WHEELS", library.WHEELS)
    for arguments in (("ggml-none-view",), ("ggml-1501", "--runtime", "ggml")):
        assert main(["repro", "run", *arguments]) == 2
        said = capsys.readouterr()
        assert said.err.endswith("not installed; pip install 'allocsim[ggml]'\n")
        assert (said.err.count("\n"), said.out) == (1, "")
    assert main(["repro", "run", "--all", "--runtime", "ggml", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["runs"] == []
    assert len(printed["skipped"]) == 2 * 8
    assert all("not installed" in entry["skipped"] for entry in printed["skipped"])


FUNCTIONS = """
import os, time
import numpy as np

def clear_then_add(out, x, y):
    out[...] = 0
    out += x
    out += y

def dies(x, out):
    if np.may_share_memory(x, out):
        os.abort()
    out[...] = x

def hangs(x, out):
    while np.may_share_memory(x, out):
        time.sleep(1)
    out[...] = x

def refuses(x, out):
    raise ValueError("not today")

ROW = {"dtypes": "f32", "shapes": [[(5,), (5,)]]}
KERNELS = {
    "ufunc": {"call": np.add, "dtypes": "f32", "signature": "(n),(n)->(n)"},
    "plus": {"call": clear_then_add, "in_place": [[0, 0]], "dtypes": "f32", "shapes": [[(5,), (5,), (5,)]]},
    "add": {"call": clear_then_add, "dtypes": "f32", "shapes": [[(5,), (5,), (5,)]]},
    "dies": {"call": dies, **ROW},
    "hangs": {"call": hangs, **ROW},
    "refuses": {"call": refuses, **ROW},
}
WRONG_KEY = {"plus": {"call": clear_then_add, "inplace": []}}
WRONG_SHAPE = {"plus": {"call": clear_then_add, "signature": "(n)->(n)"}}
"""


def test_plain_functions_are_measured_and_may_crash_hang_or_raise(tmp_path, beside):
    """Each is a finding in its own cell, and what comes after it is measured all the same."""
    (tmp_path / "plain.py").write_text(FUNCTIONS)
    arguments = (
        "audit",
        "plain:KERNELS",
        "--layouts",
        "apart,over",
        "--timeout",
        "8",
        "--json",
        "--picture",
        tmp_path / "k.png",
    )
    done = in_folder(tmp_path, *arguments)
    rows = {(row["op"], row["layout"], row["source"]): row for row in json.loads(done.stdout)["rows"]}

    assert (done.returncode, done.stderr) == (1, "")
    assert (tmp_path / "k.png").stat().st_size > 1000
    assert {key: row["verdict"] for key, row in rows.items() if key[1] == "over"} == {
        ("ufunc", "over", 0): "kept", ("ufunc", "over", 1): "kept",
        ("plus", "over", 0): "broken", ("plus", "over", 1): "unsafe",
        ("add", "over", 0): "assumed", ("add", "over", 1): "assumed",  # ggml's list has an op of this name
        ("dies", "over", 0): "unsafe", ("hangs", "over", 0): "unsafe", ("refuses", "over", 0): "unsafe",
    }  # fmt: skip
    assert [rows[name, "over", 0]["measured"] for name in ("dies", "hangs", "refuses")] == [
        "crashed",
        "hung",
        "crashed",
    ]
    assert "SIGABRT" in rows["dies", "over", 0]["words"]
    assert "not today" in rows["refuses", "over", 0]["words"]
    assert [rows[name, "apart", 0]["verdict"] for name in ("dies", "hangs", "refuses")] == ["kept", "kept", "broken"]
    for name, said in (("WRONG_KEY", "key 'inplace' is not known"), ("WRONG_SHAPE", "is not of 2 operands")):
        refused = beside("audit", f"plain:{name}")
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert said in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ggml-1501-seed", "--runtime", "ggml"), "cannot be run on real ggml"),
        (("ggml-1501+ggml-1501-seed", "--runtime", "ggml"), "cannot be run on real ggml"),
        (("ggml-stale-plan+ggml-1501",), "is a fault of real ggml"),
        (("ggml-1501", "--runtime", "ggml", "--fixed"), "--fixed is for the engine only"),
        (("ggml-1501", "--runtime", "ggml", "--pin-leafs"), "--pin-leafs is for the engine only"),
        (("ggml-1501", "--runtime", "ggml", "--allocator", "reference"), "--allocator is for the engine only"),
        (("ggml-1501", "--ggml", "before"), "goes with --runtime ggml"),
        (("match-cast", "--full"), "a small scenario has one size"),
        (("ggml-stale-plan", "--layers", "2"), "a fault of ggml has one size"),
        (("ggml-stale-plan", "--ggml", "./nowhere.so"), "no such library"),
        (("ggml-1501", "--runtime", "ggml", "--ggml", "later"), "did you mean after"),
        (("ggml-stale-plam",), "did you mean ggml-stale-plan"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(arguments, said, capsys):
    assert main(["repro", "run", *arguments]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert (printed.err.count("\n"), printed.out) == (1, "")


def test_list_and_show_say_what_runs_on_ggml(capsys):
    assert main(["repro", "list"]) == 0
    listed = [line.split()[:4] for line in capsys.readouterr().out.splitlines()]
    assert ["ggml-stale-plan", "ggml", "C08", "plan"] in listed
    assert main(["repro", "show", "ggml-stale-plan"]) == 0
    assert "expected: C08, fault of the plan" in capsys.readouterr().out


@pytest.mark.parametrize(
    "chosen",
    [("--ops", "ADD,RMS_NORM_BACK,SOFT_MAX_BACK,SQR"), pytest.param((), marks=pytest.mark.campaign)],
    ids=["four ops", "all ops"],
)
def test_the_audit_of_the_older_library_finds_the_two_kernels_and_writes_their_graphs(chosen, tmp_path):
    live("before")
    done = allocsim("audit", "--ggml", "before", *chosen, "--layouts", "over", "--json", "-o", tmp_path)
    printed = json.loads(done.stdout)
    unsafe = {(row["op"], row["source"]) for row in printed["rows"] if row["measured"] == "unsafe"}

    assert (done.returncode, printed["agree"]) == (1, False)
    assert {("RMS_NORM_BACK", 0), ("SOFT_MAX_BACK", 1)} <= unsafe
    assert all(
        {"op", "source", "declared", "measured", "max_error", "cases", "reachable"} <= set(row)
        for row in printed["rows"]
    )
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{op.lower()}-{source}{suffix}" for op, source in unsafe for suffix in (".json", "")
    }
    witnesses = sorted(tmp_path.glob("*.json"))
    assert (
        allocsim("check", *witnesses).returncode == 0
    )  # the plans are legal: what is wrong stands in the evidence beside them
    said = [allocsim("verdict", witness.with_suffix("")) for witness in witnesses]
    assert {one.returncode for one in said} == {1}
    assert all("C04, fault of the kernel" in one.stdout for one in said)


@pytest.mark.usefixtures("both")
def test_the_pairs_that_a_version_gets_wrong_stand_in_one_table(capsys):
    """ADD_ID is wrong in both, RMS_NORM_BACK in one; SQR in none; what cannot be opened is a line."""
    chosen = ("--ops", "ADD_ID,RMS_NORM_BACK,SQR", "--fuzz", "96")
    assert main(["audit", "--ggml", "before,after,./nowhere.so", *chosen, "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    before, after = "0.13.1 (before)", "0.26.0 (after)"

    assert [
        (row["op"], row["source"], row[before].split(",")[0], row[after].split(",")[0]) for row in printed["rows"]
    ] == [
        ("ADD_ID", 1, "unsafe", "unsafe"),
        ("RMS_NORM_BACK", 0, "unsafe", "safe"),
    ]
    assert [row[before] for row in printed["rows"]][1] == "unsafe, fuzzed"
    assert [column["ggml"] for column in printed["versions"]] == [before, after]
    assert "no such library" in printed["refused"]["./nowhere.so"]


@pytest.mark.campaign
def test_the_engines_own_kernels_agree_and_the_planted_ones_do_not(tmp_path, capsys):
    """Of some of them the next test asks the same; of all, without the command, the tests of `engine.k_audit`."""
    assert main(["audit", "--layouts", "over", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["agree"]
    assert main(["audit", "--variants", "--layouts", "over", "-o", str(tmp_path)]) == 1
    assert "rms_norm_back (two_pass)" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {
        "rms_norm_back-two_pass-0.json",
        "soft_max_back-two_pass-1.json",
    }


SOME = """
from engine.kernels import KERNELS as ALL

SOME = {kind: ALL[kind] for kind in ("add", "rms_norm_back", "silu", "soft_max_back")}
AS_RUN = {kind: {name: variants[name] for name in [next(iter(variants))]} for kind, variants in SOME.items()}
"""


def test_some_of_the_engines_kernels_agree_and_the_planted_ones_do_not(tmp_path, beside):
    (tmp_path / "some.py").write_text(SOME)
    done = beside("audit", "some:AS_RUN", "--layouts", "over", "--json")
    assert (done.returncode, json.loads(done.stdout)["agree"]) == (0, True)
    done = beside("audit", "some:SOME", "--layouts", "over", "-o", tmp_path / "out")
    assert done.returncode == 1
    assert "rms_norm_back (two_pass)" in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "rms_norm_back-two_pass-0.json",
        "soft_max_back-two_pass-1.json",
    }


TABLE = """
import numpy as np
from engine.k_audit import AuditCase, AuditLayout
from engine.kernels import Kernel

def bind(params, operands, results):
    def run(a, b, out):
        np.copyto(out, a)
        out += b
    return run, (*operands, *results)

ROW = AuditLayout(dtype="f32", shape=(7,), strides=(4,))
KERNELS = {"blend": {"copy_then_add": Kernel(bind=bind, in_place=((0, 0), (1, 0)))}}
CASES = [AuditCase(kind="blend", operands=(ROW, ROW), results=(ROW,))]
EMPTY = {}
"""


def test_a_table_of_ones_own_is_measured(tmp_path, beside):
    (tmp_path / "mine.py").write_text(TABLE)
    done = beside("audit", "mine:KERNELS", "--json")
    rows = {(row["layout"], row["source"]): row for row in json.loads(done.stdout)["rows"]}

    assert done.returncode == 1
    assert (rows["over", 0]["measured"], rows["over", 1]["measured"]) == ("safe", "unsafe")
    assert (rows["over", 0]["verdict"], rows["over", 1]["verdict"]) == ("kept", "broken")
    for name, said in (("EMPTY", "is no table of kernels"), ("KERNEL", "did you mean KERNELS")):
        refused = beside("audit", f"mine:{name}")
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert said in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("audit", "nowhere"), "write package.module:KERNELS"),
        (("audit", "no.such:KERNELS"), "does not exist"),
        (("audit", "--ggml", "after", "--variants"), "takes neither a table nor --variants"),
        (("audit", "--ggml", "./nowhere.so"), "no such library"),
        (("audit", "--ggml", "./nowhere.so,./neither.so"), "no such library"),
        (("audit", "--ggml", "all", "--out", "x"), "of one library"),
        (("audit", "--ggml", "after", "--fuzz", "3"), "--fuzz goes with several"),
        (("fuzz", "gmlg"), "target 'gmlg' does not exist; did you mean ggml"),
        (("fuzz", "ggml", "--examples", "0"), "--examples"),
        (("fuzz", "ggml", "--ggml", "./nowhere.so"), "no such library"),
    ],
)
def test_bad_usage_of_audit_and_fuzz_is_one_line_and_exit_2(arguments, said, capsys):
    assert main(list(arguments)) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert (printed.err.count("\n"), printed.out) == (1, "")


def test_findings_of_the_fuzzer_are_kept_repeat_by_seed_and_can_be_read_again(tmp_path):
    live("before")
    arguments = ("fuzz", "ggml", "--ggml", "before", "--seed", "0", "--examples", "1")
    done = allocsim(*arguments, "--json", "--out", tmp_path)
    printed = json.loads(done.stdout)
    (first,), again = printed["findings"], allocsim(*arguments, "--no-shrink")

    assert (done.returncode, first["seed"], first["kind"], first["words"]) == (1, 0, "unsound", "MissingPin")
    assert allocsim("check", first["file"]).returncode == 1
    assert allocsim("capture", "ggml", "--ggml", "before", "--recipe", first["file"]).returncode == 1
    assert (again.returncode, again.stdout.startswith("seed 0: unsound: ")) == (1, True)


def test_seeds_without_a_finding_exit_0():
    """Seeds 3 to 6: no plan of theirs shares a pair that the audit convicts, so that no race decides how the command ends."""
    live("after")
    done = allocsim("fuzz", "ggml", "--seed", "3", "--examples", "4")

    assert (done.returncode, done.stdout) == (0, "0 of 4 graphs have a finding, of 0 causes\n")


def test_a_campaign_goes_on_where_its_corpus_ended_and_jobs_find_the_same(tmp_path):
    """Seeds 60 to 99 of the current library, in two halves and at once in two processes."""
    live("after")
    arguments = ("fuzz", "ggml", "--seed", "60", "--no-shrink", "--json")
    halves = [json.loads(allocsim(*arguments, "--examples", n, "--corpus", tmp_path).stdout) for n in ("20", "40")]
    whole = json.loads(allocsim(*arguments, "--examples", "40", "--jobs", "2").stdout)

    assert [half["examples"] for half in halves] == [20, 40]
    found = [(entry["seed"], entry["cause"]) for half in halves for entry in half["findings"]]
    assert {cause for _, cause in found} == {entry["cause"] for entry in whole["findings"]}
    assert halves[1]["causes"] == {entry["cause"]: entry["count"] for entry in whole["findings"]}
    assert {f"seed-{seed}.json" for seed, _ in found} | {"progress.json"} == {p.name for p in tmp_path.iterdir()}
    other = allocsim("fuzz", "ggml", "--seed", "61", "--corpus", tmp_path)
    assert (other.returncode, other.stderr.count("\n")) == (2, 1)


def test_bisect_of_a_witness_names_the_command_that_writes_the_one_op_graph(tmp_path):
    live("after")
    allocsim("audit", "--ggml", "after", "--layouts", "over", "--ops", "ADD_ID", "-o", tmp_path)
    done = allocsim("bisect", tmp_path / "add_id-1.json", "--ggml", "after")
    checked = " ".join(allocsim("check", tmp_path / "add_id-1.json").stdout.split())

    assert "`allocsim audit --ggml after --ops ADD_ID -o DIR`" in done.stdout
    assert "S and L clean; kernels not examined" in checked
    assert "`allocsim diagnose FILE` runs a capture" in checked
