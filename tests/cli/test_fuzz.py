"""`allocsim fuzz`: what is printed, how it ends, and one clear line for what cannot be."""

import json
import os
import re
import subprocess
import sys
from math import comb
from pathlib import Path

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.cli import main
from allocsim.fuzzing import Answer, FuzzCase, Target
from allocsim.fuzzing import exercised as exercising
from allocsim.fuzzing.examination import finding_of
from allocsim.fuzzing.exhaustive import ARENAS, SCOPE, Odometer, total
from allocsim.fuzzing.features import FEATURES
from allocsim.fuzzing.mutants import MUTANTS
from allocsim.fuzzing.pasting import pasted
from allocsim.programs.builder import ProgramBuilder

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_tests(monkeypatch):
    monkeypatch.chdir(ROOT / "tests")  # where `bad_planners` is


def said(capsys, *arguments):
    status = main(["fuzz", *arguments])
    return status, capsys.readouterr().out


def test_every_program_of_a_scope_is_a_proof_with_its_number(capsys):
    status, out = said(capsys, "greedy_by_size", "--exhaustive", "2")
    what = ": 19 of them; proven of these programs, and of no others: "

    assert status == 0
    assert f"nothing found in every program of up to 2 ops over {SCOPE}" in out
    assert what + "answers, sound, no_worse, deterministic, pins, kept\n" in out


def test_the_scope_that_is_said_is_that_of_the_programs_that_are_made():
    made = Odometer(4).batch(total(4)).program

    assert "one arena without an end, everything aligned to 4 bytes, one stream, buffers of 4 or 8 bytes" in SCOPE
    assert [(arena.alignment, arena.capacity) for arena in ARENAS] == [(4, None)]
    assert set(made.buffers.alignment.tolist()) == {4}
    assert set(made.buffers.nbytes.tolist()) == {4, 8}
    assert len(made.streams) == 1
    assert "ops of one or two operands and one result with pairs declared exactly or not" in SCOPE
    assert set(np.diff(made.ops.operand_starts).tolist()) == {0, 1, 2}
    assert made.ops.in_place_known.all()
    assert not made.ops.in_place_strength.any()


def test_a_finding_is_printed_as_it_comes_and_again_at_the_end(capsys):
    _, out = said(capsys, "bad_planners:overlaps", "--exhaustive", "2", "--no-shrink")
    lines = out.splitlines()
    at_once = [line for line in lines if line.startswith("found: ")]

    assert lines[: len(at_once)] == at_once
    assert len(set(at_once)) == len(at_once) > 0
    assert {line.removeprefix("found: ").rpartition(" (")[0] for line in at_once} >= {
        line.rpartition(" (")[0] for line in lines if line.startswith("sound: ")
    }
    assert sum(line.startswith("--out DIR writes each") for line in lines) == 1


@pytest.mark.parametrize(
    ("target", "proven"),
    [
        ("buddy", ["answers", "deterministic", "kept", "pins", "sound"]),
        ("bad_planners:good", ["answers", "deterministic", "no_worse", "sound"]),
        ("bad_planners:overlaps", []),
    ],
)
def test_what_is_proven_is_what_every_program_was_asked(capsys, target, proven):
    _, out = said(capsys, target, "--exhaustive", "2", "--json", "--no-shrink")

    assert sorted(json.loads(out)["proven"]) == proven


def test_a_finding_is_written_as_a_document_a_picture_and_a_test_that_holds(capsys, tmp_path):
    out = tmp_path / "found"
    status, text = said(
        capsys,
        "bad_planners:overlaps",
        "--exhaustive",
        "2",
        "--out",
        str(out),
        "--json",
        "--corpus",
        str(tmp_path / "corpus"),
    )
    findings = json.loads(text)["findings"]

    assert status == 1
    assert {found["property"] for found in findings} >= {"sound"}
    assert all(found["minimal"] and found["ops"] <= 2 for found in findings)
    folder = out / next(found["key"] for found in findings if found["property"] == "sound")
    assert main(["check", str(folder / "smallest.json")]) == 1
    assert (folder / "smallest.png").stat().st_size > 1000
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    run = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        str(folder / "test_smallest.py"),
    ]
    done = subprocess.run(
        run, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout  # the planner does it again


PLANNER = """
from allocsim.allocators import ALLOCATORS


def plan(program):
    return ALLOCATORS["reference"].plan(program)
"""

BITS = """
from engine.d_differential import execution as executing

executing.execute = lambda plan: "result 0 of op 0 differs" if len(plan.program.ops) > 1 else None
"""


def test_the_test_of_wrong_bits_runs_the_plan_under_the_same_limits(tmp_path):
    """The engine is a mock: planners with wrong bits and no other fault are what the fuzzer is there to find."""
    (tmp_path / "strange.py").write_text(PLANNER)
    (tmp_path / "conftest.py").write_text(BITS)
    builder = ProgramBuilder("two")
    value = builder.tensor("x", "f32", (4,))
    builder.op("host.write", (), (value,))
    builder.op("host.read", (value,), ())
    case = FuzzCase(program=builder.build())
    plan = ALLOCATORS["reference"].plan(case.program)
    finding = finding_of(
        "bits", ("other results than without reuse", "result 0 of op 0 differs"), case, Answer(plan=plan)
    )
    text = pasted(finding, Target(name="strange:plan", seconds=3.0, memory=1 << 30), by="a test")
    assert "Target(name='strange:plan', seconds=3.0, memory=1073741824)" in text
    (tmp_path / "test_smallest.py").write_text(text)

    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_smallest.py"]
    done = subprocess.run(
        run, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "breaks='bits'" in done.stdout, done.stdout


def test_what_was_done_is_not_done_again(capsys, tmp_path):
    arguments = ("reference", "--bulk", "--examples", "100", "--json", "--corpus", str(tmp_path))
    once, again = (json.loads(said(capsys, *arguments)[1]) for _ in range(2))

    assert once == again
    assert once["exercised"]["programs"] == 100


def test_each_two_choices_are_counted_or_said_why_not(capsys):
    _, out = said(capsys, "greedy_by_size", "--exhaustive", "2", "--json")
    shown = json.loads(out)["exercised"]

    assert {pair for pair, count in shown["choices"].items() if not count} == set(shown["never"])
    assert all(shown["never"].values())
    assert shown["choices"]["operands: one + results: one"] > 0
    assert shown["never"]["arenas: 2 + streams: 1"] == "the source exhaustive does not draw it"
    assert "promises `streams`" in shown["never"]["streams: 2 + waits: as values need"]


def test_training_graphs_are_planned_and_run(capsys):
    status, out = said(capsys, "reference", "--training", "--execute", "--examples", "3", "--json")
    shown = json.loads(out)

    assert status == 0
    assert shown["options"] == {"strategy": "engine.autodiff.training_graphs:training_programs"}
    assert shown["exercised"]["executed"] == 6  # as they are, and with everything pinned
    assert shown["exercised"]["features"]["persistent"] == 3


def test_coverage_says_what_the_campaign_was_worth(capsys, monkeypatch):
    """One mutant stands for all."""
    pytest.importorskip("coverage")
    monkeypatch.setattr(exercising, "MUTANTS", {"arenas_mixed": MUTANTS["arenas_mixed"]})
    status, out = said(capsys, "bad_planners:forgets_views", "--examples", "20", "--no-shrink", "--coverage")

    assert status == 1
    assert re.search(r"branches of \S*bad_planners.py: [1-9]\d* of \d+; never all ways from line \d+", out)
    assert re.search(rf"pairs of features: [1-9]\d* of {comb(len(FEATURES), 2)}", out)
    assert out.count("pairs of features") == len(re.findall(r"(?m)^view of a view +\d", out)) == 1
    assert "mutants killed: 1 of 1" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nobody",), "target 'nobody' does not exist"),
        (("mine.py",), "target 'mine.py' does not exist; did you mean mine:FUNCTION?"),
        (("no_such_module:plan",), "module 'no_such_module' does not exist"),
        (("bad_planners:nobody",), "function of bad_planners 'nobody' does not exist"),
        (("reference", "--bulk", "--exhaustive", "2"), "two sources"),
        (("reference", "--bulk", "--training"), "two sources"),
        (("ggml", "--training"), "not for the target ggml"),
        (("reference", "--exhaustive", "2", "--examples", "5"), "--examples cannot limit it"),
        (("reference", "--exhaustive", "9"), "--exhaustive takes at most 8 ops"),
        (("reference", "--examples", "0"), "--examples"),
        (("reference", "--memory", "much"), "no number of bytes"),
        (("reference", "--corpus", "/dev/null/corpus"), "cannot be written"),
        (("reference", "--out", "/dev/null/out"), "cannot be written"),
        (("ggml", "--bulk"), "--bulk: not for the target ggml"),
        (("ggml", "--scheduler", "tcp://nowhere:1"), "--scheduler: not for the target ggml"),
        (("ggml", "--coverage"), "--coverage: not for the target ggml"),
        (("ggml", "--timeout", "10", "--memory", "2GiB"), "--timeout, --memory: not for the target ggml"),
        (("reference", "--ggml", "after"), "--ggml names the library of the target ggml"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2(arguments, words, capsys):
    assert main(["fuzz", *arguments]) == 2

    done = capsys.readouterr()
    assert done.out == ""
    assert words in done.err
    assert done.err.count("\n") == 1
