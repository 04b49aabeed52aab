"""Graphs judged as one have the violations that each has alone, in sound plans and in planted ones."""

import copy
import random
from collections import Counter

import pytest
from ggml_live import BOTH, live

from allocsim.judge.fast import check
from allocsim.systems.ggml.capture.graph_document import document
from allocsim.systems.ggml.random_graphs.graph_generator import generate
from allocsim.systems.ggml.random_graphs.graph_recipes import plan_rows
from allocsim.systems.ggml.random_graphs.joined_graphs import joined


def violations(rows):
    """Return how many violations of each kind a planned graph has."""
    return Counter(violation.kind for violation in check(document(rows)).violations)


def moved(rows, rng):
    """Return the rows with one root of the compute buffer, and its views, laid where another lies."""
    rows = copy.deepcopy(rows)
    everything = [(f"L{number}", row) for number, row in enumerate(rows["leafs"])]
    everything += list(enumerate(rows["nodes"]))
    placed = [(name, row) for name, row in everything if row["off"] is not None and row["view_src"] is None]
    (name, victim), (_, other) = rng.sample(placed, 2)
    by = other["off"] - victim["off"]
    for row in [victim, *(row for _, row in everything if row["view_src"] == name and row["off"] is not None)]:
        row["off"] += by
    return rows


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize("first", [0, 500])
def test_graphs_judged_as_one_have_the_violations_of_each(which, first):
    rng = random.Random(f"{which} {first}")
    child = live(which)
    sound = [child.call(plan_rows, generate(seed, none_views=False)) for seed in range(first, first + 24)]
    planted = [moved(rows, rng) if rng.random() < 0.5 else rows for rows in sound]

    for graphs in (sound, planted, [graph for graph in planted if not violations(graph)]):
        assert violations(joined(graphs)) == sum((violations(rows) for rows in graphs), Counter())
    assert violations(joined(planted))


def test_the_names_and_readers_of_joined_graphs_stay_their_own():
    def graph(off):
        plain = {"off": off, "nbytes": 4, "view_src": None}
        return {
            "meta": {"version": "1"},
            "leafs": [{**plain, "name": "a", "src": []}],
            "nodes": [{**plain, "name": "b", "src": ["L0", None]}, {**plain, "name": "c", "src": [0], "view_src": 0}],
        }

    rows = joined([graph(0), graph(8), graph(None)])

    assert [row["name"] for row in rows["nodes"]] == ["0: b", "0: c", "1: b", "1: c", "2: b", "2: c"]
    assert [row["src"] for row in rows["nodes"]] == [["L0", None], [0], ["L1", None], [2], ["L2", None], [4]]
    assert [row["off"] for row in rows["nodes"]] == [0, 0, 4104, 4104, None, None]
    assert [row["view_src"] for row in rows["nodes"][1::2]] == [0, 2, 4]
