"""Planners in any language: the programs of the documentation are built and asked, and what is no answer is one line."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from compilers import needs
from small_programs import RECIPES

from allocsim.allocators import ALLOCATORS, Constraints, find
from allocsim.allocators.by_command import question
from allocsim.cli import main
from allocsim.document import loads, read, write
from allocsim.errors import CapacityError, PlannerError
from allocsim.fuzzing import CampaignSpec, FuzzCase, Target, campaign
from allocsim.fuzzing.program_recipes import assemble
from allocsim.judge.fast import check
from allocsim.model import Arena, Document

PLANNERS = Path(__file__).parents[3] / "docs" / "planners"
BUILDS = {"first_fit.cpp": ("g++", "-O2", "-std=c++17", "-o"), "first_fit.rs": ("rustc", "-O", "-o")}


@pytest.fixture(scope="module", params=list(BUILDS))
def command(request, tmp_path_factory):
    """One of the programs of the documentation, built; skipped where there is no compiler."""
    compiler, *options = BUILDS[request.param]
    needs(compiler)
    made = tmp_path_factory.mktemp("planner") / "first_fit"
    subprocess.run([compiler, *options, str(made), str(PLANNERS / request.param)], check=True, capture_output=True)
    return f"cmd:{made}"


def saying(tmp_path, text):
    """A command of this interpreter that runs `text` for each line."""
    script = tmp_path / "planner.py"
    script.write_text(f"import json, os, sys\nfor line in sys.stdin:\n    {text}\n    sys.stdout.flush()\n")
    return f"cmd:{sys.executable} {script}"


@pytest.mark.parametrize("name", list(BUILDS))
def test_a_program_of_the_documentation_has_less_than_a_hundred_lines(name):
    assert len((PLANNERS / name).read_text(encoding="utf-8").splitlines()) < 100


def test_a_command_plans_a_file_as_any_planner(command, tmp_path):
    program = assemble(RECIPES)
    write(Document(programs=(program,)), tmp_path / "program.json")

    assert (
        main(["plan", str(tmp_path / "program.json"), "--allocator", command, "-o", str(tmp_path / "planned.json")])
        == 0
    )
    planned = read(tmp_path / "planned.json")
    assert planned.plans[0].source == command
    assert check(planned).clean


def test_nothing_is_found_wrong_with_the_programs_of_the_documentation(command):
    result = campaign(
        CampaignSpec(target=Target(name=command), source="hypothesis", seed=1, examples=40, reduce_seconds=0.0)
    )

    assert [(finding.breaks, finding.message) for finding in result.findings] == []
    assert result.tally.plans > 40
    assert not result.tally.noted


def test_what_is_asked_is_a_native_document_that_says_what_is_told():
    program = assemble(RECIPES)
    told = Constraints.of(program, pins="all", own=[0], fixed={1: 64})
    problem = ALLOCATORS["reference"].believe(program, told)
    asked = question(problem)

    (read_back,) = loads(__import__("json").dumps(asked)).problems
    assert Constraints.from_problem(read_back).fixed == {1: 64}
    assert (read_back.own == problem.own).all()
    assert (read_back.pinned == problem.pinned).all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("print('so be it')", "'so be it', which is no JSON"),
        ("print('[1, 2]')", "'[1, 2]'; "),
        ("print(json.dumps({'slots': [0]}))", "returned 1 offsets; the program has 5 buffers"),
        ("print(json.dumps({'slots': [0.5] * 5}))", "0.5; an offset is a whole number of bytes"),
        ("sys.exit('no idea')", "ended without an answer: exit status 1: no idea"),
        ("sys.exit(0)", "ended without an answer: exit status 0"),
        ("print('so', end=''); sys.exit(0)", "exit status 0 after half an answer, 'so'"),
        ("print('[' * 100_000)", "lists within lists"),
        ("print(json.dumps({'id': 7, 'slots': [0] * 5}))", "answered question 7 when asked 0"),
        ("print(json.dumps({'id': 'a', 'slots': [0] * 5}))", "answered question 'a' when asked 0"),
        (r"os.write(1, b'{}\n{}\n')", "wrote '{}' after its answer '{}'; an answer is one line"),
        (r"os.write(1, b'{}\n\n')", "wrote '' after its answer '{}'"),
        ("os.abort()", "ended without an answer: SIGABRT"),
    ],
)
def test_what_is_no_answer_is_one_line(tmp_path, text, words):
    planner = find(saying(tmp_path, text))
    with pytest.raises(PlannerError) as error:
        planner.plan(assemble(RECIPES))

    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_an_answer_may_have_the_number_of_its_question(tmp_path):
    planner = find(saying(tmp_path, "print(json.dumps({'id': json.loads(line)['id'], 'refused': 'no'}))"))
    for _ in range(3):
        with pytest.raises(CapacityError, match=r"no$"):
            planner.plan(assemble(RECIPES))
    planner.close()


def test_a_line_that_comes_late_is_found_before_the_next_question_and_shifts_nothing(tmp_path):
    """The command writes a line more than was asked for once it has seen that its answer was read."""
    gone = tmp_path / "read"
    late = f"answer = json.dumps({{'refused': 'no'}}); print(answer, flush=True)\n    while not os.path.exists({str(gone)!r}): pass\n    print(answer, flush=True); open({str(gone) + '2'!r}, 'w')"
    planner = find(saying(tmp_path, late))
    with pytest.raises(CapacityError):
        planner.plan(assemble(RECIPES))
    gone.touch()
    while not Path(f"{gone}2").exists():
        pass
    with pytest.raises(PlannerError, match="before the question; an answer is one line"):
        planner.plan(assemble(RECIPES))
    gone.unlink()
    with pytest.raises(CapacityError):
        planner.plan(assemble(RECIPES))
    planner.close()


EATS = {
    "python3": "import sys\nfor line in sys.stdin:\n    held = [bytes(1 << 20) for _ in range(1 << 20)]\n",
    "node": "require('readline').createInterface({input: process.stdin}).on('line', () => {const held = [];"
    "for (;;) held.push(new Array(1 << 17).fill(held.length))})",
    "bash": "while read -r line; do python3 -c 'held = [bytes(1 << 20) for _ in range(1 << 20)]'; done",
}
"""Programs that take memory without end, by what runs them: one by itself, one that does not heed what it may map, one by a child."""

ENDS = {
    "silently": ("sys.exit(0)", "dies", "exit status 0"),
    "in the middle of a line": ("print('{', end=''); sys.exit(0)", "dies", "half an answer"),
    "by a signal": ("os.abort()", "dies", "SIGABRT"),
    "with its parent": ("os.kill(os.getppid(), 9)", "dies", "SIGKILL"),
    "without memory": ("sys.exit('std::bad_alloc')", "memory", "bad_alloc"),
    "in lists": ("print('[' * 100_000)", "rubbish", "lists within lists"),
    "in two lines": (r"os.write(1, b'{}\n{}\n')", "rubbish", "an answer is one line"),
}


@pytest.mark.parametrize("way", ENDS)
def test_how_a_command_ends_is_what_is_told_of_it(way, tmp_path):
    text, kind, words = ENDS[way]
    with Target(name=saying(tmp_path, text)).open() as asker:
        answers = asker.ask([FuzzCase(program=assemble(RECIPES)) for _ in range(2)])

    for answer in answers:
        assert answer.failure.kind == kind
        assert words in answer.failure.words


@pytest.mark.parametrize("runs", EATS)
def test_memory_is_counted_in_all_processes_of_a_command(runs, tmp_path):
    needs(runs)
    script = tmp_path / "planner"
    script.write_text(EATS[runs])
    with Target(name=f"cmd:{shutil.which(runs)} {script}", memory=1 << 28, seconds=30).open() as asker:
        (answer,) = asker.ask([FuzzCase(program=assemble(RECIPES))])

    assert answer.failure.kind == "memory", answer.failure


def test_a_refusal_is_one_and_no_program_is_misuse(tmp_path):
    with pytest.raises(CapacityError, match="no room"):
        find(saying(tmp_path, "print(json.dumps({'refused': 'no room'}))")).plan(
            assemble(RECIPES, arenas=[Arena(name="a", capacity=8)])
        )
    with pytest.raises(PlannerError, match="names no program that can be run"):
        find("cmd:./no_such_planner --flag")


def test_a_command_is_started_where_it_was_named(tmp_path, monkeypatch):
    script = tmp_path / "p.sh"
    script.write_text('#!/bin/sh\nwhile read -r line; do echo \'{"refused": "no room"}\'; done\n')
    script.chmod(0o755)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALLOCSIM_PEERS", "./p.sh")
    named = [find("cmd:./p.sh"), find("tinygrad")]
    monkeypatch.chdir(elsewhere)
    for planner in named:
        with pytest.raises(CapacityError, match="no room"):
            planner.plan(assemble(RECIPES))
        planner.close()


def test_a_campaign_finds_a_command_that_is_named_from_here(tmp_path, monkeypatch):
    script = tmp_path / "p.sh"
    script.write_text('#!/bin/sh\nwhile read -r line; do echo \'{"refused": "no room"}\'; done\n')
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    result = campaign(
        CampaignSpec(target=Target(name="cmd:./p.sh"), source="hypothesis", seed=1, examples=2, reduce_seconds=0.0)
    )

    assert not [finding.message for finding in result.findings if "cannot be started" in finding.message]


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="the system has no real-time signals")
def test_a_signal_without_a_name_has_its_number(tmp_path):
    planner = find(saying(tmp_path, "os.kill(os.getpid(), 40)"))
    with pytest.raises(PlannerError, match=r"ended without an answer: signal 40$"):
        planner.plan(assemble(RECIPES))
