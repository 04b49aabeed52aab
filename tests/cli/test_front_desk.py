"""What every command has: -h, an example that parses, --quiet, completion; pipes and compressed files."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
from commands import allocsim

from allocsim.cli import every_command, main, progress
from allocsim.cli.completion import bash_lines, fish_lines
from allocsim.files.gate import INFLATED

CASES = Path(__file__).parents[1] / "data" / "cases"
COMMANDS = [
    (f"{name} {inner}".strip(), one)
    for name, command in every_command()
    for inner, one in (getattr(command, "commands", None) or {"": command}).items()
]


@pytest.fixture(scope="module")
def faulty():
    return CASES / "both-plans-faulty.json"


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_command_takes_h_and_shows_an_example_that_parses(name, command, capsys):
    assert main([*name.split(), "-h"]) == 0
    shown = capsys.readouterr().out
    example = re.search(r"Example: allocsim ([^\n]+)", " ".join(shown.split("\n  ")))
    if name == "completion":
        example = re.search(r"Example: allocsim (completion bash)", shown)
    assert example is not None
    said = example[1].strip().split()
    path = name.split()
    assert said[: len(path)] == path
    command.make_context(name, said[len(path) :], resilient_parsing=False)
    assert "-q, --quiet" in shown


def test_a_document_comes_through_a_pipe(faulty):
    text = faulty.read_bytes()
    for source in ("-", "/dev/stdin"):
        done = subprocess.run(
            [sys.executable, "-m", "allocsim", "check", source, "--json"], input=text, capture_output=True, check=False
        )
        (entry,) = json.loads(done.stdout)["files"]
        (wanted,) = json.loads(allocsim("check", faulty, "--json").stdout)["files"]
        assert {**entry, "file": ""} == {**wanted, "file": ""}


@pytest.mark.parametrize(
    "command",
    [("bisect", "--json"), ("replay", "--limit", "1"), ("plot",), ("verdict",), ("report", "-o", "page.html")],
)
def test_what_takes_one_document_takes_it_from_standard_input(command, faulty, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with faulty.open() as text:
        monkeypatch.setattr(sys, "stdin", text)
        assert main([command[0], "-", *command[1:]]) in (0, 1)
    assert "does not exist" not in capsys.readouterr().err
    assert {path.name for path in tmp_path.glob("*.png")} <= {"stdin-map.png"}


def test_a_compressed_file_is_read_as_what_is_in_it(faulty, tmp_path):
    packed = tmp_path / "plan.json.gz"
    packed.write_bytes(gzip.compress(faulty.read_bytes()))
    (entry,) = json.loads(allocsim("check", packed, "--json").stdout)["files"]
    (wanted,) = json.loads(allocsim("check", faulty, "--json").stdout)["files"]
    assert {**entry, "file": ""} == {**wanted, "file": ""}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (gzip.compress(b"{}" * 1000)[:30], "cannot be read: it ends before the end of what gzip compressed"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"\xff" * 50, "cannot be read: Error -3"),
        (gzip.compress(b'{"x": 1' + b" " * INFLATED, 1), f"cannot be read: it holds more than {INFLATED >> 20} MiB"),
        (gzip.compress(b"no document"), "starts with 'n'"),
    ],
    ids=["cut", "damaged", "a bomb", "text"],
)
def test_a_compressed_file_that_is_none_is_one_line(data, says, tmp_path, capsys):
    packed = tmp_path / "x.gz"
    packed.write_bytes(data)
    assert main(["check", str(packed)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"allocsim: {packed}: ")
    assert says in said
    assert said.count("\n") == 1


def test_convert_refuses_a_suffix_that_no_format_has(faulty, tmp_path, capsys):
    target = tmp_path / "x.xyz"
    assert main(["convert", str(faulty), str(target)]) == 2
    assert "no format has this suffix; the suffixes are .csv, .dot, .graphml, .json" in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".trace.json", ".pickle", ".dot"])
def test_convert_writes_equal_files_of_equal_documents(suffix, faulty, tmp_path):
    for name in ("a", "b"):
        assert main(["convert", str(faulty), str(tmp_path / f"{name}{suffix}")]) == 0
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_convert_writes_the_format_that_is_named_to_a_pipe(faulty):
    assert allocsim("convert", faulty, "-", "--to", "dot").stdout.startswith("digraph allocsim {")


COMPLETED = [
    (("ch",), "check"),
    (("check", "--sar"), "--sarif"),
    (("repro", "ga"), "gallery"),
    (("repro", "run", "--al"), "--all --allocator"),
    (("--ver",), "--version"),
]


@pytest.mark.skipif(which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_their_commands_and_options(tmp_path):
    script = tmp_path / "completion.sh"
    tries = "".join(
        f'COMP_WORDS=(allocsim {" ".join(words)}); COMP_CWORD={len(words)}; COMPREPLY=(); _allocsim; echo "${{COMPREPLY[*]}}"\n'
        for words, _ in COMPLETED
    )
    script.write_text("\n".join([*bash_lines(), tries]))
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [wanted for _, wanted in COMPLETED]


def test_fish_is_told_every_command():
    offered = " ".join(fish_lines())
    assert all(f"-a {name.split()[-1]}" in offered for name, _ in COMMANDS)


def test_a_pipe_hears_of_progress_every_ten_seconds_and_of_nothing_before(capsys):
    now = iter([0, 1, 9.5, 10, 11, 25])
    lines = progress.ProgressLines(clock=lambda: next(now))
    task = lines.add_task("fuzz", total=120)
    for _ in range(5):
        lines.advance(task, 10)
    assert capsys.readouterr().err == "fuzz 30 of 120, 10 s\nfuzz 50 of 120, 25 s\n"


@pytest.mark.parametrize("given", [["--quiet"], ["-q"], []])
def test_quiet_silences_progress_of_its_command_alone(given, faulty, monkeypatch, capsys):
    monkeypatch.delenv("ALLOCSIM_QUIET", raising=False)
    heard = []
    monkeypatch.setattr("allocsim.cli.check.print_line", lambda _: heard.append(shown()))
    main(["check", str(faulty), *given])
    capsys.readouterr()
    assert {*heard} == {not given}
    main(["check", str(faulty)])
    assert shown()


def shown():
    with progress.bar() as found:
        return found is not None
