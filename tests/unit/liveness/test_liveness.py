"""Liveness and explanations on programs one can follow by eye."""

import networkx as nx
import numpy as np
import pytest
from few import few_of

from allocsim import liveness
from allocsim.errors import ModelError, UnknownNameError
from allocsim.liveness.explanation import explain
from allocsim.model import Problem, Program, Role
from allocsim.programs.builder import ProgramBuilder, plan_of


def chain() -> Program:
    """x is uploaded, y = x * w over x, z = relu(view of y), z is read by the host; `idle` is never touched."""
    b = ProgramBuilder("chain")
    x = b.tensor("x", "f32", (8, 8), role=Role.INPUT)
    w = b.tensor("w", "f32", (8, 8), role=Role.PARAMETER)
    y, z = b.tensor("y", "f32", (8, 8)), b.tensor("z", "f32", (64,))
    b.tensor("idle", "f32", (2,))
    b.op("host.write", (), (x,), name="upload")
    b.op("mul", (x, w), (y,), in_place=((0, 0),), name="mul")
    flat = b.view(y, "flat", (64,))
    b.op("relu", (flat,), (z,), name="relu")
    b.op("host.read", (z,), (), name="download")
    return b.build()


def test_lifetimes_are_half_open_and_reach_through_views():
    assert liveness.lifetimes(chain()).tolist() == [[0, 2], [0, 5], [1, 4], [3, 5], [0, 0]]


def test_a_skipped_upload_is_no_access():
    assert liveness.lifetimes(chain(), skip=(0,)).tolist()[0] == [1, 2]


def test_the_bound_counts_an_in_place_pair_once():
    program = chain()
    assert liveness.live_bytes(program).tolist() == [512, 768, 512, 768, 512]
    assert liveness.permissible_pairs(program).tolist() == [[1, 0, 2]]
    assert liveness.lower_bound(program) == 768  # at step 3 nothing is declared
    assert liveness.lower_bound(program, counted=~program.buffers.persistent) == 512


def test_of_several_pairings_at_one_op_the_best_counts():
    b = ProgramBuilder("swap")
    small, large = b.tensor("small", "u8", (8,)), b.tensor("large", "u8", (64,))
    big, little = b.tensor("big", "u8", (64,)), b.tensor("little", "u8", (8,))
    b.op("make", (), (small, large))
    b.op("swap", (small, large), (big, little), in_place=((1, 0), (0, 1)))
    assert liveness.lower_bound(b.build()) == 72


def test_programs_without_ops_have_no_peak():
    program = ProgramBuilder("empty").build()
    assert liveness.peak(program) is None
    assert liveness.lower_bound(program) == 0
    assert liveness.interference_pairs(program).shape == (0, 2)


def test_everything_takes_a_networkx_graph_too():
    graph = nx.DiGraph()
    graph.add_node("a", nbytes=100, step=0)
    graph.add_node("b", nbytes=50, step=1)
    graph.add_edge("a", "b")
    assert liveness.peak(graph).nbytes == 150
    assert liveness.lower_bound(graph) == 150
    assert list(liveness.interference_graph(graph).edges) == [(0, 1)]
    assert explain(graph, "a").readers[0].op == "b"


def test_too_many_interferences_are_refused_before_memory_runs_out(monkeypatch):
    monkeypatch.setattr(liveness, "MAX_EDGES", 3)
    with pytest.raises(ModelError, match="more than 3 pairs"):
        liveness.interference_pairs(chain())


@pytest.mark.parametrize("count", few_of([200_000, 1_000_000], 1))
def test_many_ops_are_columns(count):
    graph = ProgramBuilder("long")
    buffers = [graph.buffer("", 64) for _ in range(8)]
    for buffer in buffers:
        graph.value("", buffer, "u8", (64,))
    program = graph.build()
    ops = type(program.ops)(
        names=("",) * count,
        kinds=("touch",),
        kind=np.zeros(count, dtype=np.int32),
        operand_starts=np.arange(count + 1),
        operands=(np.arange(count) % 8).astype(np.int32),
        result_starts=np.zeros(count + 1, dtype=np.int64),
        results=np.empty(0, dtype=np.int32),
        in_place_starts=np.zeros(count + 1, dtype=np.int64),
        in_place=np.empty((0, 2), dtype=np.int32),
        in_place_known=np.ones(count, dtype=np.bool_),
        stream=np.zeros(count, dtype=np.int32),
        after_starts=np.zeros(count + 1, dtype=np.int64),
        after=np.empty(0, dtype=np.int32),
    )
    long = Program(name="long", buffers=program.buffers, values=program.values, ops=ops)
    assert liveness.lifetimes(long).tolist() == [[i, count - 7 + i] for i in range(8)]
    assert liveness.lower_bound(long) == 512


def test_an_explanation_names_writer_readers_views_donor_and_neighbours():
    program = chain()
    found = explain(
        program, "y", plan_of(program, {0: 0, 2: 0, 3: 256, 4: 0}), Problem.of(program, stop=[5, 5, 3, 5, 5])
    )
    assert (found.start, found.stop) == (1, 4)
    assert found.writers == (1,)
    assert [(reader.step, reader.view) for reader in found.readers] == [(3, True)]
    assert (found.donors, found.recipients, found.conflicts) == ((0,), (), ())
    assert found.text.splitlines() == [
        "buffer 2 'y': 256 bytes, temporary",
        "lives [1, 4): is first written by op 1 'mul' and last read by op 3 'relu'",
        "read by op 3 'relu' through the view 'flat'",
        "in place: takes the bytes of 0 'x', read for the last time by its first op",
        "lies at [0, 256) of arena 'cpu'",
        "believed to live [0, 3)",
        "TOO SHORT: that leaves out its access at step 3",
    ]


def test_an_explanation_names_pins_persistence_and_conflicts():
    program = chain()
    plan = plan_of(program, {0: 0, 2: 0, 3: 128})
    assert explain(program, 3, plan).pins == (4,)
    assert "last read by the host, which pins it until then by op 4 'download'" in explain(program, 3, plan).text
    assert explain(program, 3, plan).conflicts == (2,)
    assert "CONFLICT: while it lives, some of its bytes are also those of 2 'y'" in explain(program, 3, plan).text
    assert explain(program, 3, plan).before == (0,)
    assert explain(program, 0, plan).after == (3,)
    assert "its content persists from run to run" in explain(program, "w").text
    assert "never lives: no op reads or writes it" in explain(program, "idle").text
    assert "has memory of its own" in explain(program, "w", plan).text
    assert "has no slot" in explain(program, "idle", plan).text


def test_an_explanation_of_what_does_not_exist_is_refused():
    program = chain()
    with pytest.raises(ModelError, match="buffer 5 does not exist; there are 5"):
        explain(program, 5)
    with pytest.raises(ModelError, match="buffer 9 does not exist; there are 5"):
        explain(program, "9")
    with pytest.raises(UnknownNameError, match="buffer 'yy' does not exist; did you mean y"):
        explain(program, "yy")
    with pytest.raises(ModelError, match="plan: was made for another program"):
        explain(program, 0, plan_of(chain(), {}))
