"""A step over ranks: the numbers of one process, in every order, under every planner."""

import importlib.util
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.diagnostics import check
from allocsim.document import dumps, loads
from allocsim.errors import EngineError, UnknownNameError
from allocsim.model import Document
from allocsim.programs.joined_ranks import joined
from allocsim.programs.rank_meetings import plans_of
from engine.autodiff import backward
from engine.sharding import Simulation, pipeline, shard

_spec = importlib.util.spec_from_file_location("sharding_steps", Path(__file__).with_name("steps.py"))
steps = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(steps)

SGD = {"alpha": 0.1}


def trained(recorded, step, *, planner="best_fit", seed=None):
    with Simulation(step, step.planned(planner), recorded.weights) as world:
        read = [
            world.run(rows, hyper=SGD, seed=None if seed is None else seed + number)
            for number, rows in enumerate(recorded.data)
        ]
        weights = {n: w for n, w in world.weights().items() if n in recorded.weights}
        assert all(len({float(rank["loss.mean"][0]) for rank in one}) == 1 for one in read)
        return [float(one[0]["loss.mean"][0]) for one in read], weights


@pytest.mark.parametrize("make", [steps.perceptron, steps.lora])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_losses_and_weights_are_those_of_one_process_to_the_bit(zero, make):
    """One process that adds the gradients of the ranks' rows in the same order."""
    recorded = make(4)
    losses, weights = steps.one_process(recorded, alpha=0.1)
    found, held = trained(recorded, shard(*recorded.forward(), zero=zero, ranks=4))
    assert found == losses
    assert {name for name in held if not np.array_equal(held[name], weights[name])} == set()


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_any_number_of_ranks_comes_to_the_losses_of_one_batch_within_a_bound(ranks):
    """One process on all rows at once sums in another order: 16 units in the last place of f32 for each step."""
    recorded = steps.perceptron(ranks)
    found, _ = trained(recorded, shard(*recorded.forward(), zero=3, ranks=ranks))
    rows = [{name: np.concatenate([one[name] for one in step]) for name in step[0]} for step in recorded.data]
    alone = steps.Recorded(
        forward=lambda: recorded.forward(3 * ranks), weights=recorded.weights, data=[[row] for row in rows]
    )
    losses, _ = steps.one_process(alone, alpha=0.1)
    for number, (one, other) in enumerate(zip(found, losses, strict=True), 1):
        assert abs(one - other) <= 16 * number * np.finfo(np.float32).eps * abs(other)


@pytest.mark.parametrize("tensor", [1, 2])
def test_what_the_host_reads_need_not_lead_to_the_loss(tensor):
    graph, loss = steps.perceptron(2, sizes=(6, 16, 8, 4)).forward()
    likely = graph.op("soft_max", graph.nodes[-2], name="likely")
    step = shard(graph, loss, zero=0, ranks=2, tensor=tensor, reads=iter((likely,)))
    assert [read.name for read in step.lowered.reads] == ["loss.mean", "likely"]


@pytest.mark.parametrize("how", [{}, {"prefetch": 0}, {"prefetch": 3}, {"reshard": False}, {"hybrid": (2, 2)}])
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_every_legal_order_gives_the_same_bits(zero, how):
    recorded = steps.perceptron(4)
    step = shard(*recorded.forward(), zero=zero, ranks=4, optimizer="adamw", **how)
    first = trained(recorded, step)
    for seed in range(0, 30, 10):
        losses, weights = trained(recorded, step, seed=seed)
        assert losses == first[0]
        assert all(np.array_equal(weights[name], first[1][name]) for name in weights)


@pytest.mark.parametrize("name", [name for name, row in ALLOCATORS.items() if "sound" in row.guarantees])
def test_every_planner_is_judged_clean_over_all_ranks(name):
    """One rank alone, and the document of all four, say the same: clean."""
    recorded = steps.perceptron(4)
    step = shard(*recorded.forward(), zero=3, ranks=4, optimizer="adamw")
    plan = step.planned(name)
    assert check(Document.of(plan)).clean
    assert check(joined([plan] * 4, step.groups)).clean


@pytest.mark.parametrize("how", [{"zero": 0}, {"zero": 3}, {"zero": 2, "hybrid": (2, 2)}])
def test_the_document_of_a_rank_says_where_the_others_are(how):
    """It is joined over all ranks with nothing told beside it, as with the groups of the step."""
    recorded = steps.perceptron(4)
    step = shard(*recorded.forward(), ranks=4, optimizer="adamw", **how)
    read = loads(dumps(Document.of(step.planned())))
    plans, groups = plans_of([read])
    assert len(plans) == 4
    assert {name: tuple(map(tuple, split)) for name, split in groups.items()} == dict(step.groups)
    assert dumps(joined(plans, groups)) == dumps(joined([step.planned()] * 4, step.groups))


def test_a_gather_is_issued_before_the_unit_that_it_is_ahead_of():
    """With more prefetch gathers come earlier, and more is held."""
    recorded, first, peaks = steps.lora(2, layers=4), [], []
    for prefetch in (0, 1, 2):
        step = shard(*recorded.forward(), zero=3, ranks=2, prefetch=prefetch)
        names = step.lowered.program.ops.names
        first.append(names.index("layer.3.attn_norm.gathered"))
        peaks.append(step.planned().peak_bytes)
    assert first == sorted(first, reverse=True)
    assert len(set(first)) == 3
    assert peaks == sorted(peaks)


def test_resharding_gathers_again_and_holds_less():
    recorded = steps.lora(2, layers=4)
    kept, again = (shard(*recorded.forward(), zero=3, ranks=2, reshard=reshard) for reshard in (False, True))
    count = [[op.kind for op in step.lowered.program.ops].count("all_gather") for step in (kept, again)]
    assert count[1] > count[0]
    assert again.planned().peak_bytes < kept.planned().peak_bytes


def test_small_buckets_are_summed_as_they_fill():
    """A bucket of a byte sums each gradient behind its maker; one that holds all sums behind the last."""
    recorded = steps.perceptron(2)
    places = {}
    for nbytes in (1, 1 << 30):
        step = shard(*recorded.forward(), zero=0, ranks=2, bucket_nbytes=nbytes)
        kinds = [op.kind for op in step.lowered.program.ops]
        sums = [place for place, kind in enumerate(kinds) if kind == "all_reduce"][:-1]
        places[nbytes] = sums[-1] - sums[0] + 1 - len(sums)
    assert places[1] > 0
    assert places[1 << 30] == 0


def test_parts_go_on_with_another_number_of_ranks():
    """What four ranks hold, joined, is what two go on from, to the weights of two from the start."""
    recorded = steps.perceptron(4)
    four = shard(*recorded.forward(), zero=3, ranks=4, optimizer="adamw")
    with Simulation(four, four.planned(), recorded.weights) as world:
        world.run(recorded.data[0], hyper=SGD)
        whole = world.weights()
    two = shard(*recorded.forward(), zero=3, ranks=2, optimizer="adamw")
    held = [two.held(rank, {n: w for n, w in whole.items() if n in two.shapes}) for rank in range(2)]
    again = two.joined(held)
    assert all(np.array_equal(again[name], whole[name]) for name in two.shapes)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"zero": 4, "ranks": 2}, "zero is 4"),
        ({"zero": 3, "ranks": 0}, "at least one rank"),
        ({"zero": 3, "ranks": 4, "hybrid": (3, 2)}, "copies times parts must be the 4 ranks"),
        ({"zero": 0, "ranks": 4, "hybrid": (2, 2)}, "stage 0 keeps none"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(how, says):
    with pytest.raises(EngineError, match=says):
        shard(*steps.perceptron(2).forward(), **how)


@pytest.mark.parametrize("how", [partial(shard, zero=0, ranks=2), partial(pipeline, stages=2, microbatches=2)])
def test_a_state_that_is_written_beside_the_loss_is_refused(how):
    """A running mean leads to no loss; it would stay as it was at the start."""
    graph, loss = steps.perceptron(2).forward()
    running = graph.state("running", (5,))
    graph.writes[running] = graph.op("add", running, graph.op("mean", graph.nodes[-2], axes=0))
    with pytest.raises(EngineError, match=r"running .* is a state"):
        how(graph, loss)


def test_a_graph_with_a_backward_pass_and_an_unknown_optimizer_are_refused():
    graph, loss = steps.perceptron(2).forward()
    with pytest.raises(UnknownNameError, match="optimizer"):
        shard(graph, loss, zero=3, ranks=2, optimizer="adan")
    backward(graph, loss)
    with pytest.raises(EngineError, match="has a backward pass already"):
        shard(graph, loss, zero=3, ranks=2)
