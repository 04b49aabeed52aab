"""Other legal orders on the engine: races show as wrong numbers, and nothing shows where there is no race."""

from dataclasses import replace

import numpy as np
import pytest
from orders import waits_of

from allocsim.allocators import find
from allocsim.document import read, write
from allocsim.errors import EngineError
from allocsim.judge.fast import check
from allocsim.model import HOST_READ, HOST_WRITE, Arena, Document, Role
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.programs.placed_plans import placed
from allocsim.programs.streams import branches, on_streams, preferring, without_wait
from engine.d_differential.orders import as_json, describe, explore, full_order, spread
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.models.llama import SMOLLM2_135M, batch, init_parameters, training_graph
from engine.runtime import Runtime
from engine.runtime.documents import playable


def forked():
    """The issue's own case: s = f(x); a = g(s) in place, b = h(s) beside it; both are read."""
    graph = Graph("forked")
    x = graph.input("x", (2, 4))
    s = graph.op("scale", x, s=2.0, name="s")
    b = graph.op("mul", s, s, name="b")
    a = graph.op("scale", s, s=-3.0, name="a")
    y = graph.op("add", b, a, name="y")
    graph.expand(y)
    return lower(graph, (y,))


X = {"x": np.arange(1, 9, dtype=np.float32).reshape(2, 4)}


def reused(lowered):
    """The plan for one stream: `a` lies over `s`, whose last reader it is in list order."""
    names = {name: buffer for buffer, name in enumerate(lowered.program.buffers.names)}
    offsets = {"x": 0, "s": 32, "b": 64, "a": 32, "y": 96}
    return plan_of(lowered.program, {names[name]: offset for name, offset in offsets.items()})


def test_in_place_beside_a_reader_shows_the_wrong_number():
    lowered = forked()
    made = reused(lowered)
    assert check(Document.of(made)).clean
    parallel = spread(lowered, 2)
    found = explore(parallel, placed(parallel.program, made), X)
    first = found.first
    assert found.races == 1
    names = parallel.program.ops.names
    assert (names[first.race.op], names[first.race.other_op]) == ("a", "b")
    assert (names[first.op], parallel.program.values.names[first.value], first.index) == ("b", "s", (0, 0))
    assert (first.wanted, first.found, first.elements) == (2.0, -6.0, 8)
    assert first.max_error == 64 / 16
    assert first.order == full_order(parallel.program, first.race)
    assert describe(parallel.program, first) == (
        "in another legal order (op 3 'a' before op 2 'b'), op 2 'b' reads 's'[0, 0] = -6 instead of 2; "
        "8 elements differ, by up to 4 of the largest"
    )


def test_waits_for_reuse_make_every_order_right():
    lowered = forked()
    made = reused(lowered)
    parallel = spread(lowered, 2, made)
    found = explore(parallel, placed(parallel.program, made), X, stop_at=99)
    assert (found.races, found.differences) == (0, ())
    # what is left to choose: nothing, for every op is in order now
    assert found.orders == 0


@pytest.fixture(scope="module")
def step():
    """Two layers of the flagship with a table of few tokens, planned by ggml's planner for one stream."""
    config = replace(SMOLLM2_135M, layers=2, seq=8, vocab=1024)
    graph = training_graph(config)
    lowered = lower(graph.graph, (graph.loss,))
    return lowered, find("ggml").plan(lowered.program), batch(config, seed=1), init_parameters(config, seed=0)


@pytest.mark.parametrize("streams", [2, 3])
def test_branches_of_a_transformer_under_a_plan_for_one_stream_go_wrong(step, streams):
    lowered, made, inputs, parameters = step
    parallel = spread(lowered, streams)
    plan = placed(parallel.program, made)
    report = check(Document.of(plan))
    assert set(report.counts) == {"Race"}
    assert not any(race.in_apart for race in report.violations)
    found = explore(parallel, plan, inputs, parameters=parameters)
    assert found.first
    assert found.races == report.count


@pytest.mark.parametrize("for_plan", [True, False])
def test_no_order_of_a_transformer_without_races_shows_anything(step, for_plan):
    """With waits for reuse under the plan; with waits for data alone, with every tensor apart."""
    lowered, made, inputs, parameters = step
    parallel = spread(lowered, 3, made if for_plan else None)
    plan = placed(parallel.program, made) if for_plan else find("reference").plan(parallel.program)
    assert not check(Document.of(plan)).counts
    found = explore(parallel, plan, inputs, parameters=parameters, orders=6, stop_at=99)
    assert (found.orders, found.differences) == (6, ())


def test_a_wait_forgotten_is_found_and_seen(step):
    """The planted fault: of the waits for data, leave one out; it races with every tensor apart, and is read too early."""
    lowered, _, inputs, parameters = step
    parallel = spread(lowered, 3)
    ops = parallel.program.ops
    waits = [pair for pair in waits_of(parallel.program) if ops.kinds[ops.kind[pair[1]]] not in ("view", HOST_WRITE)]
    for op, wait in waits[:: len(waits) // 4]:
        broken = replace(parallel, program=without_wait(parallel.program, op, wait))
        plan = find("reference").plan(broken.program)
        report = check(Document.of(plan))
        assert report.count
        assert all(race.in_apart for race in report.violations)
        assert explore(broken, plan, inputs, parameters=parameters).first


def test_a_run_in_list_order_is_the_run(step):
    lowered, made, inputs, parameters = step
    order = range(len(lowered.program.ops))
    with (
        Runtime(lowered, made, parameters=parameters) as one,
        Runtime(lowered, made, parameters=parameters, order=order) as other,
    ):
        steps = []
        outputs = other.run(inputs, observer=lambda step, *_: steps.append(step))
        assert one.run(inputs) == outputs
        assert steps == list(range(len(lowered.program.ops)))


def test_exploring_is_repeatable_and_leaves_no_trace(step):
    lowered, made, inputs, parameters = step
    parallel = spread(lowered, 2)
    plan = placed(parallel.program, made)
    once, again = (
        explore(parallel, plan, inputs, parameters=parameters, orders=8, seed=3, stop_at=3) for _ in range(2)
    )
    assert as_json(once) == as_json(again)
    assert once.orders == 8 or len(once.differences) == 3


# programs from files ---------------------------------------------------------------------------------------------------------


def test_a_lowered_program_comes_back_from_a_file_with_its_kernels_and_their_parameters(step, tmp_path):
    lowered, made, _, _ = step
    parallel = spread(lowered, 3)
    write(Document.of(placed(parallel.program, made)), tmp_path / "p.json")
    (plan,) = read(tmp_path / "p.json").plans
    ready = playable(plan.program, seed=5)
    assert ready.lowered.kernels == lowered.kernels
    for mine, theirs in zip(ready.lowered.tensors, lowered.tensors, strict=True):
        assert theirs.kind is None or theirs.rule.view or dict(mine.params) == dict(theirs.params)
    assert explore(ready.lowered, plan, ready.uploads, parameters=ready.parameters).first


def written_late():
    """The host writes in the middle of the program, twice at once, and one op has no operand at all."""
    b = ProgramBuilder("p", arenas=(Arena(name="cpu", alignment=4),), streams=("one", "two"))
    x, y, z, u = (b.tensor(name, "f32", (4,)) for name in "xyzu")
    b.op(HOST_WRITE, (), (x,))
    b.op("neg", (x,), (y,))
    b.op(HOST_WRITE, (), (z, u), stream=1)
    b.op(HOST_READ, (y,), ())
    return b.build()


def test_uploads_in_the_middle_are_written_in_their_turn():
    program = written_late()
    ready = playable(program)
    plan = plan_of(program, [0, 16, 0, 32])
    found = explore(ready.lowered, plan, ready.uploads, stop_at=9)
    (early,) = found.differences
    assert (early.order, program.ops.names[early.op]) == ((0, 2, 1, 3), "neg")
    assert early.wanted == ready.uploads[0][0][0]
    assert early.found == ready.uploads[2][0][0]


def op(kind="neg", *, operands=1, results=1, meta=None, dtype="f32", shape=(4,), role=Role.TEMPORARY):
    b = ProgramBuilder("p")
    read = [b.tensor(f"x{n}", dtype, shape, role=role) for n in range(operands)]
    made = [b.tensor(f"y{n}", dtype, (4,)) for n in range(results)]
    b.op(kind, read, made, name="here", meta=meta)
    return b.build()


@pytest.mark.parametrize(
    ("program", "rule"),
    [
        (op("conv9d"), "op 0 'here' is of kind 'conv9d', for which the engine has no kernel; it cannot be run"),
        (op("scale"), "op 0 'here' is 'scale' without s in its meta.params; it cannot be run"),
        (op("neg", meta={"params": {"s": 1}}), "op 0 'here': meta.params is not an object of nothing"),
        (op("neg", meta={"params": 7}), "op 0 'here': meta.params is not an object of nothing"),
        (op("neg", meta={"variant": "fast"}), "op 0 'here': kernel 'neg' has no variant 'fast'; there are numpy"),
        (op("neg", operands=2), "op 0 'here': neg has 1 operands and 1 result, not 2 and 1"),
        (op("neg", results=2), "op 0 'here': neg has 1 operands and 1 result, not 1 and 2"),
        (op("neg", dtype="u8"), "value 0 'x0' is u8; the engine has f32, f64, i32, f16, bf16, f8_e4m3, f8_e5m2"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_op_and_the_rule(program, rule):
    with pytest.raises(EngineError) as caught:
        playable(program)
    assert str(caught.value) == rule


def test_a_kernel_that_refuses_its_shapes_says_so():
    program = op("neg", shape=(5,))
    ready = playable(program)
    with pytest.raises(EngineError):
        explore(ready.lowered, plan_of(program, [0, 32]), ready.uploads)


def test_parameters_are_given_data_whatever_values_lie_in_them():
    b = ProgramBuilder("p", streams=("one", "two"))
    w = b.buffer("w", 32, role=Role.PARAMETER, read_only=True)
    halves = [b.value(f"w{n}", w, "f32", (4,), offset=16 * n) for n in range(2)]
    y = b.tensor("y", "f32", (4,))
    b.op("add", halves, (y,))
    b.op(HOST_READ, (y,), (), stream=1)
    program = b.build()
    ready = playable(program)
    assert ready.parameters["w"].shape == (8,)
    found = explore(ready.lowered, plan_of(program, {1: 0}), ready.uploads, parameters=ready.parameters)
    assert found.first.found == 0.0  # read before it was made
    assert found.first.wanted == ready.parameters["w"][0] + ready.parameters["w"][4]


def test_streams_and_orders_of_a_graph_are_those_of_its_program():
    lowered = forked()
    program = on_streams(lowered.program, branches(lowered.program, 2))
    assert spread(lowered, 2).program.ops.stream.tolist() == program.ops.stream.tolist()
    assert sorted(preferring(program, 1)) == list(range(len(program.ops)))
