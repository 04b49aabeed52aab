"""A C program of fifty lines: compiled with the dumper, or run with it loaded before it; dumped, and judged."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ggml_live import live
from ggml_tasks import dumped_and_walked

from allocsim.cli import main
from allocsim.systems.ggml.access.library import find
from allocsim.systems.ggml.dumper import DUMPER
from allocsim.systems.ggml.random_graphs.graph_generator import generate

HERE = Path(__file__).parents[1] / "data" / "c_dumper"
UPSTREAM = Path(__file__).parents[2] / "docs" / "upstream"
COMPILER = shutil.which("cc") or shutil.which("gcc")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


def compiled(*arguments):
    subprocess.run(
        [COMPILER, "-Wall", "-Wextra", "-Werror", "-std=gnu11", f"-I{HERE}", *map(str, arguments)], check=True
    )


def libraries():
    """The libraries of the older wheel, for the linker and for the program."""
    live("before")
    folder = find("before").parent
    return [*sorted(folder.glob("libggml*.so*")), f"-Wl,-rpath,{folder}", "-Wl,--allow-shlib-undefined"]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("c") / "program"
    compiled(HERE / "program.c", DUMPER, *libraries(), "-o", path)
    return path


def ran(*command, **environment):
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def test_a_c_program_is_compiled_dumped_and_judged(program, tmp_path, capsys):
    """The plan is legal; the kernel of the older library is not safe where the plan has it run: C04, op and source."""
    done = ran(program, tmp_path / "step.json")
    assert (done.returncode, done.stderr) == (0, "")

    assert main(["check", str(tmp_path / "step.json")]) == 0
    assert "S and L clean" in capsys.readouterr().out
    assert main(["diagnose", str(tmp_path / "step.json")]) == 1
    assert "the kernel of rms_norm_back is not safe with its result over operand 0" in " ".join(
        capsys.readouterr().out.split()
    )


def test_an_output_that_was_flagged_too_late_is_found_in_the_dump(program, tmp_path, capsys):
    assert ran(program, tmp_path / "late.json", "late").returncode == 0

    assert main(["check", str(tmp_path / "late.json")]) == 1
    assert "read h" in capsys.readouterr().out


def test_a_dump_that_cannot_be_written_is_said(program, tmp_path):
    done = ran(program, tmp_path / "nowhere" / "step.json")

    assert (done.returncode, done.stderr) == (1, "the file cannot be written\n")


def test_a_program_that_knows_nothing_of_it_is_dumped_by_a_library_loaded_before_it(program, tmp_path, capsys):
    """The same bytes as those of the dumper that is compiled in."""
    plain, loaded = tmp_path / "plain", tmp_path / "allocsim_dump.so"
    compiled("-DWITHOUT_DUMPER", HERE / "program.c", *libraries(), "-o", plain)
    compiled("-shared", "-fPIC", "-DALLOCSIM_PRELOAD", DUMPER, "-o", loaded, "-ldl")

    done = ran(plain, ALLOCSIM_DUMP=str(tmp_path / "step"), LD_PRELOAD=str(loaded))
    assert (done.returncode, done.stderr) == (0, "")
    assert ran(program, tmp_path / "compiled.json").returncode == 0

    assert (tmp_path / "step-0.json").read_bytes() == (tmp_path / "compiled.json").read_bytes()


def test_the_command_writes_the_c_file(tmp_path, capsys):
    assert main(["capture", "dumper", "-o", str(tmp_path / "allocsim_dump.c")]) == 0

    assert (tmp_path / "allocsim_dump.c").read_bytes() == DUMPER.read_bytes()
    assert "compile it" in capsys.readouterr().out


@pytest.mark.parametrize("split", [False, True])
def test_the_dumper_writes_what_the_bridge_reads(split, tmp_path):
    """Random graphs, on one backend and on two, whose splits and copies the dumper sees in the scheduler's own graph."""
    loaded = tmp_path / "allocsim_dump.so"
    compiled("-shared", "-fPIC", DUMPER, *libraries(), "-o", loaded)
    for seed in range(8):
        arguments = str(loaded), generate(seed), seed if split else None, str(tmp_path / "rows.json")
        wrong, dumped, walked = live("before").call(dumped_and_walked, *arguments)
        assert wrong is None
        for side in ("leafs", "nodes"):
            rows = [{"buffer": 0, **row} for row in walked[side]]
            assert [{key: row[key] for key in sorted(row)} for row in dumped[side]] == rows
        assert {**dumped["meta"], "inplace_ops": sorted(dumped["meta"]["inplace_ops"])} == {
            "name": "dump", **walked["meta"]
        }  # fmt: skip


@pytest.mark.parametrize(("op", "source"), [("add_id", 1), ("soft_max", 2), ("rope", 2), ("rope_back", 2)])
def test_the_one_op_program_of_the_reports_shows_each_fault(op, source, tmp_path):
    """docs/upstream: compiled as it stands, on the older library, which has the same four faults as the current one."""
    compiled(UPSTREAM / "one_op.c", *libraries(), "-lm", "-o", tmp_path / "one_op")
    done = ran(tmp_path / "one_op", op)

    assert done.returncode == 1
    assert done.stdout.startswith(f"{op}: the plan lays the result over source {source}\n{op}: element ")
