"""Cutting by hand: what goes with an op, what stays in place, and that happens-before is handed on."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocsim.errors import ModelError
from allocsim.model import Document, Problem, Role, Run
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.reduction.cut import cut, families
from repro.small.words import belief, plan, program

TEXT = "x = host.write; a = f x; v:a = view a; b = g! v x; c = h b; host.read c"


def without(document, *ops, index=0):
    masks = [np.ones(len(p.ops), dtype=bool) for p in document.programs]
    masks[index][list(ops)] = False
    return cut(document, ops=masks)


def test_an_operand_whose_maker_goes_goes_too_and_so_do_views_of_it():
    made = program(TEXT)
    (left,) = without(Document.of(plan(made, "x=0 a=64 b=128 c=192")), 1).programs
    assert [op.kind for op in left.ops] == ["host.write", "g", "h", "host.read"]
    assert [left.values[v].name for v in left.ops[1].operands] == ["x"]
    assert left.ops[1].in_place == ()  # the declared pair was about the operand that is gone
    assert left.buffers.names == ("x", "b", "c")


def test_a_declared_pair_follows_its_operand_to_its_new_position():
    b = ProgramBuilder("p")
    x, y, z = (b.tensor(name, "f32", (2,)) for name in "xyz")
    b.op("host.write", (), (x,))
    b.op("host.write", (), (y,))
    b.op("f", (x, y), (z,), in_place=((1, 0),))
    made = b.build()
    (left,) = without(Document.of(plan_of(made, [0, 32, 64])), 0).programs
    assert left.ops[1].in_place == ((0, 0),)


def test_lifetimes_gaps_and_events_keep_their_place_among_the_steps_that_stay():
    made = program(TEXT)
    problem = Problem.of(
        made, start=[0, 1, 3, 4], stop=[4, 9, 5, 6], gaps={0: ((1, 3),)}, may_share=[(1, 2), (2, 3)], pinned=[3]
    )
    placed = plan_of(made, [0, 64, 128, 192], problem=problem, events=np.array([[0, 0, 0], [3, 1, 1], [4, 0, 3]]))
    left = without(Document.of(placed), 1)
    (belief_left,) = left.problems
    assert belief_left.start.tolist() == [0, 1, 2]
    assert belief_left.stop.tolist() == [2, 3, 4]
    assert belief_left.gaps == {0: ((1, 1),)}
    assert belief_left.may_share.tolist() == [[1, 2]]
    assert np.flatnonzero(belief_left.pinned).tolist() == [2]
    assert left.plans[0].events.tolist() == [[0, 0, 0], [2, 0, 2]]


def test_skips_follow_their_uploads():
    made = program("x = host.write; y = host.write; a = f x y; host.read a")
    placed = plan(made, "x=0 y=64 a=128")
    left = without(Document.of(Run.of(placed), Run.of(placed, skip=(0, 1))), 0)
    assert [run.skip for run in left.runs] == [(), (0,)]


def test_a_program_never_loses_its_last_op():
    made = program("x = host.write; host.read x")
    assert without(Document.of(plan(made, "x=0")), 0, 1) is None
    assert without(Document.of(plan(made, "x=0")), 0) is None  # the read has nothing left to read


def test_an_op_that_never_had_operands_stays_and_an_idle_buffer_too():
    b = ProgramBuilder("p")
    x = b.tensor("x", "f32", (2,), role=Role.PARAMETER)
    y = b.tensor("y", "f32", (2,))
    b.op("sync", (), ())
    b.op("f", (), (y,))
    made = b.build()
    (left,) = without(Document.of(plan_of(made, ["own", 0])), 1).programs
    assert [op.kind for op in left.ops] == ["sync"]
    assert left.buffers.names == ("x",)
    assert x == 0


def test_programs_on_one_plan_keep_the_same_buffers():
    first = program("x = host.write; a = f x; host.read a")
    other = program("x = host.write; a = f x; host.read x", name="q")
    document = Document.of(Run.of(plan(first, "x=0 a=64")), Run.of(plan(first, "x=0 a=64"), program=other))
    assert families(document) == [[0, 1]]
    left = without(document, 1, 2)
    assert [p.buffers.names for p in left.programs] == [("x", "a"), ("x", "a")]
    masks = [np.array([True, False]), np.array([True, True])]
    with pytest.raises(ModelError, match="buffers"):
        cut(document, buffers=masks)


@st.composite
def streamed(draw):
    """A program of ops that touch nothing, on up to three streams, with waits."""
    count = draw(st.integers(1, 9))
    b = ProgramBuilder("p", streams=("s0", "s1", "s2"))
    streams = []
    for step in range(count):
        streams.append(draw(st.integers(0, 2)))
        after = draw(st.sets(st.integers(0, step - 1), max_size=2)) if step else set()
        b.op("k", (), (), name=str(step), stream=streams[-1], after=sorted(after))
    return b.build()


def before(made):
    """The pairs of names ordered by happens-before, by networkx."""
    graph = nx.DiGraph()
    graph.add_nodes_from(made.ops.names)
    last = {}
    for op in made.ops:
        graph.add_edges_from((made.ops.names[earlier], op.name) for earlier in op.after)
        if op.stream in last:
            graph.add_edge(last[op.stream], op.name)
        last[op.stream] = op.name
    return set(nx.transitive_closure_dag(graph).edges)


@given(streamed(), st.integers(0, 511))
@settings(max_examples=150)
def test_what_stays_is_ordered_exactly_as_it_was(made, bits):
    kept = np.array([bool(bits >> step & 1) for step in range(len(made.ops))])
    if not kept.any():
        return
    (left,) = cut(Document(programs=(made,)), ops=[kept]).programs
    names = set(left.ops.names)
    assert before(left) == {pair for pair in before(made) if set(pair) <= names}


def test_a_belief_is_cut_with_its_program():
    made = program(TEXT)
    problem = belief(made)
    left = without(Document.of(plan_of(made, [0, 64, 128, 192], problem=problem)), 4)
    assert left.plans[0].problem is left.problems[0]
    assert left.problems[0].program is left.programs[0]
