"""A certificate that no plan is smaller is accepted by a file that knows nothing of this package, and a wrong one is not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.allocators.certificate import certificate
from allocsim.model import Arena, Problem
from allocsim.programs.builder import ProgramBuilder, plan_of

CHECKER = Path(__file__).parents[3] / "docs" / "planners" / "check_certificate.py"


def problem(gaps=None):
    """Three lives, of which the first two meet, and so do the last two."""
    builder = ProgramBuilder("lives", arenas=(Arena(name="a", alignment=4),))
    for name, nbytes in (("x", 8), ("y", 4), ("z", 8)):
        builder.buffer(name, nbytes)
    return Problem.of(builder.build(), start=[0, 1, 3], stop=[3, 6, 6], gaps=gaps or {})


def checked(record):
    """The exit status and the words of the checker."""
    done = subprocess.run(
        [sys.executable, "-I", str(CHECKER)], input=json.dumps(record), capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.strip()


def test_the_checker_is_one_short_file_of_its_own():
    text = CHECKER.read_text(encoding="utf-8")

    assert len(text.splitlines()) < 200
    assert "allocsim" not in text


def test_a_peak_that_is_the_bound_has_a_certificate_that_is_accepted():
    record = certificate(ALLOCATORS["exact"].place(problem()))

    assert record["peak"] == 12
    assert checked(record) == (0, "accepted")


def test_a_gap_counts_for_both():
    told = problem({0: ((1, 3),)})
    record = certificate(plan_of(told.program, [0, 0, 4], problem=told))

    assert record["peak"] == 12
    assert checked(record) == (0, "accepted")


def test_a_peak_above_what_lives_at_once_has_none():
    told = problem()

    assert certificate(plan_of(told.program, [0, 8, 12], problem=told)) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record.update(peak=8), "above the peak"),
        (lambda record: record.update(step=0), "at step 0 only 8 bytes live, 12 are claimed to be needed"),
        (lambda record: record["buffers"][0].update(offset=2), "buffer 0 cannot lie at 2"),
        (lambda record: record["buffers"][1].update(offset=-4), "buffer 1 cannot lie at -4"),
        (lambda record: record["buffers"][1].update(offset=record["buffers"][0]["offset"]), "share bytes"),
        (lambda record: record["buffers"][1].update(nbytes=0), "only 8 bytes live"),
    ],
)
def test_a_certificate_that_was_changed_is_not_accepted(change, words):
    record = certificate(ALLOCATORS["exact"].place(problem()))
    change(record)
    status, said = checked(record)

    assert status == 1
    assert words in said
