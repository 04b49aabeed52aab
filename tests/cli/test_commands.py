"""The command: what it prints, how it ends, and one clear line on bad input; in a process of its own where that is what is asked."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from commands import allocsim

from allocsim import document, plugins
from allocsim.cli import COMMANDS, help_text, main, one_line
from allocsim.cli.output import in_bytes
from allocsim.errors import AllocsimError
from allocsim.files.sizes import bytes_of
from allocsim.model import Arena, Document, Problem, Role, Run
from allocsim.programs.builder import ProgramBuilder, plan_of

ROOT = Path(__file__).parents[2]


def process(*arguments):
    """Run the command as a shell does; no traceback is ever acceptable."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, "-m", "allocsim", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "Traceback" not in done.stderr
    return done


def program(name="step", *, capacity=None):
    b = ProgramBuilder(name, arenas=(Arena(name="cpu", alignment=32, capacity=capacity),))
    x = b.tensor("x", "f32", (8, 8), role=Role.INPUT)
    b.op("host.write", (), (x,), name="upload")
    y, z = b.tensor("y", "f32", (8, 8)), b.tensor("z", "f32", (8, 8))
    b.op("mul", (x, x), (y,), name="square")
    b.op("add", (x, y), (z,), name="sum")
    b.op("host.read", (z,), (), name="download")
    return b.build()


@pytest.fixture
def clean(tmp_path):
    made = program()
    path = tmp_path / "clean.json"
    document.write(Document.of(plan_of(made, [0, 256, 512])), path)
    return path


@pytest.fixture
def broken(tmp_path):
    """`y` lies over `x`, which is read once more."""
    made = program()
    path = tmp_path / "broken.json"
    document.write(Document.of(plan_of(made, [0, 0, 512])), path)
    return path


@pytest.fixture
def bad(tmp_path):
    path = tmp_path / "bad.json"
    path.write_text('{"format": "allocsim", "version": 1, "programs": [{"buffers": [], "values": [], "ops": [3]}]}')
    return path


def test_help_lists_every_command_and_its_purpose():
    done = process("--help")
    assert done.returncode == 0
    assert done.stdout == help_text() + "\n"
    for name, row in ({**COMMANDS, **plugins.commands()[0]}).items():
        assert f"  {name} " in done.stdout
        assert row.help in done.stdout


@pytest.mark.parametrize("name", [*COMMANDS, *plugins.KNOWN_COMMANDS])
def test_every_command_has_help(name, capsys):
    assert main([name, "--help"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert f"Usage: allocsim {name}" in said.out


def test_help_for_a_command_is_the_help_of_that_command(capsys):
    assert main(["help", "check"]) == 0
    assert "Usage: allocsim check" in capsys.readouterr().out


def test_no_arguments_is_bad_usage_and_shows_the_help():
    done = process()
    assert done.returncode == 2
    assert "usage: allocsim COMMAND" in done.stdout


def test_version():
    assert allocsim("--version").stdout.startswith("allocsim 0.")


def test_check_of_a_clean_plan_ends_with_0(clean):
    done = allocsim("check", clean)
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines = done.stdout.splitlines()
    assert head.startswith(f"{clean}: S clean")
    assert lines == [
        "  kernels not examined",
        "  4 ops, 3 buffers, 1 run; peak 768 B, at least 768 B",
        "  S clean: 4 ops",
        "  L not run: no belief to compare with",
        "  H not run: one stream",
        "  P, D not run: nothing was executed (`allocsim diagnose FILE` tries)",
        "  K not run: no audit of these kinds (`allocsim diagnose FILE` tries)",
        "  R not run: no run after another over its memory (`allocsim replay FILE` tries)",
    ]


def test_check_of_a_broken_plan_lists_what_is_wrong_and_ends_with_1(broken):
    done = allocsim("check", broken)
    assert (done.returncode, done.stderr) == (1, "")
    header, cause, cure, *rows = done.stdout.splitlines()
    assert header.startswith(f"{broken}: 1 cause in 3 violations")
    assert (cause, cure) == ("  kernels not examined", "1. C06 plan, 3 places, first at op 2 'sum'")
    assert {row.split(":")[0].strip() for row in rows} >= {"UnsafeInPlace", "Overlap", "StaleRead"}
    assert "op 1 'square'" in done.stdout


def test_check_json_is_the_document_of_the_format(clean, broken, bad):
    done = process("check", "--json", clean, bad, broken)
    assert done.returncode == 2
    assert done.stderr == f"allocsim: {bad}: programs[0].ops[0]: 3 is not an object\n"
    files = json.loads(done.stdout)["files"]
    assert [entry["file"] for entry in files] == [str(clean), str(bad), str(broken)]
    assert list(files[0]) == [
        "file", "clean", "count", "truncated", "violations", "warnings", "stats", "causes", "examined",
    ]  # fmt: skip
    assert files[0]["clean"] is True
    assert files[0]["stats"] == {"ops": 4, "buffers": 3, "peak_bytes": 768, "lower_bound_bytes": 768}
    assert list(files[1]) == ["file", "error"]
    assert files[2]["clean"] is False
    assert files[2]["count"] == len(files[2]["violations"]) == 3
    (stale,) = [found for found in files[2]["violations"] if found["kind"] == "StaleRead"]
    assert list(stale)[:15] == [
        "kind", "program", "plan", "run", "step", "op", "value", "buffer", "other_run", "other_op", "other_buffer", "want_run",
        "want_op", "problem", "bytes",
    ]  # fmt: skip
    assert (stale["op"], stale["value"], stale["other_op"], stale["want_op"]) == (2, 0, 1, 0)
    assert stale["bytes"] == [[0, 256]]
    assert stale["op_name"] == "sum"
    assert stale["message"]


def test_check_lists_no_more_than_the_limit_and_counts_all(broken):
    done = allocsim("check", "--json", "--limit", 1, broken)
    (entry,) = json.loads(done.stdout)["files"]
    assert (entry["count"], len(entry["violations"]), entry["truncated"]) == (3, 1, False)
    assert "2 more are not listed (--limit)" in allocsim("check", "--limit", 1, broken).stdout


def test_check_judges_real_plans_of_ggml():
    dump = next(iter(sorted((ROOT / "tests" / "data" / "ggml").glob("*.json"))), None)
    if dump is None:
        pytest.skip("no ggml dumps in tests/data")
    done = allocsim("check", "--json", dump)
    assert done.returncode in (0, 1)
    assert json.loads(done.stdout)["files"][0]["stats"]["ops"] > 0


def test_plan_writes_a_sound_plan_and_check_agrees(clean, tmp_path):
    out = tmp_path / "out.json"
    done = allocsim("plan", clean, "--allocator", "reference", "-o", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert "by reference, peak" in done.stdout
    assert allocsim("check", out).returncode == 0
    assert document.read(out).plans[0].source == "reference"


def test_plan_takes_pins_by_policy_and_by_value(clean, tmp_path):
    peaks = {}
    for pins in ((), ("--pin", "nodes"), ("--pin", "x"), ("--pin", "0")):
        out = tmp_path / "out.json"
        done = allocsim("plan", clean, "--allocator", "ggml", "-o", out, "--json", *pins)
        peaks[pins] = json.loads(done.stdout)["plans"][0]["peak_bytes"]
        assert document.read(out).problems[0].pinned.tolist()[0] == (pins[-1:] in (("x",), ("0",)))
    assert peaks[()] <= peaks["--pin", "nodes"]


def test_plan_takes_pins_and_fixed_offsets_from_the_problem_of_the_document(tmp_path):
    made = program()
    path, out = tmp_path / "in.json", tmp_path / "out.json"
    document.write(Document.of(Problem.of(made, pinned=[0, 2], own=[1])), path)
    assert allocsim("plan", path, "--allocator", "reference", "-o", out).returncode == 0
    found = document.read(out)
    assert found.problems[0].pinned.tolist() == [True, False, True]
    assert found.plans[0].arena.tolist() == [0, -1, 0]


def test_plan_keeps_the_session_under_the_new_plan(tmp_path):
    made = program()
    plan = plan_of(made, [0, 256, 512])
    path, out = tmp_path / "in.json", tmp_path / "out.json"
    document.write(Document.of(Run.of(plan), Run.of(plan, skip=(0,))), path)
    assert allocsim("plan", path, "--allocator", "reference", "-o", out).returncode == 0
    found = document.read(out)
    assert [run.skip for run in found.runs] == [(), (0,)]
    assert {run.plan.source for run in found.runs} == {"reference"}


@pytest.mark.parametrize("budget", ["767", "0.5KiB"])
def test_plan_over_the_budget_ends_with_1_and_writes_nothing(clean, tmp_path, budget):
    out = tmp_path / "out.json"
    done = allocsim("plan", clean, "--allocator", "reference", "--max-peak", budget, "-o", out)
    assert done.returncode == 1
    assert done.stderr.startswith("allocsim: program 'step' needs 768 bytes; ")
    assert done.stderr.count("\n") == 1
    assert not out.exists()
    assert allocsim("plan", clean, "--allocator", "reference", "--max-peak", "768", "-o", out).returncode == 0


def test_plan_over_the_capacity_of_an_arena_ends_with_1(tmp_path):
    path = tmp_path / "small.json"
    document.write(Document.of(program(capacity=500)), path)
    done = allocsim("plan", path, "--allocator", "reference")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_explain_tells_why_by_name_and_by_index(clean):
    by_name, by_index = allocsim("explain", clean, "y"), allocsim("explain", clean, "1")
    assert by_name.returncode == 0
    assert by_name.stdout == by_index.stdout
    assert "lives [1, 3): is first written by op 1 'square' and last read by op 2 'sum'" in by_name.stdout
    assert json.loads(allocsim("explain", clean, "y", "--json").stdout)["readers"][0]["op"] == "sum"


def test_diff_tells_which_buffers_moved(clean, broken):
    done = allocsim("diff", clean, broken)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].endswith("1 buffer moved, peak 768 B -> 768 B (+0 bytes)")
    assert done.stdout.splitlines()[1].split() == ["buffer", "name", "from", "to"]
    assert done.stdout.splitlines()[2].split() == ["1", "y", "0:[256,", "512)", "0:[0,", "256)"]
    (change,) = json.loads(allocsim("diff", clean, broken, "--json").stdout)["plans"]
    assert change["moved"] == [
        {
            "buffer": 1,
            "name": "y",
            "from": {"arena": 0, "offset": 256, "nbytes": 256},
            "to": {"arena": 0, "offset": 0, "nbytes": 256},
        }
    ]


def test_convert_gives_an_equal_native_document(clean, tmp_path):
    out = tmp_path / "copy.json"
    assert allocsim("convert", clean, out).returncode == 0
    assert out.read_bytes() == clean.read_bytes()


def test_schema_prints_the_file_of_the_package():
    done = allocsim("schema")
    assert done.returncode == 0
    assert done.stdout == (ROOT / "allocsim" / "schema.json").read_text()


@pytest.mark.parametrize("kind", ["map", "lifetimes", "live"])
def test_plot_writes_a_picture(clean, tmp_path, kind):
    out = tmp_path / f"{kind}.png"
    assert allocsim("plot", clean, "--kind", kind, "-o", out).returncode == 0
    assert out.read_bytes().startswith(b"\x89PNG")


def test_plot_needs_no_option(clean, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = allocsim("plot", clean)
    assert done.stdout == f"wrote {clean.stem}-map.png\n"
    assert (tmp_path / f"{clean.stem}-map.png").read_bytes().startswith(b"\x89PNG")


BAD_USAGE = {
    "unknown command": (("chekc",), "command 'chekc' does not exist; did you mean check"),
    "a folder alone": (
        ("{tmp}",),
        "'{tmp}' is a folder and no command; `allocsim check {tmp}` judges evidence or a dump in it",
    ),
    "help for nothing": (("help", "nothing"), "command 'nothing' does not exist"),
    "a file alone": (("{clean}",), "'{clean}' is a file and no command; `allocsim check {clean}` judges it"),
    "unknown option": (("check", "--foo"), "No such option: --foo (allocsim check --help says more)"),
    "missing argument": (("explain",), "Missing argument 'FILE' (allocsim explain --help says more)"),
    "missing option": (("plan", "{clean}"), "Missing option '--allocator'"),
    "unknown allocator": (
        ("plan", "{clean}", "--allocator", "gglm"),
        "allocator 'gglm' does not exist; did you mean ggml",
    ),
    "no stranger": (("plan", "{clean}", "--allocator", "no.such:thing"), "module 'no.such' does not exist"),
    "missing file": (("check", "no.json"), "no.json: cannot be read: No such file or directory"),
    "a folder": (
        ("check", "{tmp}"),
        "{tmp}: is not an evidence folder: it has no session.json; to judge files in it, name them",
    ),
    "bad document": (("explain", "{bad}", "x"), "{bad}: programs[0].ops[0]: 3 is not an object"),
    "unknown buffer": (("explain", "{clean}", "yy"), "buffer 'yy' does not exist; did you mean y"),
    "no such buffer": (("explain", "{clean}", "7"), "buffer 7 does not exist; there are 3"),
    "no such program": (
        ("explain", "{clean}", "y", "--program", "1"),
        "{clean}: programs: there is no program 1; there are 1",
    ),
    "unknown pin": (
        ("plan", "{clean}", "--allocator", "ggml", "--pin", "nothing"),
        "pin policy or value 'nothing' does not exist",
    ),
    "no number": (("plan", "{clean}", "--allocator", "ggml", "--max-peak", "lots"), "'lots' is no number of bytes"),
    "unwritable": (
        ("convert", "{clean}", "{tmp}/none/x.json"),
        "{tmp}/none/x.json: cannot be written: No such file or directory",
    ),
    "onto a folder": (("convert", "{clean}", "{tmp}"), "{tmp}: cannot be written: it is a folder"),
    "negative limit": (("check", "{clean}", "--limit", "-1"), "Invalid value for '--limit'"),
    "unknown picture": (("plot", "{clean}", "--kind", "pie", "-o", "x.png"), "Invalid value for '--kind'"),
    "unknown suffix": (("plot", "{clean}", "-o", "{tmp}/x.doc"), "{tmp}/x.doc: "),
}


@pytest.mark.parametrize("case", BAD_USAGE)
def test_bad_usage_and_bad_input_are_one_line_and_exit_2(case, clean, bad, tmp_path, capsys):
    """In this process, since a subprocess for each case says no more (`test_check_json...` has one)."""
    arguments, complaint = BAD_USAGE[case]
    names = {"clean": clean, "bad": bad, "tmp": tmp_path}
    before = sorted(tmp_path.iterdir())
    assert main([argument.format(**names) for argument in arguments]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"allocsim: {complaint.format(**names)}")
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
@pytest.mark.parametrize("arguments", ["check {clean}", "check --json {clean}", "schema", "--help"])
def test_a_closed_standard_output_is_a_line_and_exit_2(clean, arguments, closed):
    command = f"{sys.executable} -m allocsim {arguments.format(clean=clean)} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    said = "" if "2>" in closed else "allocsim: standard output is closed: nothing can be said there\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_a_closed_pipe_is_quiet(tmp_path):
    b = ProgramBuilder("many")
    for index in range(20_000):
        b.buffer(f"buffer-{index}", 32)
    made = b.build()
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for shift, path in enumerate(paths):
        document.write(Document.of(plan_of(made, [32 * (index + shift) for index in range(20_000)])), path)
    process = subprocess.Popen(
        [sys.executable, "-m", "allocsim", "diff", *map(str, paths)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_a_terminal_of_80_columns_breaks_no_line_but_those_with_a_path(broken):
    ours, theirs = os.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "TERM": "dumb"}
    command = [sys.executable, "-m", "allocsim", "check", str(broken), "--explain", "3"]
    done = subprocess.run(command, stdout=theirs, env=environment, check=False)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 1
    assert max(len(line) for line in shown.splitlines() if str(broken) not in line) <= 80


def test_an_interrupt_is_one_line_and_exit_130(tmp_path):
    pipe = tmp_path / "never.json"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-m", "allocsim", "check", str(pipe)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        # a shell's background jobs ignore it, and so would this; pytest runs no threads here
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    writer = os.open(pipe, os.O_WRONLY)  # returns once the command has opened the other end
    process.send_signal(signal.SIGINT)
    out, error = process.communicate()
    os.close(writer)
    assert (process.returncode, out, error) == (130, b"", b"allocsim: interrupted\n")


def test_hostile_names_stay_on_their_line(tmp_path):
    b = ProgramBuilder("\x1b[31mred\n")
    b.buffer("a\nb\x1b]0;title\x07\u2028", 32)
    path = tmp_path / "hostile.json"
    document.write(Document.of(plan_of(b.build(), [0])), path)
    done = allocsim("explain", path, "0")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert done.stdout.count("\n") == len(done.stdout.splitlines())
    assert "\x1b" not in allocsim("plan", path, "--allocator", "reference").stdout


def test_names_a_terminal_cannot_show_are_spelled_out(tmp_path):
    b = ProgramBuilder("p")
    b.buffer("größe", 32)
    path = tmp_path / "names.json"
    document.write(Document.of(plan_of(b.build(), [0])), path)
    done = subprocess.run(
        [sys.executable, "-m", "allocsim", "explain", str(path), "0"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
    )
    assert b"gr\\xf6\\xdfe" in done.stdout


def test_a_defect_of_ours_shows_its_traceback_and_is_no_verdict(monkeypatch, capsys):
    monkeypatch.setattr("allocsim.cli._run", lambda arguments: 1 // 0)
    assert main(["check"]) == 70
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_sizes_are_read_and_written_as_people_do():
    assert [bytes_of(text) for text in ("0", "4096", "64KiB", "1.5 MiB", "2G", "3kb", "7B", "0.09KiB")] == [
        0, 4096, 65536, 1572864, 2 << 30, 3072, 7, 92,
    ]  # fmt: skip
    for text in ("", "KiB", "-1", "1e30", "nan", "inf", "12 parsecs", "1_0", "0.5", "1.5", "1.5B", "4iB"):
        with pytest.raises(AllocsimError):
            bytes_of(text)
    assert [in_bytes(size) for size in (0, 1023, 1024, 1536, 5 << 20, 1 << 62)] == [
        "0 B", "1023 B", "1 KiB", "1.5 KiB", "5 MiB", "4096 PiB",
    ]  # fmt: skip
    assert one_line("a\nb\x1b") == "a\\nb\\x1b"
