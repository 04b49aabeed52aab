"""`pytest --pyargs allocsim.conformance --allocator NAME`, in a subprocess, with a good planner and several bad ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PLANNERS = '''
"""Planners of a stranger."""
from allocsim.errors import CapacityError


def apart(problem):
    """No reuse: every buffer after the one before it."""
    program = problem.program
    tops = [0] * len(program.arenas)
    for buffer, at in problem.fixed.items():
        arena = int(program.buffers.arena[buffer])
        tops[arena] = max(tops[arena], at + int(problem.nbytes[buffer]))
    offsets = []
    for buffer, nbytes in enumerate(problem.nbytes.tolist()):
        if buffer in problem.fixed:
            offsets.append(problem.fixed[buffer])
            continue
        if problem.own[buffer]:
            offsets.append(None)
            continue
        arena, step = int(program.buffers.arena[buffer]), int(program.buffers.alignment[buffer])
        at = -(-tops[arena] // step) * step
        tops[arena] = at + nbytes
        capacity = program.arenas[arena].capacity
        if capacity is not None and tops[arena] > capacity:
            raise CapacityError(f"{tops[arena]} bytes do not fit into {capacity}")
        offsets.append(at)
    return offsets


def zero(problem):
    """Everything at the bottom."""
    return [0] * len(problem.nbytes)


def crash(problem):
    """Dies of an empty program; far beyond any capacity, so that the smallest case has few buffers."""
    largest = max(problem.nbytes.tolist())
    return [(largest + (1 << 40)) * buffer for buffer, _ in enumerate(problem.nbytes)]
'''


def conformance(folder, *arguments):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        "--pyargs",
        "allocsim.conformance",
        *arguments,
    ]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "strange.py").write_text(PLANNERS)
    return tmp_path


@pytest.mark.slow
def test_a_good_planner_passes(folder):
    done = conformance(folder, "--allocator", "strange:apart", "--allocator-examples", "20")

    assert done.returncode == 0, done.stdout
    assert "failed" not in done.stdout


@pytest.mark.slow
def test_an_unsound_one_fails_with_the_smallest_case_and_a_test_to_paste(folder):
    done = conformance(folder, "--allocator", "strange:zero", "--allocator-examples", "2")

    assert done.returncode == 1
    assert "test_property[sound]" in done.stdout
    assert "a test to paste" in done.stdout
    assert "every plan is clean" in done.stdout
    assert "test_too_small_a_capacity_is_refused[127]" in done.stdout


@pytest.mark.slow
def test_one_that_raises_fails_where_it_raises(folder):
    done = conformance(folder, "--allocator", "strange:crash", "--allocator-examples", "20")

    assert done.returncode == 1
    assert "test_the_empty_program_has_a_plan" in done.stdout
    assert "test_property[capacity]" in done.stdout  # what no check names is shown with a test as well
    assert "a test to paste" in done.stdout
    assert "properties=['capacity']" in done.stdout


def test_no_planner_and_no_such_planner_are_one_line(folder):
    nothing, nobody = conformance(folder), conformance(folder, "--allocator", "strange:nobody")

    assert (nothing.returncode, nobody.returncode) == (2, 2)
    assert "allocsim.conformance needs --allocator" in nothing.stdout
    assert "'nobody' does not exist" in nobody.stdout
