"""The public surface is what `__all__` says, and all of it can be imported."""

import ast
import inspect
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import allocsim
from allocsim.errors import ModelError
from allocsim.model import Problem, Role, Run
from allocsim.programs.builder import ProgramBuilder, plan_of


def test_the_names_are_those_of_the_stub():
    stub = Path(allocsim.__file__).with_suffix(".pyi")
    listed = [
        (a.name, a.asname)
        for n in ast.parse(stub.read_text()).body
        if isinstance(n, ast.ImportFrom) and n.level
        for a in n.names
    ]
    assert all(name == again for name, again in listed)  # said to type checkers to be public
    assert sorted(allocsim.__all__) == sorted(name for name, _ in listed)
    assert len(set(allocsim.__all__)) == len(allocsim.__all__)


@pytest.mark.parametrize("name", allocsim.__all__)
def test_every_public_name_is_importable_and_documented(name):
    found = getattr(allocsim, name)
    assert name in dir(allocsim)
    if inspect.isclass(found) or inspect.isfunction(found):
        assert inspect.getdoc(found), f"{name} has no docstring"
        assert found.__name__ == name


def test_no_public_name_is_also_a_module():
    """A module of that name would take the name's place as soon as somebody imported it."""
    for name in allocsim.__all__:
        assert not inspect.ismodule(getattr(allocsim, name))
        assert find_spec(f"allocsim.{name}") is None


def test_unknown_names_are_an_attribute_error():
    with pytest.raises(AttributeError, match=r"allocsim.*verfy"):
        _ = allocsim.verfy


def program():
    b = ProgramBuilder("p")
    x, y = b.tensor("x", "f32", (4,), role=Role.INPUT), b.tensor("y", "f32", (4,))
    b.op("host.write", (), (x,))
    b.op("neg", (x,), (y,))
    b.op("host.read", (y,), ())
    return b.build()


def test_verify_program_takes_plans_and_bare_offsets():
    made = program()
    assert allocsim.verify_program(made, plan_of(made, [0, 32])).clean
    assert allocsim.verify_program(made, {0: 0, 1: 32}).clean
    assert allocsim.verify_program(made, {0: 0, 1: 0}).of_kind("UnsafeInPlace")


def test_a_plan_for_another_number_of_buffers_is_misuse():
    made = program()
    other = ProgramBuilder("q").build()
    with pytest.raises(ModelError, match="plan: was made for a program with 0 buffers; this one has 2"):
        allocsim.verify_program(made, plan_of(other, []))


def test_verify_lifetimes_judges_beliefs():
    made = program()
    assert allocsim.verify_lifetimes(made, {"start": [0, 1], "stop": [2, 3]}).clean
    found = allocsim.verify_lifetimes(made, Problem.of(made, start=[0, 1], stop=[2, 2]))
    assert [violation.kind for violation in found.violations] == ["MissingPin"]


def test_verify_judges_a_program_without_ops_by_its_problem():
    b = ProgramBuilder("csv")
    for name in "ab":
        b.buffer(name, 32)
    made = b.build()
    problem = Problem.of(made, start=[0, 1], stop=[2, 3])
    assert allocsim.verify(problem, [0, 32]).clean
    assert allocsim.verify(problem, [0, 0]).of_kind("Overlap")
    assert allocsim.verify(Problem.of(made, start=[0, 2], stop=[2, 3]), [0, 0]).clean


def test_verify_session_finds_what_one_run_alone_does_not():
    made = program()
    plan = plan_of(made, [0, 32])
    assert allocsim.verify_session([plan, plan]).clean
    assert allocsim.verify_session([plan, Run.of(plan, skip=(0,))]).warnings
    recycled = plan_of(made, np.array([0, 64]).tolist())
    assert not allocsim.verify_session([recycled, Run.of(plan, skip=(0,)), Run.of(recycled, skip=(0,))]).of_kind("Race")
