"""Planners by name, and what strangers may and may not return."""

import sys
import textwrap

import pytest

from allocsim.allocators import ALLOCATORS, GUARANTEES, Allocator, Constraints, find, plan_program
from allocsim.errors import CapacityError, PlannerError, UnknownNameError
from allocsim.model import OWN, UNPLACED, Arena, Problem

STRANGERS = """
    import numpy as np
    from allocsim.allocators import ALLOCATORS, Constraints
    from allocsim.programs.builder import plan_of
    from allocsim.model import Problem, Plan

    def by_name(problem):
        return list(range(0, 32 * len(problem.start), 32))

    def by_annotation(p: Problem) -> Plan:
        return plan_of(p.program, by_name(p))

    def by_string(p: "allocsim.model.Problem"):
        return np.array(by_name(p))

    def a_belief(program, constraints):
        return Problem.of(program, pinned=constraints.pinned, own=constraints.own, start=range(3), stop=range(1, 4))

    def whole(program):
        return {buffer: 32 * buffer for buffer in range(len(program.buffers))}

    def whole_told(program, *, verbose=False, constraints=None):
        assert constraints.pinned.tolist() == [True, False, False]
        return [0, 32, 64]

    def told(program, constraints: Constraints):
        assert constraints.pinned.tolist() == [True, False, False]
        return [0, 32, 64]

    def with_option(program, seed=7):
        return [seed * 32, 0, 32]

    def with_nones(program):
        return ["own", None, 0]

    def nothing(problem): return None
    def a_word(problem): return "offsets"
    def a_number(problem): return 7
    def short(problem): return [0, 32]
    def long(problem): return [0] * 4
    def not_a_number(problem): return [0, float("nan"), 64]
    def floats(problem): return np.array([0.0, 32.0, 64.0])
    def booleans(problem): return [True, False, True]
    def a_text_offset(problem): return [0, "32", 64]
    def huge(problem): return [0, 1 << 70, 64]
    def stray_key(problem): return {0: 0, 3: 32}
    def raises(problem): raise ValueError("two\\nlines")
    def empty_error(problem): raise KeyError
    def other_program(problem):
        from allocsim.programs.builder import ProgramBuilder
        return plan_of(ProgramBuilder("another").build(), [])
    def float_columns(problem):
        plan = plan_of(problem.program, [0, 32, 64])
        return Plan(program=plan.program, arena=plan.arena, offset=plan.offset + 0.5, nbytes=plan.nbytes)
    def other_belief(program, constraints):
        from allocsim.programs.builder import ProgramBuilder
        return Problem.of(ProgramBuilder("another").build())
    def beyond(problem): return [0, 32, 1000]
    def leaves(problem): raise SystemExit(3)

    def no_argument(): pass
    a_table = {"a": 1}
    row = ALLOCATORS["reference"]

    class Namespace:
        @staticmethod
        def method(problem):
            return by_name(problem)
"""


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """Find a function of the module above, which lies in the current directory."""
    (tmp_path / "a_stranger.py").write_text(textwrap.dedent(STRANGERS))
    monkeypatch.chdir(tmp_path)
    yield lambda name: find(f"a_stranger:{name}")
    sys.modules.pop("a_stranger", None)


@pytest.fixture
def program(graph_in):
    """Three buffers of 32 bytes, the first read by the host, in an arena of 320 bytes."""
    graph = graph_in(Arena(name="cpu", alignment=32, capacity=320))
    x = graph.leaf(1)
    y = graph.op("f", x, units=1)
    graph.op("f", y, units=1)
    graph.read(x)
    return graph.build()


def test_names_of_the_table_are_found():
    for name, row in ALLOCATORS.items():
        assert find(name) is row
        assert row.name == name
        assert set(row.guarantees) <= set(GUARANTEES)
        assert row.source


def test_a_plan_names_its_allocator_and_its_belief(program):
    for name, row in ALLOCATORS.items():
        plan = row.plan(program)

        assert plan.source == name
        assert plan.problem.program is program
        assert plan.problem.pinned.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gml", "allocator 'gml' does not exist; did you mean ggml?"),
        ("no_such.module:f", "module 'no_such.module' does not exist"),
        ("json:lods", "function of json 'lods' does not exist; did you mean loads"),
        (":f", "module '' does not exist"),
        ("json:", "function of json '' does not exist"),
        ("..json:loads", "module '..json' does not exist"),
    ],
)
def test_unknown_names_are_refused_in_one_line(name, message):
    with pytest.raises(UnknownNameError) as caught:
        find(name)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine.py", "allocator 'mine.py' does not exist; did you mean mine:FUNCTION?"),
        ("mine", "allocator 'mine' does not exist; did you mean mine:FUNCTION?"),
        ("mine.plan", "allocator 'mine.plan' does not exist; did you mean mine:plan?"),
        ("mine.py:plan", "module 'mine.py' does not exist; did you mean mine:plan?"),
        ("./mine.py:plan", "module './mine.py' does not exist; did you mean mine:plan?"),
        ("other.plan", "allocator 'other.plan' does not exist; did you mean best, "),
    ],
)
def test_a_file_of_python_is_answered_with_the_name_that_its_function_has(tmp_path, monkeypatch, name, message):
    (tmp_path / "mine.py").write_text("def plan(program): ...\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownNameError) as caught:
        find(name)

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["by_name", "by_annotation", "by_string", "Namespace.method"])
def test_a_placement_is_recognised_by_its_first_parameter(stranger, program, name):
    planner = stranger(name)
    plan = planner.plan(program)

    assert isinstance(planner, Allocator)
    assert plan.offset.tolist() == [0, 32, 64]
    assert plan.problem.stop.tolist() == [4, 3, 3], "the belief is the exact one"
    assert plan.source == f"a_stranger:{name}"


def test_a_belief_is_completed_by_the_placement_of_ggml(stranger, program):
    plan = stranger("a_belief").plan(program)

    assert plan.offset.tolist() == [0, 32, 32]
    assert plan.problem.stop.tolist() == [1, 2, 3]
    assert plan.source == "a_stranger:a_belief"


def test_a_whole_planner_gives_a_plan_whose_belief_is_not_known(stranger, program):
    plan = stranger("whole").plan(program)

    assert plan.offset.tolist() == [0, 32, 64]
    assert plan.problem is None


def test_constraints_are_passed_to_those_who_take_them(stranger, program):
    assert stranger("told").plan(program).offset.tolist() == [0, 32, 64]
    assert stranger("whole_told").plan(program).offset.tolist() == [0, 32, 64]
    assert stranger("with_option").plan(program).offset.tolist() == [224, 0, 32]


def test_a_belief_at_hand_can_be_placed_by_any_of_them(stranger, program):
    problem = ALLOCATORS["ggml"].believe(program)

    assert stranger("by_name").place(problem).problem is problem
    assert stranger("whole").place(problem).program is program


def test_a_program_of_a_document_is_planned_as_its_problem_tells(program):
    believed = Problem.of(program, pinned=[1], own=[2], fixed={0: 96})

    plan = plan_program(ALLOCATORS["ggml"], program, believed=believed)

    assert plan.problem.pinned.tolist() == [False, True, False]
    assert plan.arena.tolist() == [0, 0, OWN]
    assert plan.offset[0] == 96
    assert plan.problem.stop.tolist() != believed.stop.tolist(), "lifetimes are believed anew"
    assert plan_program(ALLOCATORS["ggml"], program).problem.pinned.tolist() == [True, False, False]


@pytest.mark.parametrize("name", ["ggml", "greedy_by_size"])
def test_a_program_without_ops_is_placed_by_the_problem_it_came_with(graph, name):
    for _ in range(3):
        graph.tensor(1)
    program = graph.build()
    believed = Problem.of(program, start=[0, 0, 5], stop=[5, 9, 9])

    plan = plan_program(ALLOCATORS[name], program, believed=believed, constraints=Constraints.of(program, pins=[1]))

    assert plan.offset.tolist() == [0, 32, 0]
    assert plan.problem.pinned.tolist() == [False, True, False]


def test_none_and_own_mean_what_they_mean_in_a_document(stranger, program):
    told = Constraints.of(program, own=[0])

    assert stranger("with_nones").plan(program, told).arena.tolist() == [OWN, UNPLACED, 0]


def test_a_row_of_a_table_is_found_through_its_module(stranger):
    assert stranger("row") is ALLOCATORS["reference"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "returned None; a plan, or an offset for each buffer, is needed"),
        ("a_word", "returned 'offsets'; a plan"),
        ("a_number", "returned 7; a plan"),
        ("short", "returned 2 offsets; the program has 3 buffers"),
        ("long", "returned 4 offsets; the program has 3 buffers"),
        ("not_a_number", "put buffer 1 at nan; an offset is a whole number of bytes"),
        ("floats", "put buffer 0 at 0.0; an offset is a whole number of bytes"),
        ("booleans", "put buffer 0 at True; an offset"),
        ("a_text_offset", "put buffer 1 at '32'; an offset"),
        ("huge", "returned offsets that make no plan: "),
        ("stray_key", "placed buffer 3, which does not exist; there are 3"),
        ("raises", "raised ValueError: two lines"),
        ("empty_error", "raised KeyError"),
        ("other_program", "returned a plan for another program ('another')"),
        ("float_columns", "returned slots' offset of float64; whole numbers are needed"),
        ("other_belief", "returned a problem of another program ('another')"),
        ("leaves", "raised SystemExit: 3"),
    ],
)
def test_nonsense_is_refused_in_one_line_that_names_the_allocator(stranger, program, name, said):
    with pytest.raises(PlannerError) as caught:
        stranger(name).plan(program)

    assert str(caught.value).startswith(f"allocator 'a_stranger:{name}' {said}")
    assert "\n" not in str(caught.value)


def test_a_plan_beyond_the_capacity_is_refused(stranger, program):
    with pytest.raises(CapacityError, match=r"buffer 2 \('t2'\) ends at byte 1032 of arena 'cpu', which has 320"):
        stranger("beyond").plan(program)


@pytest.mark.parametrize(
    ("name", "said"), [("no_argument", "takes no argument"), ("a_table", "is a dict, not a function")]
)
def test_what_is_no_planner_is_refused(stranger, name, said):
    with pytest.raises(PlannerError, match=said):
        stranger(name)


@pytest.mark.parametrize(
    "text", ["import no_such_thing", "syntax error here", "raise RuntimeError('at import')", "exit()"]
)
def test_a_module_that_cannot_be_imported_is_refused(tmp_path, monkeypatch, text):
    (tmp_path / "a_broken_one.py").write_text(text)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(PlannerError, match="allocator 'a_broken_one:f' cannot be imported"):
        find("a_broken_one:f")


def test_the_path_is_left_as_it_was(stranger):
    before = list(sys.path)

    stranger("whole")

    assert sys.path == before
