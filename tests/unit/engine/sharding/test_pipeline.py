"""Stages of a graph: the bits of one process, in every order, under every planner, and faults found."""

import importlib.util
from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.diagnostics import check
from allocsim.document import dumps, loads
from allocsim.errors import EngineError, UnknownNameError
from allocsim.model import Document, Role
from allocsim.programs.joined_ranks import joined
from allocsim.programs.rank_meetings import meetings, plans_of
from engine.autodiff import backward
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.sharding import Simulation, judge_ranks, pipeline
from engine.sharding.pipeline_stages import STREAMS
from engine.sharding.pipeline_tables import SCHEDULES, Pass, _bounds
from engine.sharding.schedule import on_streams

_spec = importlib.util.spec_from_file_location("sharding_steps", Path(__file__).with_name("steps.py"))
steps = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(steps)

SGD = {"alpha": 0.1}


def in_flight(passes):
    """Return the most microbatches whose forward pass is made and whose backward pass is not."""
    most = held = 0
    for one in passes:
        held += 1 if one.does == "forward" else -1
        most = max(most, held)
    return most


def made(recorded, stages, **how):
    return pipeline(*recorded.forward(), stages=stages, microbatches=len(recorded.data[0]), **how)


def trained(recorded, step, *, planner="best_fit", seed=None, suspect=False, hyper=SGD, plans=None):
    """Losses, weights and moments after the steps of the record."""
    with Simulation(step, plans or step.planned(planner), recorded.weights, suspect=suspect) as world:
        read = [
            world.run(rows, hyper=hyper, seed=None if seed is None else seed + number)[-1]
            for number, rows in enumerate(recorded.data)
        ]
        return [float(one["loss.mean"][0]) for one in read], world.weights()


def same(found, expected):
    """Whether losses are, and the weights that both have."""
    return found[0] == expected[0] and all(
        np.array_equal(found[1][name], array) for name, array in expected[1].items() if name in found[1]
    )


def faults(programs, groups):
    return meetings(list(programs), groups).faults


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 2), (2, 4), (3, 1), (3, 5)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_losses_and_weights_are_those_of_one_process_to_the_bit_in_every_order(schedule, stages, microbatches):
    """One process that runs the microbatches in turn and adds their gradients; three steps."""
    recorded = steps.perceptron(microbatches)
    alone = steps.one_process(recorded, alpha=0.1)
    step = made(recorded, stages, schedule=schedule)
    assert judge_ranks(step.planned(), step.groups).clean
    for seed in (None, 7, 70):
        found = trained(recorded, step, seed=seed)
        assert same(found, alone)
        assert set(recorded.weights) <= set(found[1])


def test_stages_of_a_transformer_with_adapters_come_to_the_bits_of_one_process():
    """Three steps of four layers in three stages; frozen weights, masks and positions are held where they are read."""
    recorded = steps.lora(3, steps=3, layers=4)
    step = made(recorded, 3, balance="work")
    plans = step.planned()
    assert judge_ranks(plans, step.groups).clean
    assert same(trained(recorded, step, plans=plans, seed=5), steps.one_process(recorded, alpha=0.1))


@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_moments_are_kept_where_the_weights_are(optimizer):
    """Three stages come to the weights and moments of one."""
    recorded = steps.perceptron(3)
    one, three = (trained(recorded, made(recorded, stages, optimizer=optimizer), hyper={}) for stages in (1, 3))
    assert one[1].keys() == three[1].keys()
    assert same(three, one)


@pytest.mark.parametrize("name", [name for name, row in ALLOCATORS.items() if "sound" in row.guarantees])
def test_every_planner_is_judged_clean_over_all_stages(name):
    recorded = steps.perceptron(3)
    step = made(recorded, 2)
    plans = step.planned(name)
    assert all(check(Document.of(plan)).clean for plan in plans)
    assert judge_ranks(plans, step.groups).clean


def test_the_documents_of_stages_say_where_the_others_are():
    """They are joined with nothing told beside them, as `allocsim join` does."""
    step = made(steps.perceptron(2), 2)
    plans, groups = plans_of([loads(dumps(Document.of(plan))) for plan in step.planned()])
    assert dumps(joined(plans, groups)) == dumps(joined(step.planned(), step.groups))


def test_what_the_host_reads_is_read_of_each_microbatch_in_the_stage_that_makes_it():
    recorded = steps.perceptron(2)
    graph, loss = recorded.forward()
    hidden, logits = (graph.find(name) for name in ("layer.0.sum", "layer.2.sum"))
    step = pipeline(graph, loss, stages=2, microbatches=2, reads=(logits, hidden))
    with Simulation(step, step.planned(), recorded.weights) as world:
        first, last = world.run(recorded.data[0], hyper=SGD)
    assert set(first) == {"layer.0.sum.m0", "layer.0.sum.m1"}
    assert set(last) == {"layer.2.sum.m0", "layer.2.sum.m1", "loss.mean"}
    weight, data = recorded.weights["layer.0.weight"], recorded.data[0][1]["data"]
    np.testing.assert_allclose(first["layer.0.sum.m1"], data @ weight.T, rtol=1e-5, atol=1e-6)
    again, loss = recorded.forward()
    with pytest.raises(EngineError, match="is made by no op of graph"):
        pipeline(again, loss, stages=2, microbatches=2, reads=(again.find("data"),))


def skipping(rows=3):
    """Three layers, the first read by the last as well: what crosses the second stage is handed on."""
    graph, rng = Graph("skip"), np.random.default_rng(3)
    x, weights = graph.input("data", (rows, 4)), {}
    first = None
    for layer in range(3):
        with graph.scope(f"layer.{layer}", layer=layer):
            weights[f"layer.{layer}.weight"] = rng.standard_normal((4, 4)).astype(np.float32)
            x = graph.op(
                "tanh", graph.op("mul_mat", graph.parameter("weight", (4, 4), trainable=True), x, name="product")
            )
            first = first or x
    with graph.scope(layer=2):
        loss = graph.op("mean_squared_error", graph.op("add", x, first), graph.input("labels", (rows, 4)), name="loss")
    return graph, loss, weights


def test_what_skips_a_stage_is_handed_on_and_its_gradient_comes_back_the_same_way():
    graph, loss, weights = skipping()
    rng = np.random.default_rng(0)
    rows = [{n: rng.standard_normal((3, 4)).astype(np.float32) for n in ("data", "labels")} for _ in range(2)]
    recorded = steps.Recorded(forward=lambda: skipping()[:2], weights=weights, data=[rows] * 3)
    step = made(recorded, 3)
    kinds = [Counter(op.kind for op in lowered.program.ops) for lowered in step.of_ranks]
    assert [(k["send"] // 2, k["recv"] // 2) for k in kinds] == [(1, 1), (3, 3), (2, 2)]
    assert judge_ranks(step.planned(), step.groups).clean
    assert same(trained(recorded, step, seed=1), steps.one_process(recorded, alpha=0.1))
    assert loss.graph is graph


def test_a_stage_that_trains_nothing_gets_no_gradients_back():
    """The frozen first layers of a network only send."""

    def forward():
        graph, _ = recorded.forward()
        frozen = Graph("frozen")
        image = {}
        for leaf in graph.leafs:
            add = frozen.input if leaf.role == Role.INPUT else frozen.parameter
            more = {"trainable": not leaf.name.startswith("layer.0")} if leaf.role == Role.PARAMETER else {}
            image[leaf] = add(leaf.name, leaf.shape, **more)
        for node in graph.nodes:
            with frozen.scope(layer=node.layer):
                image[node] = frozen.op(node.kind, *(image[s] for s in node.sources), name=node.name, **node.params)
        frozen.expand(image[graph.nodes[-1]])
        return frozen, image[graph.nodes[-1]]

    recorded = steps.perceptron(3)
    half = replace(recorded, forward=forward)
    step = made(half, 3)
    assert [lowered.program.ops.is_kind("recv").sum() for lowered in step.of_ranks] == [0, 3 + 3, 3]
    assert judge_ranks(step.planned(), step.groups).clean
    assert same(trained(half, step, seed=3), steps.one_process(half, alpha=0.1))


# --- memory -----------------------------------------------------------------------------------------------------------


def alive(lowered, problem):
    """The most microbatches of which values of the forward pass, made here, live at once."""
    values = {
        (tensor.name.rpartition(".m")[2], lowered.program.values.buffer[value])
        for tensor, value in lowered.value_of.items()
        if not tensor.is_leaf
        and tensor.stage == "forward"
        and tensor.kind not in ("send", "recv")
        and tensor.name[:5] != "loss."
    }
    spans = [(number, problem.start[buffer], problem.stop[buffer]) for number, buffer in values]
    return max(len({number for number, start, stop in spans if start <= step < stop}) for step in problem.start)


@pytest.mark.parametrize(("schedule", "expected"), [("1f1b", [3, 2, 1]), ("gpipe", [6, 6, 6])])
def test_microbatches_in_flight_are_those_of_the_schedule(schedule, expected):
    """1F1B holds stages - stage of them, GPipe all; by the table, and by the lives that planners get over streams."""
    step = made(steps.perceptron(6, sizes=(6, 9, 9, 9, 9, 9, 5)), 3, schedule=schedule)
    assert [in_flight(passes) for passes in step.passes] == expected
    problems = step.believed("best_fit")
    assert [alive(*pair) for pair in zip(step.of_ranks, problems, strict=True)] == expected


def test_the_peak_of_a_stage_grows_with_microbatches_under_gpipe_alone():
    """Bytes beside the rows of the input, which the host writes at the start; four layers in two stages."""
    peaks = {}
    for schedule in SCHEDULES:
        for count in (4, 8):
            recorded = steps.perceptron(count, rows=16, steps=1, sizes=(8, 64, 64, 64, 8))
            step = made(recorded, 2, schedule=schedule)
            rows = [
                sum(leaf.nbytes for leaf in lowered.graph.leafs if leaf.role == Role.INPUT) for lowered in step.of_ranks
            ]
            peaks[schedule, count] = [plan.peak_bytes - held for plan, held in zip(step.planned(), rows, strict=True)]
    assert peaks == {
        ("1f1b", 4): [65536, 60476],
        ("1f1b", 8): [65536, 60476],
        ("gpipe", 4): [86016, 107068],
        ("gpipe", 8): [135168, 174652],
    }


# --- what is wrong is found -------------------------------------------------------------------------------------------


def again(lowered, nodes, ranks, **how):
    """A stage of these nodes, put on streams anew."""
    lowered.graph.nodes[:] = nodes
    groups = {"world": [tuple(range(ranks))]}
    how = {"streams": STREAMS, "stream_of": lambda node: 1 + (node.stage == "backward"), **how}
    return on_streams(lower(lowered.graph, lowered.reads), ranks=ranks, groups=groups, **how)


def swapped(lowered, kind):
    """The nodes with the first two of a kind exchanged: the second comes where both operands are there."""
    nodes = list(lowered.graph.nodes)
    first, second = [place for place, node in enumerate(nodes) if node.kind == kind][:2]
    nodes.insert(second, nodes.pop(first))
    return nodes


def nameless(lowered):
    ops = lowered.program.ops
    meta = {step: {name: said for name, said in row.items() if name != "of"} for step, row in ops.meta.items()}
    return replace(lowered, program=replace(lowered.program, ops=replace(ops, meta=meta)))


def test_two_sends_exchanged_are_a_mismatch_by_name_and_without_names_wrong_numbers():
    """Sizes agree, so a library that does not name its messages would go on with the wrong ones."""
    recorded = steps.perceptron(3)
    step = made(recorded, 2)
    wrong = again(step.of_ranks[0], swapped(step.of_ranks[0], "send"), 2)
    (fault,) = faults([wrong.program, step.of_ranks[1].program], step.groups)
    assert fault.kind == "CollectiveMismatch"
    assert "rank 0 brings send" in fault.message
    assert ".m1.to1" in fault.message
    assert ".m0.to1" in fault.message
    silent = replace(step, of_ranks=(nameless(wrong), nameless(step.of_ranks[1])))
    assert not faults([lowered.program for lowered in silent.of_ranks], step.groups)
    assert not same(trained(recorded, silent), steps.one_process(recorded, alpha=0.1))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_on_one_stream_of_messages_one_forward_one_backward_is_a_deadlock(schedule):
    """Stage 0 brings an activation while stage 1 brings a gradient, and each waits until it is taken."""
    step = made(steps.perceptron(3), 2, schedule=schedule)
    one = [
        again(lowered, lowered.graph.nodes, 2, streams=("compute", "messages"), stream_of=lambda _: 1).program
        for lowered in step.of_ranks
    ]
    assert not faults([lowered.program for lowered in step.of_ranks], step.groups)
    assert [fault.kind for fault in faults(one, step.groups)] == ["CollectiveDeadlock"] * (schedule == "1f1b")


def without(lowered, edge):
    """The stage without one of its waits."""
    ops = lowered.program.ops
    starts = ops.after_starts.copy()
    starts[np.searchsorted(starts, edge, side="right") :] -= 1
    changed = replace(ops, after=np.delete(ops.after, edge), after_starts=starts)
    return replace(lowered, program=replace(lowered.program, ops=changed))


@pytest.mark.parametrize("stage", [0, 1])
def test_a_wait_left_out_is_a_race_or_changes_nothing_in_any_order(stage):
    """Every wait of compute for what it received is convicted; so is every one without which an order gave other bits."""
    recorded = steps.perceptron(3, steps=1)
    step = made(recorded, 2)
    plans, right = step.planned(), steps.one_process(recorded, alpha=0.1)
    kept = step.of_ranks[stage]
    ops = kept.program.ops
    convicted, received, silent = 0, 0, 0
    for edge in range(len(ops.after)):
        waits = int(np.searchsorted(ops.after_starts, edge, side="right")) - 1
        bare = without(kept, edge)
        plan = replace(plans[stage], program=bare.program, problem=None)
        kinds = {violation.kind for violation in check(Document.of(plan)).violations}
        assert kinds <= {"Race"}
        convicted += bool(kinds)
        if ops.stream[waits] == 0 and ops[int(ops.after[edge])].kind == "recv":
            received += 1
            assert kinds == {"Race"}
        if not kinds:
            silent += 1
            changed = replace(
                step, of_ranks=tuple(bare if place == stage else row for place, row in enumerate(step.of_ranks))
            )
            both = [plan if place == stage else row for place, row in enumerate(plans)]
            assert all(same(trained(recorded, changed, plans=both, suspect=True, seed=seed), right) for seed in (1, 2))
    assert received == 3
    assert convicted > received


def test_the_race_of_a_wait_left_out_gives_wrong_bits_in_some_order():
    recorded = steps.perceptron(3, steps=1)
    step = made(recorded, 2)
    plans, right = step.planned(), steps.one_process(recorded, alpha=0.1)
    ops = step.of_ranks[1].program.ops
    edge = next(edge for edge, giver in enumerate(ops.after.tolist()) if ops[giver].kind == "recv")
    bare = without(step.of_ranks[1], edge)
    changed = replace(step, of_ranks=(step.of_ranks[0], bare))
    both = [plans[0], replace(plans[1], program=bare.program, problem=None)]
    assert any(not same(trained(recorded, changed, plans=both, suspect=True, seed=seed), right) for seed in range(20))


# --- the tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("microbatches", [1, 2, 4, 7])
def test_a_schedule_has_each_pass_once_and_backward_behind_forward_in_order(schedule, stages, microbatches):
    for stage in range(stages):
        passes = SCHEDULES[schedule](stage, stages, microbatches)
        assert Counter(passes) == {Pass(does, n): 1 for does in ("forward", "backward") for n in range(microbatches)}
        for does in ("forward", "backward"):
            assert [one.microbatch for one in passes if one.does == does] == list(range(microbatches))
        assert all(passes.index(Pass("forward", n)) < passes.index(Pass("backward", n)) for n in range(microbatches))
        most = microbatches if schedule == "gpipe" else min(microbatches, stages - stage)
        assert in_flight(passes) == most


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_cuts_are_of_all_ways_those_with_the_least_largest_load(parts):
    rng = np.random.default_rng(parts)
    for _ in range(50):
        loads = rng.integers(0, 9, int(rng.integers(parts, 9))).tolist()
        ways = [(0, *inner, len(loads)) for inner in combinations(range(1, len(loads)), parts - 1)]
        largest = {way: max(sum(loads[a:b]) for a, b in pairwise(way)) for way in ways}
        found = _bounds(loads, parts)
        assert largest[found] == min(largest.values())
        assert found[1] == min(way[1] for way in ways if largest[way] == min(largest.values()))


def stateful():
    graph = Graph("s")
    with graph.scope(layer=0):
        x = graph.op("add", graph.parameter("w", (1,), trainable=True), graph.state("kept", (1,)))
    with graph.scope(layer=1):
        return graph, graph.op("sum", x)


def tied():
    graph = Graph("t")
    weight = graph.parameter("w", (2, 2), trainable=True)
    with graph.scope(layer=0):
        x = graph.op("mul_mat", weight, graph.input("data", (2, 2)))
    with graph.scope(layer=1):
        return graph, graph.op("sum", graph.op("mul_mat", weight, x))


def frozen():
    graph = Graph("f")
    with graph.scope(layer=0):
        x = graph.op("scale", graph.input("data", (1,)), s=2.0)
    with graph.scope(layer=1):
        return graph, graph.op("scale", x, s=2.0)


def turned():
    graph = Graph("v")
    with graph.scope(layer=0):
        x = graph.op("transpose", graph.op("sqr", graph.parameter("w", (2, 3), trainable=True)))
    with graph.scope(layer=1):
        return graph, graph.op("sum", graph.op("cont", x))


def differentiated():
    graph, loss = tied()
    backward(graph, loss)
    return graph, loss


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (stateful, "kept f32[1] is a state"),
        (tied, r"w f32[2, 2] is trained and read in stages [0, 1]"),
        (frozen, "depends on no trainable parameter"),
        (turned, "is not contiguous"),
        (differentiated, "has a backward pass already"),
    ],
)
def test_graphs_that_are_not_cut_are_refused_in_a_line(record, says):
    with pytest.raises(EngineError) as raised:
        pipeline(*record(), stages=2, microbatches=2)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"stages": 4}, "4 stages of a graph of 3 layers"),
        ({"stages": 0}, "at least one of each"),
        ({"microbatches": 0}, "at least one of each"),
        ({"schedule": "zb"}, "schedule"),
        ({"optimizer": "adan"}, "optimizer"),
        ({"balance": "none"}, "balance"),
    ],
)
def test_numbers_and_names_that_do_not_fit_are_refused(how, says):
    with pytest.raises((EngineError, UnknownNameError), match=says):
        pipeline(*steps.perceptron(2).forward(), **{"stages": 2, "microbatches": 2, **how})


def test_other_rows_than_microbatches_are_refused():
    with pytest.raises(EngineError, match="3 rows of inputs for 2 microbatches"):
        made(steps.perceptron(2), 2).given(steps.perceptron(3).data[0])
