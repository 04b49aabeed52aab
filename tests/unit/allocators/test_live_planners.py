"""Planners of other systems: the loop that asks them with a planner of our own, and each real one where it is installed."""

import json
import subprocess
import sys
from itertools import pairwise

import pytest

from allocsim import Arena, Document, ProgramBuilder
from allocsim.allocators import find, find_installed
from allocsim.allocators.by_command import CommandPlanner
from allocsim.allocators.live_planners import ASKING, LIVE_PLANNERS, ROOMS, VARIABLE, find_live
from allocsim.errors import CapacityError, PlannerError, UnknownNameError
from allocsim.judge.fast import check

STACKING = """
from asking import serve

def plan(buffers, steps):
    assert all(0 <= row.start < row.stop <= steps for row in buffers)
    offsets, end = [], 0
    for row in buffers:
        offsets.append(end)
        end += -(-row.nbytes // 64) * 64
    return offsets

serve(plan, alignment=64)
"""


MODULES = {
    "tinygrad": "tinygrad",
    "executorch": "executorch.exir",
    "inductor": "torch._inductor",
    "litert": "ai_edge_litert",
    "xla": "jax",
}
"""Live planner -> what its script imports first of its system."""


def program(count=6, **arena):
    b = ProgramBuilder("chain", arenas=[Arena(name="memory", alignment=64, **arena)])
    values = [b.tensor(f"t{i}", "f32", (25,)) for i in range(count)]
    b.op("host.write", (), (values[0],))
    for one, other in pairwise(values):
        b.op("f", (one,), (other,))
    b.op("host.read", (values[-1],), ())
    return b.build()


@pytest.fixture
def stacking(tmp_path):
    path = tmp_path / "stacking.py"
    path.write_text(STACKING)
    planner = CommandPlanner(name="stacking", arguments=[sys.executable, str(ASKING), str(path)])
    yield planner
    planner.close()


def test_a_script_of_the_loop_is_asked_and_answers(stacking):
    plan = stacking.plan(program())

    assert plan.offset.tolist() == [0, 128, 256, 384, 512, 640]
    assert check(Document.of(plan)).violations == ()


def test_what_does_not_fit_or_cannot_be_asked_is_refused_and_the_script_goes_on(stacking):
    with pytest.raises(CapacityError, match="beyond the 300 bytes"):
        stacking.plan(program(capacity=300))
    wide = ProgramBuilder("wide", arenas=[Arena(name="memory", alignment=4096)])
    value = wide.tensor("x", "f32", (4,))
    wide.op("host.write", (), (value,))
    with pytest.raises(CapacityError, match="aligns to 64 bytes, buffer 0 wants 4096"):
        stacking.plan(wide.build())
    assert stacking.plan(program()).offset[1] == 128


def test_the_scripts_need_nothing_of_this_project():
    """They run by path in an interpreter that need not have it."""
    for path in (ASKING, *(ROOMS / row.script for row in LIVE_PLANNERS.values())):
        found = [line for line in path.read_text().splitlines() if line.startswith(("from ", "import "))]
        assert not [line for line in found if "allocsim" in line], path.name


@pytest.mark.parametrize("name", LIVE_PLANNERS)
def test_a_system_that_is_not_there_is_one_line(name, tmp_path, monkeypatch):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # without any package that is installed
    bare.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(bare))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(PlannerError, match="ModuleNotFoundError") as error:
        find(name).plan(program())
    assert "\n" not in str(error.value)


def test_a_file_may_not_name_a_live_planner():
    for name in LIVE_PLANNERS:
        with pytest.raises(PlannerError, match="which a file may not"):
            find_installed(name)


def test_a_name_that_is_nearly_one_is_helped():
    with pytest.raises(UnknownNameError, match="tinygrad"):
        find("tinygrat")


@pytest.mark.parametrize("name", LIVE_PLANNERS)
def test_a_real_planner_is_sound_on_a_chain(name):
    planner = find_live(name)
    module = MODULES[name]
    has = subprocess.run(
        [planner.arguments[0], "-c", f"import importlib.util as u; u.find_spec({module!r}) or exit(1)"],
        check=False,
        capture_output=True,
    )
    if has.returncode:
        pytest.skip(f"{module} is not installed")
    plan = planner.plan(program())
    report = check(Document.of(plan))
    planner.close()

    assert report.violations == ()
    assert report.stats.peak_bytes < 6 * 128
    assert json.dumps(plan.source) == f'"{name}"'
