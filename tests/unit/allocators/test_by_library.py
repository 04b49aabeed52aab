"""Planners as shared libraries: those of the documentation are built, asked and fuzzed; what is no answer is one line."""

import contextlib
import subprocess
from pathlib import Path

import numpy as np
import pytest
from compilers import needs

from allocsim.allocators import ALLOCATORS, Constraints, find
from allocsim.errors import CapacityError, PlannerError
from allocsim.fuzzing import CampaignSpec, Target, campaign
from allocsim.fuzzing.bulk import batches
from allocsim.fuzzing.program_recipes import assemble
from allocsim.judge.fast import check
from allocsim.model import Arena, Document

PLANNERS = Path(__file__).parents[3] / "docs" / "planners"
BUILDS = {
    "library.c": ("cc", "-O2", "-shared", "-fPIC", "-o"),
    "library.rs": ("rustc", "-O", "--crate-type", "cdylib", "-C", "panic=abort", "-o"),
}
RECIPES = [
    ("compute", 0, 1, 0, 0, 0),
    ("compute", 0, 2, 1, 1, 1),
    ("persist", 0, 0, 0, 2, 0),
    ("download", 1, 0, 0, 0, 0),
]
BAD = """
#include "allocsim_planner.h"
#include <stdlib.h>
void *allocsim_open(int64_t version) { return (void *)1; }
const char *allocsim_why(void *p) { return "two\\nlines"; }
void allocsim_close(void *p) {}
int64_t allocsim_plan(void *p, const struct allocsim_problem *q, int64_t *offset) { BODY }
"""


def built(folder, source, *command):
    """The library that a compiler makes; the test is skipped where there is none."""
    needs(command[0])
    subprocess.run([*command, str(folder / "planner.so"), str(source)], check=True, capture_output=True)
    return f"lib:{folder / 'planner.so'}"


@pytest.fixture(scope="module", params=list(BUILDS))
def library(request, tmp_path_factory):
    """One of the libraries of the documentation."""
    return built(tmp_path_factory.mktemp("library"), PLANNERS / request.param, *BUILDS[request.param])


def bad(tmp_path, body):
    """A library that answers by a line of C."""
    (tmp_path / "bad.c").write_text(BAD.replace("BODY", body))
    return built(tmp_path, tmp_path / "bad.c", "cc", f"-I{PLANNERS}", "-shared", "-fPIC", "-o")


@pytest.mark.parametrize("name", list(BUILDS))
def test_a_library_of_the_documentation_has_less_than_a_hundred_lines(name):
    assert len((PLANNERS / name).read_text(encoding="utf-8").splitlines()) < 100


@pytest.mark.parametrize("source", ["hypothesis", "bulk"])
def test_nothing_is_found_wrong_with_the_libraries_of_the_documentation(library, source):
    asked = CampaignSpec(target=Target(name=library), source=source, seed=1, examples=60, reduce_seconds=0.0)
    result = campaign(asked)

    assert [(finding.breaks, finding.message) for finding in result.findings] == []
    assert result.tally.plans > 60
    assert not result.tally.noted


def test_programs_that_are_asked_together_are_answered_as_alone(library):
    planner = find(library)
    for batch in batches(7, 0, 1024):
        if any(arena.capacity is not None for arena in batch.program.arenas):
            continue
        told = Constraints.of(batch.program, pins="nodes")
        together = planner.plan_parts(
            batch.program, told, op_starts=batch.op_starts, buffer_starts=batch.buffer_starts, arenas=batch.arenas
        )
        for k in range(0, len(batch), 17):
            rows = slice(int(batch.buffer_starts[k]), int(batch.buffer_starts[k + 1]))
            alone = planner.plan(batch[k], Constraints.of(batch[k], pins="nodes"))
            assert np.array_equal(alone.offset, together.offset[rows])
            assert np.array_equal(
                alone.arena, np.where(alone.arena >= 0, together.arena[rows] - k * batch.arenas, together.arena[rows])
            )


def test_a_belief_with_gaps_pairs_and_decided_offsets_is_told(library):
    program = assemble(RECIPES)
    problem = ALLOCATORS["reference"].believe(program, Constraints.of(program, fixed={1: 64}))
    plan = find(library).place(problem)

    assert plan.offset[1] == 64
    assert check(Document.of(plan)).clean


def test_a_refusal_says_why(library):
    with pytest.raises(CapacityError, match=r"needs \d+ bytes of 2|do not fit"):
        find(library).plan(assemble(RECIPES, arenas=[Arena(name="a", capacity=2)]))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return 7;", "returned 7, which is neither a plan nor a refusal: two lines"),
        ("offset[0] = -9; return 0;", "put buffer 0 at -9"),
    ],
)
def test_what_is_no_answer_is_one_line(tmp_path, body, words):
    with pytest.raises(PlannerError) as error:
        find(bad(tmp_path, body)).plan(assemble(RECIPES))

    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_library_that_dies_is_found_and_the_campaign_goes_on(tmp_path):
    name = bad(
        tmp_path,
        "if (q->buffers > 3) abort(); for (int64_t b = 0; b < q->buffers; ++b) offset[b] = q->own[b] ? -1 : b "
        "<< 20; return 0;",
    )
    asked = CampaignSpec(
        target=Target(name=name), source="bulk", examples=40, reduce_seconds=0.0, without=("no_worse", "capacity")
    )
    result = campaign(asked)

    assert ("answers", "dies SIGABRT") in [(finding.breaks, finding.cause) for finding in result.findings]
    assert result.complete
    assert result.tally.programs >= 40


def test_what_is_no_library_is_misuse(tmp_path):
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(PlannerError, match="names no file"):
        find("lib:./no_such_library.so")
    with pytest.raises(PlannerError, match="cannot be loaded"):
        find(f"lib:{tmp_path / 'text.so'}")
    (tmp_path / "empty.c").write_text("int nothing;")
    with pytest.raises(PlannerError, match="has no function allocsim_open"):
        find(built(tmp_path, tmp_path / "empty.c", "cc", "-shared", "-fPIC", "-o"))


def test_what_a_library_writes_into_the_question_changes_no_program(tmp_path):
    body = "((int64_t *)q->alignment)[0] = 7; ((int64_t *)q->start)[0] = 7; offset[0] = 0; return 0;"
    program = assemble(RECIPES)
    before = program.buffers.alignment.copy()
    with contextlib.suppress(PlannerError):
        find(bad(tmp_path, body)).plan(program)
    assert np.array_equal(program.buffers.alignment, before)
