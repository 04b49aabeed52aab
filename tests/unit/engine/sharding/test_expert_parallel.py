"""Experts over ranks: the numbers of one process, in every order, clean, and as small as predicted."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from few import few_of

from allocsim.allocators import ALLOCATORS
from allocsim.diagnostics import check
from allocsim.errors import EngineError
from allocsim.model import Document, Role
from allocsim.programs.joined_ranks import joined
from allocsim.programs.rank_meetings import meetings
from engine.graph import Graph
from engine.models.experts import mixture
from engine.sharding import Simulation, judge_ranks, shard
from engine.sharding.expert_parallel import expert_parallel
from engine.sharding.rank_traffic import traffic

_spec = importlib.util.spec_from_file_location("expert_steps", Path(__file__).with_name("steps.py"))
steps = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(steps)

SMALL = {"layers": 1, "hidden": 8, "ffn": 6, "heads": 2, "kv_heads": 1, "vocab": 12, "seq": 6, "dtype": "f64"}
SPREAD = ("ffn_gate", "ffn_up", "ffn_down")


def transformer(ranks, **sizes):
    """One with experts and adapters on one projection of them."""
    chosen = {"targets": ("q", "up"), "experts": 4, "capacity": 1.0, "balance": 0.1}
    return steps.lora(ranks, steps=3, **{**SMALL, **chosen, **sizes})


def layer(ranks, *, rows=5, experts=4, active=1, room=2, width=4, inner=3, seed=0, biased=True, whole=False, count=3):
    """A mixture alone, its experts with biases or without; with `whole` all sums are exact."""
    rng = np.random.default_rng(seed)
    shapes = {
        "gain": (width,),
        "router": (experts, width),
        "up": (experts, inner, width),
        "down": (experts, width, inner),
    }
    shapes |= {"shift": (experts, 1, inner), "scale": (inner,)} if biased else {}

    def forward():
        graph = Graph("layer")
        x, labels = graph.input("x", (rows, width), "f64"), graph.input("labels", (rows, width), "f64")
        leaf = {name: graph.parameter(name, shape, "f64", trainable=True) for name, shape in shapes.items()}

        def expert(sent):
            made = graph.op("relu", graph.op("mul_mat", leaf["up"], sent, name="inner"))
            if biased:
                made = graph.op("mul", graph.op("add", made, leaf["shift"]), leaf["scale"])
            return graph.op("mul_mat", leaf["down"], made, name="outer")

        rows_in = graph.op("mul", x, leaf["gain"])
        scores = graph.op("mul_mat", leaf["router"], rows_in)
        mixed = mixture(rows_in, scores, active=active, slots=room, expert=expert)
        result = mixed.result
        if whole:  # no share of a soft maximum: a row is the sum of its experts' results
            ids, places = (graph.find(name) for name in ("dispatched", "router_weight"))
            taken = graph.op("step", places)
            flat = graph.op("reshape", graph.find("outer"), shape=(experts * room, width))
            weighed = graph.op("mul", flat, graph.op("reshape", taken, shape=(experts * room, 1)))
            result = graph.op("get_rows_back", weighed, ids.sources[0].sources[1], rows=rows)
        loss = graph.op("sum", graph.op("mul", graph.op("sub", result, labels), graph.op("sub", result, labels)))
        graph.expand(loss)
        return graph, loss

    def drawn(shape):
        return rng.integers(-3, 4, shape).astype(float) if whole else rng.standard_normal(shape)

    weights = {name: drawn(shape) for name, shape in shapes.items()}
    data = [[{n: drawn((rows, width)) for n in ("x", "labels")} for _ in range(ranks)] for _ in range(count)]
    return steps.Recorded(forward=forward, weights=weights, data=data)


def trained(recorded, step, *, alpha=0.1, seed=None, suspect=False, plan=None, count=None):
    """Losses and whole weights after the steps of the record."""
    with Simulation(step, plan or step.planned(), recorded.weights, suspect=suspect) as world:
        losses = []
        for number, batch in enumerate(recorded.data[:count]):
            read = world.run(batch, hyper={"alpha": alpha}, seed=None if seed is None else seed + number)
            assert len({one["loss.mean"].tobytes() for one in read}) == 1
            losses.append(float(read[0]["loss.mean"][0]))
        return losses, world.weights()


def apart(found, expected):
    """How far weights are from those expected, as a share of the largest of each."""
    return max(np.abs(found[name] - array).max() / np.abs(array).max() for name, array in expected.items())


@pytest.fixture(scope="module")
def alone():
    """The transformer and what one process makes of the rows of four ranks."""
    recorded = transformer(4)
    return recorded, steps.one_process(recorded, alpha=0.1)


@pytest.mark.parametrize(("experts", "zero"), few_of([(4, 0), (2, 1), (2, 2), (4, 3), (2, 0), (2, 3)], 4))
def test_losses_and_weights_of_three_steps_are_those_of_one_process(experts, zero, alone):
    """Sums over rows are made in another order: 16 units in the last place a step, 2^14 in all for weights."""
    recorded, (losses, weights) = alone
    step = shard(*recorded.forward(), zero=zero, ranks=4, experts=experts)
    found, held = trained(recorded, step)
    unit = np.finfo(float).eps
    for number, (one, other) in enumerate(zip(found, losses, strict=True), 1):
        assert abs(one - other) <= 16 * number * unit * abs(other)
    assert apart(held, weights) <= 2**14 * unit


@pytest.mark.parametrize("seed", range(6))
def test_where_all_sums_are_exact_the_bits_are_those_of_one_process(seed):
    """Whole numbers, and no share of a soft maximum: any order of sums gives the same."""
    recorded = layer(4, seed=seed, active=1 + seed % 2, room=1 + seed % 3, whole=True, count=1)
    losses, weights = steps.one_process(recorded, alpha=2.0**-6)
    step = shard(*recorded.forward(), zero=seed % 4, ranks=4, experts=(2, 4)[seed % 2])
    found, held = trained(recorded, step, alpha=2.0**-6)
    assert found == losses
    assert {name for name, array in weights.items() if not np.array_equal(held[name], array)} == set()
    assert any(not np.array_equal(recorded.weights[name], held[name]) for name in ("up", "down"))


@pytest.mark.parametrize("seed", range(12))
def test_drawn_mixtures_come_to_the_numbers_of_one_process(seed):
    rng = np.random.default_rng([seed, 3])
    group, copies = int(rng.integers(2, 4)), int(rng.integers(1, 3))
    experts, rows = group * int(rng.integers(1, 4)), int(rng.integers(1, 9))
    recorded = layer(
        group * copies,
        rows=rows,
        experts=experts,
        active=int(rng.integers(1, experts + 1)),
        room=int(rng.integers(1, rows + 1)),
        width=int(rng.integers(1, 6)),
        inner=int(rng.integers(1, 6)),
        seed=seed,
        biased=bool(rng.integers(2)),
        count=2,
    )
    losses, weights = steps.one_process(recorded, alpha=0.01)
    how = {"zero": int(rng.integers(0, 4)), "ranks": group * copies, "experts": group}
    step = shard(*recorded.forward(), **how)
    assert judge_ranks([step.planned()] * step.sharding.ranks, step.groups).clean
    found, held = trained(recorded, step, alpha=0.01)
    np.testing.assert_allclose(found, losses, rtol=1e-12, err_msg=str(how))
    assert apart(held, weights) < 1e-11, how


def test_experts_are_not_summed_over_ranks_that_hold_others():
    """All-reduced is what is whole, over all ranks; experts over those that hold the same."""
    recorded = transformer(4)
    for group, summed in ((4, set()), (2, {"data"})):
        step = shard(*recorded.forward(), zero=0, ranks=4, experts=group)
        of = {n.name: n.params["group"] for n in step.lowered.graph.nodes if n.kind == "all_reduce"}
        experts = {leaf for leaf in step.spreads if any(part in leaf for part in SPREAD)}
        assert len(experts) == 5
        assert {of[name] for name in of if any(part in name for part in SPREAD)} == summed
        assert {of[name] for name in of if not any(part in name for part in SPREAD)} == {"world"}
    assert step.groups["experts"] == ((0, 1), (2, 3))
    assert step.groups["data"] == ((0, 2), (1, 3))


def test_activations_biases_and_adapters_stay_with_their_experts():
    """Rows are carried there once and back once a layer, forward and backward; all between is done there."""
    recorded = transformer(2, layers=2, glu="silu")
    split = expert_parallel(*recorded.forward(), ranks=2)
    sent = [node for node in split.graph.nodes if node.kind == "all_to_all"]
    assert len(sent) == 4
    assert {node.shape for node in sent} == {(4, 3, 8)}
    there = split.graph.find("layer.1.ffn_par.there")
    assert there.shape == (2, 6, 6)
    assert {axis for name, axis in split.axes.items()} == {0}
    assert {name.split(".")[2] for name in split.axes} == set(SPREAD)
    layered = expert_parallel(*layer(2).forward(), ranks=2)
    assert set(layered.axes) == {"up", "down", "shift"}
    step = shard(*recorded.forward(), zero=0, ranks=2, experts=2)
    kinds = [node.kind for node in step.lowered.graph.nodes]
    assert kinds.count("all_to_all") == 8
    assert traffic(step)[0].sent["all_to_all"] == 8 * 4 * 3 * 8 * 8 // 2


def test_one_slot_an_expert_is_carried_as_often_as_more():
    """A length of 1 is no repetition, but for a bias, which all slots share."""
    recorded = layer(2, room=1)
    split = expert_parallel(*recorded.forward(), ranks=2)
    assert [node.kind for node in split.graph.nodes].count("all_to_all") == 2
    assert split.axes.keys() == {"up", "down", "shift"}


def test_strides_that_would_find_other_elements_are_refused():
    """A view of what lay turned, and comes back from its experts in the order of its axes."""
    graph = Graph("strided")
    x = graph.input("x", (4, 3, 6))
    made = graph.op("mul_mat", graph.parameter("w", (4, 5, 6), trainable=True), x, name="made")
    seen = graph.op("view", graph.op("permute", made, axes=(1, 0, 2)), shape=(3, 20), strides=(5, 1), offset=0)
    loss = graph.op("sum", seen)
    graph.expand(loss)
    with pytest.raises(EngineError, match="by strides"):
        shard(graph, loss, zero=0, ranks=2, experts=2)


def turned(experts=2, slots=3):
    """Experts on the second axis of what is sent, their slots on the first, read again at home."""
    graph = Graph("turned")
    x = graph.input("x", (slots, experts, 4), "f64")
    weight = graph.parameter("w", (experts, 4, 4), "f64", trainable=True)
    made = graph.op("mul_mat", weight, graph.op("permute", x, axes=(1, 0, 2)), name="made")
    back = graph.op("tanh", graph.op("cont", graph.op("permute", made, axes=(1, 0, 2))), name="back")
    both = graph.op("add", back, graph.op("sum", back))
    loss = graph.op("sum", graph.op("sqr", both))
    graph.expand(loss)
    return graph, loss


def test_experts_may_be_any_axis_and_what_sums_over_them_is_done_at_home():
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((2, 4, 4))}
    data = [[{"x": rng.standard_normal((3, 2, 4))} for _ in range(2)] for _ in range(2)]
    recorded = steps.Recorded(forward=turned, weights=weights, data=data)
    step = shard(*turned(), zero=0, ranks=2, experts=2)
    assert step.lowered.graph.find("back.there").shape == (6, 1, 4)
    losses, expected = steps.one_process(recorded, alpha=0.01)
    found, held = trained(recorded, step, alpha=0.01)
    np.testing.assert_allclose(found, losses, rtol=1e-12)
    assert apart(held, expected) < 1e-12


@pytest.mark.parametrize("zero", [0, 3])
def test_every_legal_order_gives_the_same_bits(zero):
    recorded = layer(4, active=2)
    step = shard(*recorded.forward(), zero=zero, ranks=4, experts=2, optimizer="adamw")
    losses, weights = trained(recorded, step)
    for seed in (0, 10, 20):
        found, held = trained(recorded, step, seed=seed)
        assert found == losses
        assert all(np.array_equal(held[name], weights[name]) for name in weights)


@pytest.mark.parametrize("name", [name for name, row in ALLOCATORS.items() if "sound" in row.guarantees])
def test_every_planner_is_judged_clean_over_all_ranks(name):
    """One rank for all, and the document of both."""
    step = shard(*layer(2, biased=False).forward(), zero=0, ranks=2, experts=2)
    plan = step.planned(name)
    report = judge_ranks([plan] * 2, step.groups)
    assert (report.clean, report.judged) == (True, 1)
    assert check(joined([plan] * 2, step.groups)).clean


def test_every_wait_that_is_left_out_is_convicted_and_one_of_an_exchange_gives_other_numbers():
    recorded = layer(2, count=1)
    step = shard(*recorded.forward(), zero=0, ranks=2, experts=2)
    plan, program = step.planned(), step.lowered.program
    waits = np.flatnonzero(np.diff(program.ops.after_starts)).tolist()
    exchanges = [n for n, op in enumerate(program.ops) if op.kind == "all_to_all"]
    assert len(exchanges) == 4
    assert set(exchanges) <= set(waits)
    for waiting in waits:
        bare = replace(plan, program=steps.without_wait(program, waiting), problem=None)
        assert "Race" in {found.kind for found in check(Document.of(bare)).violations}, program.ops.names[waiting]
    right, _ = trained(recorded, step)
    bare = replace(plan, program=steps.without_wait(program, exchanges[0]), problem=None)
    wrong = replace(step, lowered=replace(step.lowered, program=bare.program))
    found = {trained(recorded, wrong, seed=seed, suspect=True, plan=bare)[0][0] for seed in range(12)}
    assert found - set(right)


def test_ranks_that_exchange_other_counts_are_convicted():
    """One with more slots than the other brings more bytes to the first exchange."""
    few, more = (shard(*layer(2, room=room).forward(), zero=0, ranks=2, experts=2) for room in (2, 3))
    (fault,) = meetings([few.lowered.program, more.lowered.program], few.groups).faults
    assert fault.kind == "CollectiveMismatch"
    assert fault.ranks == (0, 1)
    assert "all_to_all" in fault.message
    assert "of 256 bytes" in fault.message
    assert "of 384 bytes" in fault.message


def nbytes(graph):
    return sum(leaf.nbytes for leaf in graph.leafs if leaf.role == Role.PARAMETER)


@pytest.mark.parametrize("group", [2, 4])
def test_a_rank_holds_as_many_bytes_as_predicted(group):
    """Of experts a part, moments too; all else whole."""
    recorded = transformer(1, rank=0, full=True)
    graph, _ = recorded.forward()
    experts = sum(leaf.nbytes for leaf in graph.leafs if any(part in leaf.name for part in SPREAD))
    assert experts > nbytes(graph) / 2
    step = shard(*recorded.forward(), zero=0, ranks=4, experts=group, optimizer="adamw")
    held = [leaf for leaf in step.lowered.graph.leafs if leaf.role in (Role.PARAMETER, Role.STATE)]
    hyper = 8 * sum(step.optimizer.leafs.values())
    expected = 3 * (nbytes(graph) - experts + experts // group)
    assert sum(leaf.nbytes for leaf in held) - hyper == expected


@pytest.mark.parametrize("zero", [0, 3])
def test_parts_join_and_others_go_on_with_them(zero):
    """What four ranks hold of weights and moments, joined, is held by any others, and joins again."""
    recorded = layer(4, count=1)
    one = shard(*recorded.forward(), zero=zero, ranks=4, experts=2, optimizer="adamw")
    _, whole = trained(recorded, one)
    assert all(whole[name].shape == array.shape for name, array in recorded.weights.items())
    for how in ({"zero": 3, "ranks": 4, "experts": 4}, {"zero": 2, "ranks": 3}, {"zero": zero, "ranks": 2}):
        other = shard(*recorded.forward(), optimizer="adamw", **how)
        names = {leaf.name for leaf in other.lowered.graph.leafs} & whole.keys()
        again = other.joined([other.held(rank, {n: whole[n] for n in names}) for rank in range(how["ranks"])])
        assert all(np.array_equal(again[name], whole[name]) for name in names)


def also(kind, first):
    """A layer whose experts' weights are read whole as well, before or behind."""
    graph = Graph("also")
    weight = graph.parameter("w", (4, 3, 3), trainable=True)
    x = graph.input("x", (4, 2, 3))
    pair = [lambda: graph.op("sum", graph.op("mul_mat", weight, x)), lambda: graph.op("sum", graph.op(kind, weight))]
    one, other = (make() for make in (pair[::-1] if first else pair))
    loss = graph.op("add", one, other)
    graph.expand(loss)
    return graph, loss


@pytest.mark.parametrize("first", [True, False])
def test_experts_that_are_read_whole_as_well_are_refused(first):
    with pytest.raises(EngineError, match=r"w f32\[4, 3, 3\] is read .*whole, "):
        shard(*also("sqr", first), zero=0, ranks=2, experts=2)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"ranks": 4, "experts": 3}, "experts spread over 3 ranks: that must divide the 4 ranks"),
        ({"ranks": 4, "experts": 0}, "must divide the 4 ranks"),
        ({"ranks": 4, "experts": 2, "hybrid": (2, 2)}, "not done together"),
        ({"ranks": 4, "experts": 2, "tensor": 2}, "not done together"),
        ({"ranks": 8, "experts": 8}, "no product with a batch of weights that 8 ranks divide"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(how, says):
    with pytest.raises(EngineError, match=says):
        shard(*layer(1).forward(), zero=3, **how)
    with pytest.raises(EngineError, match="no product with a batch of weights"):
        shard(*steps.perceptron(2).forward(), zero=0, ranks=2, experts=2)
