"""Pins are a policy that follows the storage; the other constraints have a document's defaults."""

import numpy as np
import pytest

from allocsim.allocators import PINS, Constraints, pin_all, pin_nodes, pin_none, pin_reads, pin_values, resolve_pins
from allocsim.errors import ModelError, UnknownNameError
from allocsim.model import Problem, Role


@pytest.fixture
def program(graph):
    """Buffers: input 0, weight 1, node 2 (read by the host through a view), node 3."""
    x, w = graph.leaf(1), graph.tensor(1, role=Role.PARAMETER)
    y = graph.op("mul", x, w, units=1)
    v = graph.view(y, 1)
    graph.op("mul", v, units=1)
    graph.read(v)
    return graph.build()


def buffers(mask):
    return np.flatnonzero(mask).tolist()


def test_a_pin_on_a_view_pins_its_storage(program):
    assert buffers(pin_values(program, [3])) == [2]


def test_policies(program):
    assert buffers(pin_none(program)) == []
    assert buffers(pin_reads(program)) == [2]
    assert buffers(pin_nodes(program)) == [2, 3]
    assert buffers(pin_all(program)) == [0, 2, 3]
    assert list(PINS) == ["reads", "nodes", "all", "none"]


def test_a_view_of_a_leaf_does_not_make_it_a_node(graph):
    graph.view(graph.leaf(1), 1)

    assert buffers(pin_nodes(graph.build())) == []


def test_defaults_are_those_of_a_document(program):
    told = Constraints.of(program)

    assert buffers(told.pinned) == [2]
    assert buffers(told.own) == [1]
    assert told.fixed == {}


@pytest.mark.parametrize("pins", ["nodes", pin_nodes, [2, 3], np.array([False, False, True, True])])
def test_pins_may_be_a_name_a_policy_buffers_or_a_mask(program, pins):
    assert buffers(Constraints.of(program, pins=pins).pinned) == [2, 3]


def test_what_a_planner_was_told_comes_back_from_its_problem(program):
    problem = Problem.of(program, pinned=[0], own=[1, 2], fixed={3: 64})

    told = Constraints.from_problem(problem)

    assert (buffers(told.pinned), buffers(told.own), told.fixed) == ([0], [1, 2], {3: 64})


def test_an_unknown_policy_is_refused_with_near_matches():
    with pytest.raises(UnknownNameError, match=r"pin policy 'node' does not exist; did you mean nodes"):
        resolve_pins("node")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pins": [4]}, r"pinned\[0\]: buffer 4 does not exist; there are 4"),
        ({"pins": [-1]}, r"pinned\[0\]: buffer -1 does not exist"),
        ({"pins": np.zeros(3, dtype=bool)}, r"pinned: a mask of shape \(3,\); the program has 4 buffers"),
        ({"pins": [0.5]}, r"pinned: \[0.5\] is neither a mask over buffers nor a list of buffers"),
        ({"own": [9]}, r"own\[0\]: buffer 9 does not exist"),
        ({"fixed": {4: 0}}, r"fixed.4: buffer 4 does not exist"),
    ],
)
def test_constraints_about_buffers_that_are_none_are_refused(program, given, message):
    with pytest.raises(ModelError, match=message):
        Constraints.of(program, **given)


def test_a_pin_on_a_value_that_is_none_is_refused(program):
    with pytest.raises(ModelError, match="value 99 does not exist; there are 5"):
        pin_values(program, [99])
