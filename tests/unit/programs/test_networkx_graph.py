"""Programs as networkx graphs: what ours carry, what a user's may leave out, and what is refused."""

import networkx as nx
import pytest

from allocsim import as_program, verify_lifetimes, verify_program
from allocsim.errors import ModelError
from allocsim.model import Role
from allocsim.programs.builder import ProgramBuilder
from allocsim.programs.networkx_graph import from_networkx, to_networkx


def program():
    b = ProgramBuilder("p", streams=("m", "n"))
    x = b.tensor("x", "f32", (4,), role=Role.INPUT, alignment=8)
    y = b.tensor("y", "f32", (4,))
    b.op("host.write", (), (x,), name="up")
    b.op("mul", (x, x), (y,), in_place=((0, 0),), name="square", stream=1, after=(0,))
    return b.build()


def test_nodes_and_edges_carry_the_documented_attributes():
    graph = to_networkx(program())
    assert graph.nodes["op", 1] == {
        "kind": "op", "op_kind": "mul", "name": "square", "step": 1, "in_place": "[[0, 0]]", "stream": 1,
    }  # fmt: skip
    assert graph.nodes["value", 0] == {
        "kind": "value", "name": "x", "buffer": 0, "dtype": "f32", "shape": "[4]", "strides": "[4]", "offset": 0, "nbytes": 16,
        "alignment": 8, "arena": 0, "role": "input", "read_only": False, "buffer_name": "x",
    }  # fmt: skip
    assert graph.edges[("value", 0), ("op", 1)] == {"positions": "[0, 1]"}
    assert graph.edges[("op", 1), ("value", 1)] == {"position": 0}
    assert graph.edges[("op", 0), ("op", 1)] == {"after": "[0]"}


def test_a_graph_of_tensors_needs_only_sizes_and_steps():
    graph = nx.DiGraph()
    for step, name in enumerate("abc"):
        graph.add_node(name, nbytes=10 * (step + 1), step=10 * step)
    graph.add_edges_from([("a", "b"), ("a", "c"), ("b", "c")])
    found = from_networkx(graph)
    assert found.buffers.nbytes.tolist() == [10, 20, 30]
    assert found.buffers.names == ("a", "b", "c")
    assert [(op.name, op.operands, op.results) for op in found.ops] == [
        ("a", (), (0,)),
        ("b", (0,), (1,)),
        ("c", (0, 1), (2,)),
    ]
    assert found.values[2].dtype == "u8"
    assert verify_program(graph, [0, 16, 64]).violations[0].kind == "Misaligned"
    assert verify_program(graph, [0, 0, 64]).of_kind("StaleRead")
    assert verify_program(graph, [0, 32, 64]).clean
    assert verify_lifetimes(graph, {"start": [0, 1, 2], "stop": [2, 3, 3]}).of_kind("LifetimeTooShort")


def test_a_graph_of_ops_and_values_is_recognised_by_attributes_or_by_kind():
    graph = nx.DiGraph()
    graph.add_node("t", nbytes=8)
    graph.add_node("u", nbytes=8, dtype="f32", shape=[2], name="out")
    graph.add_node("load", step=3, op_kind="host.write")
    graph.add_node(("op", "x"), step=7, in_place=[(0, 0)])
    graph.add_edges_from([("load", "t"), ("t", ("op", "x")), (("op", "x"), "u")])
    found = from_networkx(graph)
    assert [op.kind for op in found.ops] == ["host.write", "op"]
    assert found.ops[1].in_place == ((0, 0),)
    assert [value.name for value in found.values] == ["t", "out"]


def test_values_with_equal_buffer_keys_share_one_buffer():
    graph = nx.DiGraph()
    graph.add_node("whole", nbytes=8, buffer="b")
    graph.add_node("half", buffer="b", kind="value", shape=(4,), offset=4)
    graph.add_node("look", step=0, op_kind="view")
    graph.add_edges_from([("whole", "look"), ("look", "half")])
    found = from_networkx(graph)
    assert found.buffers.nbytes.tolist() == [8]
    assert found.values[1].offset == 4


def test_positions_left_out_are_filled_in_the_order_of_the_edges():
    graph = nx.DiGraph()
    for name in "abcd":
        graph.add_node(name, nbytes=4)
    graph.add_node("f", step=0)
    graph.add_edges_from([("c", "f"), ("a", "f")])
    graph.add_edge("b", "f", positions=[0, 3])
    graph.add_edge("f", "d")
    assert from_networkx(graph).ops[0].operands == (1, 2, 0, 1)


def graph_of(*edges, **nodes):
    graph = nx.DiGraph()
    for name, attributes in nodes.items():
        graph.add_node(name, **attributes)
    graph.add_edges_from(edges)
    return graph


REFUSED = {
    "cycle": (
        graph_of(("a", "b"), ("b", "a"), a={"nbytes": 1, "step": 0}, b={"nbytes": 1, "step": 1}),
        "graph: has a cycle: a -> b -> a",
    ),
    "no attributes": (graph_of(a={}), "node 'a': is neither an op (no `step`) nor a value (no `nbytes`)"),
    "no step": (graph_of(a={"kind": "op"}), "node 'a': is an op without `step`"),
    "no nbytes": (graph_of(a={"kind": "value"}), "node 'a': is a value without `nbytes`"),
    "tie": (graph_of(a={"step": 1}, b={"step": 1}), "node 'b': has step 1, as has node 'a'; ops run one after another"),
    "order": (
        graph_of(("a", "b"), a={"nbytes": 1, "step": 2}, b={"nbytes": 1, "step": 1}),
        "node 'b': runs at step 1 and needs node 'a', which runs at 2",
    ),
    "order through a value": (
        graph_of(("f", "v"), ("v", "g"), f={"step": 2}, g={"step": 1}, v={"nbytes": 1}),
        "node 'g': runs at step 1 and needs node 'f', which runs at 2",
    ),
    "no op between": (
        graph_of(("a", "b"), a={"nbytes": 1}, b={"nbytes": 1}),
        "node 'b': follows the value node 'a' without an op",
    ),
    "made twice": (
        graph_of(("f", "v"), ("g", "v"), f={"step": 0}, g={"step": 1}, v={"nbytes": 1}),
        "ops[1].results[0]: value 0 is made by op 0 already",
    ),
    "size": (graph_of(a={"nbytes": "12", "step": 0}), "node 'a': nbytes '12' is not an integer"),
    "negative size": (
        graph_of(a={"nbytes": -12, "shape": [], "step": 0}),
        "buffers[0].nbytes: -12 is not between 0 and 2^62",
    ),
    "dtype": (graph_of(a={"nbytes": 4, "dtype": ["f32"]}), "node 'a': dtype ['f32'] is none of f64"),
    "role": (graph_of(a={"nbytes": 4, "role": ["x"]}), "node 'a': role ['x'] is none of temporary"),
    "rest": (
        graph_of(a={"nbytes": 5, "dtype": "f32"}),
        "node 'a': has no `shape`, and its 5 bytes are no whole number of f32",
    ),
    "unequal": (
        graph_of(a={"nbytes": 4, "buffer": 1}, b={"nbytes": 5, "buffer": 1}),
        "node 'b': says nbytes=5 of a buffer that has 4 elsewhere",
    ),
    "buffer": (graph_of(a={"nbytes": 4, "buffer": [1]}), "node 'a': buffer [1] is no key; equal keys are one buffer"),
    "pair": (graph_of(a={"step": 0, "in_place": [(0, 0, 0)]}), "node 'a': in_place (0, 0, 0) is not a pair"),
    "shape": (graph_of(a={"nbytes": 0, "shape": 3}), "node 'a': shape 3 is not a list of integers"),
    "undirected": (nx.Graph(), "graph: a Graph is no DiGraph"),
    "parallel edges": (nx.MultiDiGraph(), "graph: a MultiDiGraph is no DiGraph"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_graph_that_is_no_program_is_refused_by_node(case):
    graph, complaint = REFUSED[case]
    with pytest.raises(ModelError) as error:
        from_networkx(graph)
    assert str(error.value).startswith(complaint)


@pytest.mark.parametrize("position", [2, -1])
def test_positions_with_holes_are_refused(position):
    graph = graph_of(a={"nbytes": 1}, b={"nbytes": 1}, f={"step": 0})
    graph.add_edge("a", "f", positions=[0])
    graph.add_edge("b", "f", positions=[position])
    with pytest.raises(ModelError, match=rf"node 'f': has an edge with positions {position}; there are 2"):
        from_networkx(graph)


def test_one_position_for_two_values_is_refused():
    graph = graph_of(a={"nbytes": 1}, b={"nbytes": 1}, f={"step": 0})
    graph.add_edge("a", "f", positions=[0])
    graph.add_edge("b", "f", positions=0)
    with pytest.raises(ModelError, match="node 'f': has two edges with positions 0"):
        from_networkx(graph)


def test_as_program_takes_programs_and_graphs_and_nothing_else():
    made = program()
    assert as_program(made) is made
    assert as_program(to_networkx(made)).name == "p"
    with pytest.raises(ModelError, match="a str is neither a Program nor a networkx DiGraph"):
        as_program("p.json")
