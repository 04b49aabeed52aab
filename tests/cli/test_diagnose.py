"""`allocsim diagnose` and `verdict`: one door for a document, a captured graph, a folder of evidence."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from allocsim import document
from allocsim.allocators import ALLOCATORS
from allocsim.cli import main
from allocsim.judge import fast
from allocsim.model import Document, Problem, Run
from allocsim.programs.builder import ProgramBuilder, plan_of

DATA = Path(__file__).parents[1] / "data"
FIRST = {"run", "step", "op", "value", "buffer", "bytes"}


def program():
    """Kinds the engine has kernels for."""
    b = ProgramBuilder("step")
    x, y, z = (b.tensor(name, "f32", (16,)) for name in "xyz")
    b.op("host.write", (), (x,))
    b.op("neg", (x,), (y,))
    b.op("add", (y, x), (z,))
    b.op("host.read", (z,), ())
    return b.build()


@pytest.fixture
def unplanned(tmp_path):
    path = tmp_path / "unplanned.json"
    document.write(Document.of(Problem.of(program())), path)
    return path


def said(capsys, *arguments):
    """Return exit status, output and complaint of a command."""
    status = main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


@pytest.mark.parametrize("command", ["diagnose", "verdict"])
def test_a_problem_without_a_plan_is_no_plan_and_exit_2(command, unplanned, capsys):
    status, _, complaint = said(capsys, command, unplanned)

    assert (status, complaint) == (2, f"allocsim: {unplanned}: no plan here\n")


@pytest.mark.parametrize("command", ["diagnose", "verdict", "check"])
@pytest.mark.parametrize("belief", [{}, {"start": [0, 1, 2], "stop": [1, 3, 4]}], ids=["true", "false"])
def test_no_plan_is_exit_2_behind_every_door_whatever_is_believed(command, belief, tmp_path, capsys):
    path = tmp_path / "unplanned.json"
    document.write(Document.of(Problem.of(program(), **belief)), path)
    status, shown, complaint = said(capsys, command, path)

    assert status == 2
    assert "no plan here" in shown + complaint
    assert ("1. C0" in shown) is (bool(belief) and command != "verdict")


@pytest.mark.parametrize("command", ["diagnose", "verdict", "check"])
def test_a_plan_of_no_buffers_is_a_plan(command, tmp_path, capsys):
    path = tmp_path / "empty.json"
    document.write(Document.of(plan_of(ProgramBuilder("nothing").build(), [])), path)
    status, shown, complaint = said(capsys, command, path)

    assert (status, complaint) == (0, "")
    assert "S clean" in shown
    assert "no plan here" not in shown


@pytest.mark.parametrize("command", ["diagnose", "verdict", "check"])
def test_strict_makes_an_alias_that_nobody_vouches_for_a_violation(command, tmp_path, capsys):
    b = ProgramBuilder("step")
    x, y = (b.tensor(name, "f32", (16,)) for name in "xy")
    b.op("host.write", (), (x,))
    b.op("of.a.kind.unknown", (x,), (y,), in_place=None)
    b.op("host.read", (y,), ())
    path = tmp_path / "assumed.json"
    document.write(Document.of(plan_of(b.build(), [0, 0])), path)

    assert [said(capsys, command, path, *strict)[0] for strict in ((), ("--strict",))] == [0, 1]


@pytest.mark.parametrize("command", ["diagnose", "verdict", "check"])
def test_what_the_steps_do_not_reach_is_refused_and_the_way_on_named(command, tmp_path, capsys, monkeypatch):
    """Runs that read what the first was given: each is a look that takes steps."""
    b = ProgramBuilder("step")
    x = b.tensor("x", "f32", (2,))
    b.op("host.write", (), (x,))
    b.op("host.read", (x,), ())
    plan = plan_of(b.build(), [0])
    runs = tuple(Run(program=plan.program, plan=plan, skip=(0,) if number else ()) for number in range(50))
    path = tmp_path / "long.json"
    document.write(replace(Document.of(plan), session=runs), path)
    monkeypatch.setattr(fast, "WORK", 10)

    status, shown, complaint = said(capsys, command, path)
    assert status == 2
    assert "what reads find from run" in shown + complaint
    assert "--unbounded" in shown + complaint
    assert said(capsys, command, path, "--unbounded")[0] == 0


@pytest.mark.parametrize("command", ["diagnose", "verdict", "check"])
@pytest.mark.parametrize(
    ("name", "status", "party"),
    [("plan-and-kernel-KD", 1, "kernel"), ("plan-over-output.json", 1, "plan"), ("told-and-ignored.json", 1, "plan")],
)
def test_a_file_and_a_folder_go_through_every_door(command, name, status, party, capsys):
    found, shown, _ = said(capsys, command, DATA / "cases" / name, "--json")
    record = json.loads(shown)
    judged = record if command == "verdict" else record["files"][0]

    assert found == status
    assert party in {cause["party"] for cause in judged["causes"]}
    for cause in judged["causes"]:
        assert set(cause) == {"number", "class", "party", "places", "first", "mend", "cure"}
        assert set(cause["first"]) == FIRST
        assert cause["cure"] is None or {"elements", "nbytes", "verified"} <= set(cause["cure"])
        assert cause["cure"] is None or all("kind" in element for element in cause["cure"]["elements"])
    assert list(judged["examined"]) == list("SLHPDKR")
    assert all(set(row) == {"state", "why", "of"} for row in judged["examined"].values())
    assert {row["state"] for row in judged["examined"].values()} <= {"clean", "found", "not run"}


def test_what_the_engine_can_run_is_run(tmp_path, capsys):
    """A late read in numbers as well as in bytes; and the same program planned right."""
    wrong, right = tmp_path / "wrong.json", tmp_path / "right.json"
    document.write(Document.of(plan_of(program(), [0, 0, 64], source="by hand")), wrong)
    document.write(Document.of(ALLOCATORS["greedy_by_size"].plan(program())), right)

    status, shown, _ = said(capsys, "diagnose", wrong, "--json")
    examined = json.loads(shown)["files"][0]["examined"]
    assert status == 1
    assert {letter for letter in examined if examined[letter]["state"] == "found"} >= {"S", "D"}

    status, shown, _ = said(capsys, "diagnose", right, "--require", "S,L,P,D,K")
    assert status == 0
    assert "S, L, P, D and K clean" in shown
    assert "P, D and K by the engine's kernels on data of seed 0" in " ".join(shown.split())


def test_what_the_engine_cannot_run_is_said_and_required_in_vain(capsys):
    captured = DATA / "ggml" / "fwd_2L_none.json"
    status, shown, _ = said(capsys, "diagnose", captured)
    assert status == 0
    assert "kernels not examined" in shown
    assert "P, D, K not run: op" in shown
    assert said(capsys, "diagnose", captured, "--require", "K")[0] == 2


def test_a_detector_that_is_none_is_bad_usage(unplanned, capsys):
    status, _, complaint = said(capsys, "check", unplanned, "--require", "Q")

    assert status == 2
    assert "'Q' is no detector" in complaint


# --- how the judge is asked -----------------------------------------------------------------------------------------------


def test_what_nobody_vouches_for_is_counted_and_convicted_where_it_must_be(tmp_path, capsys):
    """A matmul's result over its operand, of which the document says that nobody knows."""
    b = ProgramBuilder("p")
    x, y = (b.tensor(name, "f32", (4, 4)) for name in "xy")
    b.op("host.write", (), (x,))
    b.op("dot", (x,), (y,), in_place=None)
    b.op("host.read", (y,), ())
    path, table = tmp_path / "p.json", tmp_path / "kinds.json"
    document.write(Document.of(plan_of(b.build(), [0, 0])), path)

    status, shown, _ = said(capsys, "check", path)
    assert status == 0
    assert "an in-place pair that nobody vouches for" in " ".join(shown.split())
    assert said(capsys, "check", path, "--strict")[0] == 1
    for says, expected in (("safe", 0), ("unsafe", 1), ("unknown", 0)):
        table.write_text(json.dumps({"kinds": {"dot": [{"pair": [0, 0], "says": says, "source": "a manual"}]}}))
        status, shown, _ = said(capsys, "check", path, "--kinds", table)
        assert status == expected
        assert ("vouches for" in shown) is (says == "unknown")
        for command in ("verdict", "diagnose"):
            assert said(capsys, command, path, "--kinds", table)[0] == expected, (command, says)
    assert said(capsys, "check", path, "--plain")[1] == said(capsys, "check", path)[1]


@pytest.mark.parametrize("command", ["check", "verdict", "diagnose"])
@pytest.mark.parametrize("text", ["{", '{"kinds": 3}', '{"kinds": {"dot": [3]}}', "\xff"])
def test_a_table_that_is_none_is_one_line(text, command, tmp_path, capsys):
    table = tmp_path / "kinds.json"
    table.write_text(text, encoding="latin-1")
    status, _, complaint = said(capsys, command, DATA / "cases" / "missed-reader.json", "--kinds", table)

    assert status == 2
    assert complaint.startswith(f"allocsim: {table}: ")
    assert complaint.count("\n") == 1


def test_of_a_graph_of_ggml_it_is_said_which_audit_measures_its_kernels(capsys):
    """Its kernels are not the engine's: `diagnose` runs captures, `audit --ggml` the kinds of any graph."""
    _, shown, _ = said(capsys, "check", DATA / "ggml" / "fwd_2L_all.json")
    assert "`allocsim audit --ggml LIBRARY`" in shown
    _, shown, _ = said(capsys, "check", DATA / "cases" / "missed-reader.json")
    assert "--ggml" not in shown
