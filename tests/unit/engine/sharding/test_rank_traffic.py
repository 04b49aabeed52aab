"""Bytes that travel: what the count says beside what ranks take from each other in the simulation."""

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from engine.graph import Graph
from engine.graph.lowering import lower
from engine.sharding import Simulation, pipeline, shard, simulation
from engine.sharding.rank_traffic import traffic
from engine.sharding.schedule import on_streams

_spec = importlib.util.spec_from_file_location("sharding_steps", Path(__file__).with_name("steps.py"))
steps = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(steps)

EVEN = (8, 16, 12, 4)
"""Widths of a perceptron whose weights four ranks divide."""


def taken(monkeypatch, step, plans, recorded):
    """Bytes of results that hang on what another rank gave, by kind, and bytes given, in a step of all ranks."""
    into, given = Counter(), Counter()
    receive = simulation.receive

    def counting(kind, params, place, parts, out):
        for other, part in enumerate(parts):
            if other == place or not part.size:
                continue
            marked = [np.full_like(x, np.nan if s == other else 0) for s, x in enumerate(parts)]
            seen = np.zeros_like(out)
            receive(kind, params, place, marked, seen)
            into[kind] += int(np.isnan(seen).sum()) * out.itemsize
            given[kind] += part.nbytes
        receive(kind, params, place, parts, out)

    monkeypatch.setattr(simulation, "receive", counting)
    with Simulation(step, plans, recorded.weights) as world:
        world.run(recorded.data[0], hyper={"alpha": 0.1})
    return into, given


def total(rows, side):
    return sum((Counter(getattr(row, side)) for row in rows), Counter())


@pytest.mark.parametrize("zero", range(4))
def test_a_step_receives_the_bytes_that_ranks_took_from_each_other(monkeypatch, zero):
    """Without a ring each rank takes n - 1 whole tensors to sum them; a ring brings 2 / n of that."""
    recorded = steps.perceptron(4, sizes=EVEN, steps=1)
    step = shard(*recorded.forward(), zero=zero, ranks=4)
    into, _ = taken(monkeypatch, step, step.planned(), recorded)
    rows = traffic(step)
    assert total(rows, "received") == total(rows, "sent")
    assert len(rows) == 4
    into["all_reduce"] = into["all_reduce"] * 2 // 4
    assert total(rows, "received") == into


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_a_pipeline_exchanges_the_bytes_of_its_messages(monkeypatch, schedule):
    recorded = steps.perceptron(4, steps=1)
    step = pipeline(*recorded.forward(), stages=2, microbatches=4, schedule=schedule)
    into, given = taken(monkeypatch, step, step.planned(), recorded)
    rows = traffic(step)
    assert total(rows, "received") == Counter(recv=into["recv"])
    assert total(rows, "sent") == Counter(send=given["recv"])
    assert all(row.sent["send"] and row.received["recv"] for row in rows)


@pytest.mark.parametrize(("zero", "passes"), [(0, 2), (1, 2), (2, 2), (3, 3)])
@pytest.mark.parametrize("ranks", [1, 4])
def test_stages_send_what_zero_says_they_do(zero, passes, ranks):
    """Rajbhandari et al. 2020, section 7: twice the parameters, three times in stage 3, of which a ring keeps 1 / n.

    Backward gathers again what it reads: no bias, and not the first weight, as the rows need no gradient.
    """
    recorded = steps.perceptron(ranks, sizes=EVEN)
    step = shard(*recorded.forward(), zero=zero, ranks=ranks)
    weights = 4 * sum(weight.size for weight in recorded.weights.values())
    unread = 4 * (EVEN[0] * EVEN[1] + sum(EVEN[1:])) if zero == 3 else 0
    loss = -(-2 * 4 * (ranks - 1) // ranks)
    sent = {sum(row.sent.values()) for row in traffic(step)}
    assert sent == {(passes * weights - unread) * (ranks - 1) // ranks + loss}


@pytest.mark.parametrize("zero", range(4))
def test_in_16_bits_half_as_much_travels(zero):
    """But for the mean loss, which is of f32."""
    recorded = steps.perceptron(4, sizes=EVEN)
    wide, narrow = (
        sum(traffic(shard(*recorded.forward(), zero=zero, ranks=4, weights=weights))[0].sent.values()) - 6
        for weights in (None, "bf16")
    )
    assert wide == 2 * narrow


def test_without_gathering_again_stage_three_sends_as_much_as_the_others():
    recorded = steps.perceptron(4, sizes=EVEN)
    three, two = (
        sum(traffic(shard(*recorded.forward(), zero=zero, ranks=4, reshard=False))[0].sent.values()) for zero in (3, 2)
    )
    assert three == two


def test_of_a_root_the_chain_begins_and_ends_without_a_neighbour():
    graph = Graph("roots")
    x = graph.input("x", (6,))
    made = [graph.op(kind, x, ranks=3, root=1, name=kind) for kind in ("broadcast", "reduce")]
    graph.expand(*made)
    groups = {"world": ((0, 1, 2),)}
    lowered = on_streams(lower(graph, made), ranks=3, groups=groups)

    class Step:
        of_ranks = (lowered,) * 3

    Step.groups = groups
    rows = traffic(Step)
    assert [(row.sent.get("broadcast", 0), row.received.get("broadcast", 0)) for row in rows] == [
        (0, 24) if rank == 0 else (24, 0) if rank == 1 else (24, 24) for rank in range(3)
    ]
    assert [(row.sent.get("reduce", 0), row.received.get("reduce", 0)) for row in rows] == [
        (24, 0) if rank == 0 else (0, 24) if rank == 1 else (24, 24) for rank in range(3)
    ]
