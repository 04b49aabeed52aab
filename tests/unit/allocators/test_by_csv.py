"""Planners that read a CSV file and write one: what is asked, what is an answer, and what is none."""

import shutil
import sys

import pytest
from small_programs import RECIPES

from allocsim.allocators import ALLOCATORS, Constraints, find
from allocsim.errors import CapacityError, PlannerError
from allocsim.fuzzing import CampaignSpec, Target, campaign
from allocsim.fuzzing.program_recipes import assemble
from allocsim.judge.fast import check
from allocsim.model import Arena, Document, Problem
from allocsim.programs.builder import ProgramBuilder
from allocsim.systems.minimalloc import solver_instance as minimalloc

BESIDE = """
import csv, sys
asked, answered, capacity = sys.argv[1:4]
rows, end = list(csv.DictReader(open(asked))), 0
for row in rows:
    unit = int(row.get("alignment", 1))
    row["offset"] = -(-end // unit) * unit
    end = row["offset"] + int(row["size"])
if end > int(capacity):
    sys.exit(f"{end} bytes are needed")
with open(answered, "w", newline="") as file:
    table = csv.DictWriter(file, list(rows[0]))
    table.writeheader()
    table.writerows(reversed(rows))
"""
"""Puts one buffer after the other."""


def running(tmp_path, text=BESIDE):
    """A command of this interpreter that is given a pair of files and a capacity."""
    script = tmp_path / "planner.py"
    script.write_text(text)
    return f"cmd:{sys.executable} {script} {{input}} {{output}} {{capacity}}"


def instance():
    """Three buffers in one arena, of which the first has a gap that the second fits into."""
    builder = ProgramBuilder("instance", arenas=(Arena(name="a", alignment=4),))
    for name, nbytes in (("x", 8), ("y", 4), ("z", 0)):
        builder.buffer(name, nbytes)
    return Problem.of(builder.build(), start=[0, 2, 0], stop=[6, 4, 6], gaps={0: ((1, 5),)})


def test_a_plan_is_made_of_what_the_command_writes(tmp_path):
    program = assemble(RECIPES)
    plan = find(running(tmp_path)).plan(program)

    assert check(Document.of(plan)).clean
    assert sorted(plan.offset[plan.arena == 0].tolist()) == [8 * place for place in range((plan.arena == 0).sum())]


def test_what_is_asked_is_a_minimalloc_instance(tmp_path):
    copying = "import shutil, sys; shutil.copy(sys.argv[1], 'asked.csv'); sys.exit('seen')"
    planner = find(running(tmp_path, copying.replace("'asked.csv'", repr(str(tmp_path / "asked.csv")))))
    with pytest.raises(CapacityError, match="exit status 1: seen"):
        planner.place(instance())

    (read,) = minimalloc.loads((tmp_path / "asked.csv").read_bytes()).problems
    assert (read.start.tolist(), read.stop.tolist(), read.nbytes.tolist()) == ([0, 2], [6, 4], [8, 4])
    assert read.program.buffers.alignment.tolist() == [4, 4]
    assert dict(read.gaps) == {0: ((1, 5),)}


def test_what_is_pinned_lives_to_the_end_and_what_lies_apart_is_left_out(tmp_path):
    program = assemble(RECIPES)
    told = Constraints.of(program, pins="all", own=[0])
    plan = find(running(tmp_path)).plan(program, told)

    assert plan.arena[0] == -1
    assert ALLOCATORS["reference"].plan(program, told).arena.tolist() == plan.arena.tolist()


def test_an_arena_that_is_too_small_is_refused_and_so_is_a_decided_offset(tmp_path):
    planner = find(running(tmp_path))
    with pytest.raises(CapacityError, match="bytes are needed"):
        planner.plan(assemble(RECIPES, arenas=[Arena(name="a", capacity=8)]))
    with pytest.raises(CapacityError, match="cannot say that an offset is decided"):
        planner.plan(assemble(RECIPES), Constraints.of(assemble(RECIPES), fixed={0: 0}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "wrote no file"),
        ("import os, sys; os.mkdir(sys.argv[2])", "wrote a file that cannot be read: Is a directory"),
        ("import sys; open(sys.argv[2], 'w').write(f'id,offset\\n0,0\\n1,{1 << 70}\\n')", "1180591620717411303424"),
        ("import os; os.abort()", "ended without an answer: SIGABRT"),
        ("import sys; open(sys.argv[2], 'w').write('id,size\\n0,4\\n')", "without columns 'id' and 'offset'"),
        ("import sys; open(sys.argv[2], 'w').write('id,offset\\n0,here\\n')", "without whole numbers"),
        ("import sys; open(sys.argv[2], 'w').write('id,offset\\n0,0\\n')", "left out a buffer: 1"),
        ("import sys; open(sys.argv[2], 'w').write('id,offset\\n0,0\\n1,8\\n2,8\\n')", "was not asked for: 2"),
    ],
)
def test_what_is_no_answer_is_one_line(tmp_path, text, words):
    with pytest.raises(PlannerError) as error:
        find(running(tmp_path, text)).place(instance())

    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(shutil.which("minimalloc") is None, reason="minimalloc's solver is not there")
def test_nothing_is_found_wrong_with_the_solver_of_minimalloc():
    name = "cmd:minimalloc --capacity={capacity} --input={input} --output={output}"
    result = campaign(
        CampaignSpec(target=Target(name=name), source="hypothesis", seed=1, examples=20, reduce_seconds=0.0)
    )

    assert [(finding.breaks, finding.message) for finding in result.findings] == []
    assert result.tally.plans > 20
