"""The allocators of real ggml libraries, asked block by block."""

import pytest

from allocsim.online import Judge, drawn
from allocsim.systems.ggml import online_targets
from allocsim.systems.ggml.online_targets import Driven
from tests.ggml_live import BOTH, here


@pytest.mark.parametrize("kind", ["graph", "tensors"])
@pytest.mark.parametrize("which", BOTH)
def test_what_a_real_allocator_answers_breaks_no_promise(which: str, kind: str):
    here(which)
    judge = Judge(make=getattr(Driven(which), kind), deterministic=True)
    abilities = judge.abilities()
    for index in range(24):
        assert judge.judge(drawn(0, index, abilities), again=index % 4 == 0) is None, index


@pytest.mark.parametrize("which", BOTH)
def test_a_graph_gives_freed_bytes_again_and_a_buffer_of_tensors_when_all_is_free(which: str):
    here(which)
    graph = Driven(which).graph(4096, 64, None)
    low, high = graph.alloc(1000, 32, 0, ""), graph.alloc(1000, 32, 0, "")
    graph.free(low, 0)
    assert (graph.alloc(500, 32, 0, ""), graph.alloc(400, 32, 0, "")) == (0, 512)
    assert graph.alloc(4096 - 2 * 1024 + 1, 32, 0, "") is None
    assert graph.alloc(4096 - 2 * 1024, 32, 0, "") == high + 1024
    tensors = Driven(which).tensors(4096, 64, None)
    places = [tensors.alloc(1000, 256, 0, "") for _ in range(3)]
    assert all(place % 256 == 0 for place in places)
    for place in places[:2]:
        tensors.free(place, 0)
    assert tensors.alloc(1000, 32, 0, "") is None
    tensors.free(places[2], 0)
    assert tensors.alloc(4096, 32, 0, "") == 0


def test_a_node_that_is_read_for_the_last_time_too_early_is_found(monkeypatch):
    """The fault is the graph's: its planner gives out bytes that somebody still holds."""
    here("after")
    placed = online_targets._Nodes.placed

    def early(self, nbytes):
        found = placed(self, nbytes)
        if found is not None:
            self._calls.append((0, found[0]))
        return found

    monkeypatch.setattr(online_targets._Nodes, "placed", early)
    judge = Judge(make=Driven("after").graph)
    found = [judge.judge(drawn(0, index, judge.abilities()), again=False) for index in range(12)]
    assert "disjoint" in {broken.property for broken in found if broken is not None}
