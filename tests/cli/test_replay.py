"""`allocsim replay` on files: the table, what is kept and gone on from, and one line for what cannot be replayed."""

import json
from dataclasses import replace

import pytest

from allocsim.allocators import find
from allocsim.cli import main
from allocsim.document import write
from allocsim.model import Document, Role
from allocsim.programs.builder import ProgramBuilder, plan_of


def document(allocator="linear_scan"):
    """x; h = exp(x); y = h + x; z = neg(y), in slots of an allocator or of one's own."""
    b = ProgramBuilder("p")
    x = b.tensor("x", "f32", (16,), role=Role.INPUT)
    h, y, z = (b.tensor(name, "f32", (16,)) for name in "hyz")
    b.op("host.write", (), (x,), name="x")
    b.op("exp", (x,), (h,), meta={"stage": "forward"})
    b.op("add", (h, x), (y,), in_place=((0, 0),), meta={"stage": "forward"})
    b.op("neg", (y,), (z,), meta={"stage": "backward"})
    b.op("host.read", (z,), ())
    program = b.build()
    return Document.of(find(allocator).plan(program) if isinstance(allocator, str) else plan_of(program, allocator))


@pytest.fixture
def file(tmp_path):
    write(document(), tmp_path / "planned.json")
    return str(tmp_path / "planned.json")


def replayed(capsys, *arguments):
    status = main(["replay", *arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_every_case_of_a_file_is_judged_and_executed_beside_it(file, capsys):
    """An upload left out reads what took its place: wrong numbers where S says so, and nowhere else."""
    status, found = replayed(capsys, file)
    assert (status, found["failed"], found["planner"]) == (0, 0, "linear_scan")
    cases = {row["case"]: row for row in found["cases"]}
    assert [row["group"] for row in found["cases"]] == ["session"] * 3 + ["program"] * len(
        [c for c in cases if c.startswith(("rew", "the"))]
    ) + ["pins"] * 5
    assert cases["second run"]["S"]["status"] == "clean"
    assert cases["inputs uploaded once"]["S"]["class"] == "C06"
    assert found["kernels"] == {"add": "numpy", "exp": "numpy", "neg": "numpy"}
    for row in found["cases"]:
        expected = (
            {"differs"}
            if row["S"]["status"] != "clean"
            else {"equal", "covered"}
            if row["group"] == "pins"
            else {"equal"}
        )
        assert row["D"]["status"] in expected, row["case"]
    assert cases["inputs uploaded once"]["D"]["first"] | {"ulp": 0, "relative": 0} == {
        "run": 1, "op": 1, "name": "exp", "kind": "exp", "what": "operand", "ulp": 0, "relative": 0,
    }  # fmt: skip
    assert all(row["fits"] for row in found["cases"] if row["group"] != "program")


def test_ops_the_engine_has_no_kernel_for_are_judged_alone_and_it_says_why(tmp_path, capsys):
    made = document("linear_scan").programs[0]
    foreign = replace(
        made, ops=replace(made.ops, kinds=tuple("mine" if kind == "exp" else kind for kind in made.ops.kinds))
    )
    write(Document.of(find("linear_scan").plan(foreign)), tmp_path / "foreign.json")
    why = "op 1 'exp' is of kind 'mine', for which the engine has no kernel; it cannot be run"
    _, found = replayed(capsys, str(tmp_path / "foreign.json"))
    assert {(row["D"]["status"], row["D"]["why"]) for row in found["cases"]} >= {("not run", why)}
    assert {row["D"]["status"] for row in found["cases"]} <= {"not run", "covered"}
    assert main(["replay", str(tmp_path / "foreign.json")]) == 0
    assert f"not executed: {why}" in capsys.readouterr().out


def test_a_kernel_that_is_wrong_in_place_shows_in_a_legal_plan_of_a_file(tmp_path, capsys):
    """ggml's two-pass rms_norm_back, named in the meta of an op: S is clean, D names the kernel, and the exit status is 1."""
    b = ProgramBuilder("norm")
    dz, x = (b.tensor(name, "f32", (4, 8), role=Role.INPUT) for name in ("dz", "x"))
    g, dx = b.tensor("g", "f32", (4, 8)), b.tensor("dx", "f32", (4, 8))
    b.op("host.write", (), (dz,), name="dz")
    b.op("host.write", (), (x,), name="x")
    b.op("neg", (dz,), (g,))
    b.op("rms_norm_back", (g, x), (dx,), in_place=((0, 0),), meta={"variant": "two_pass", "params": {"eps": 1e-5}})
    b.op("host.read", (dx,), ())
    write(Document.of(plan_of(b.build(), [0, 128, 256, 256])), tmp_path / "norm.json")
    status, found = replayed(capsys, str(tmp_path / "norm.json"))
    second = found["cases"][0]
    assert (status, second["case"], second["S"]["status"]) == (1, "second run", "clean")
    assert (second["D"]["status"], second["D"]["first"]["kind"], second["D"]["first"]["what"]) == (
        "differs",
        "rms_norm_back",
        "result",
    )


def test_without_a_planner_there_are_no_pins(tmp_path, capsys):
    write(document([0, 64, 128, 192]), tmp_path / "mine.json")
    _, found = replayed(capsys, str(tmp_path / "mine.json"))
    assert {row["group"] for row in found["cases"]} == {"session", "program"}
    _, found = replayed(capsys, str(tmp_path / "mine.json"), "--allocator", "ggml", "--group", "pins", "--limit", "2")
    assert [row["case"] for row in found["cases"]] == ["every forward tensor pinned", "every backward tensor pinned"]


def test_a_plan_that_is_wrong_fails_what_must_hold(tmp_path, capsys):
    write(document([0, 64, 128, 64]), tmp_path / "right.json")
    assert main(["replay", str(tmp_path / "right.json")]) == 0
    assert "every case that must hold holds" in capsys.readouterr().out
    write(document([0, 0, 128, 64]), tmp_path / "wrong.json")  # h over x, which add still reads
    assert main(["replay", str(tmp_path / "wrong.json")]) == 1
    said = capsys.readouterr().out
    assert "1 of 1 cases that must hold do not hold" in said
    assert "second run" in said


def test_it_goes_on_where_it_ended(file, tmp_path, capsys):
    log = tmp_path / "out" / "replay.jsonl"
    _, whole = replayed(capsys, file, "-o", str(tmp_path / "out"))
    lines = log.read_text().splitlines(keepends=True)
    assert len(lines) == 1 + len(whole["cases"])
    log.write_text("".join(lines[:3]) + lines[3][:20])  # interrupted in the midst of a line
    _, again = replayed(capsys, file, "-o", str(tmp_path / "out"))
    assert again == whole
    assert log.read_text().splitlines(keepends=True) == lines


def test_another_replay_in_the_same_folder_is_refused(file, tmp_path, capsys):
    assert main(["replay", file, "-o", str(tmp_path / "out")]) == 0
    write(document("reference"), tmp_path / "planned.json")
    assert main(["replay", file, "-o", str(tmp_path / "out")]) == 2
    assert ": belongs to another replay (planner 'linear_scan'); name another folder" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "not json\n", "{}\n"])
def test_what_is_no_record_of_a_replay_is_left_alone(file, tmp_path, capsys, content):
    (tmp_path / "replay.jsonl").write_text(content)
    assert main(["replay", file, "-o", str(tmp_path)]) == 2
    assert "name another folder" in capsys.readouterr().err
    assert (tmp_path / "replay.jsonl").read_text() == content


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("nobody",), "file or scenario 'nobody' does not exist"),
        (("{file}", "--allocator", "nobody"), "allocator 'nobody' does not exist"),
        (("{file}", "--group", "nothing"), "Invalid value for '--group'"),
        (("{empty}",), "plans: there is none to replay"),
    ],
)
def test_what_cannot_be_replayed_is_one_line(file, tmp_path, capsys, arguments, line):
    write(Document.of(document().programs[0]), tmp_path / "empty.json")
    spelled = [argument.format(file=file, empty=tmp_path / "empty.json") for argument in arguments]
    assert main(["replay", *spelled]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
