"""Who made the first NaN or infinity is named; who only passes it on, or was given it, is not."""

import numpy as np
import pytest

from allocsim.allocators import find
from allocsim.errors import EngineError
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.runtime import Runtime
from engine.runtime.nonfinite import FiniteWatch


@pytest.fixture
def setup():
    """x -> log -> scale -> exp, with one layer marked."""
    graph = Graph("finite")
    x = graph.input("x", (2, 3))
    with graph.scope("layer.3", layer=3):
        y = graph.op("scale", graph.op("log", x, name="logged"), s=2.0, name="doubled")
    z = graph.op("exp", graph.op("neg", y), name="blown")
    graph.expand(z)
    lowered = lower(graph, [z])
    with Runtime(lowered, find("ggml").plan(lowered.program)) as runtime:
        yield lowered, runtime


def found(setup, x, **options):
    _, runtime = setup
    watch = FiniteWatch(runtime, **options)
    runtime.run({"x": np.asarray(x, np.float32)}, observer=watch)
    return [(f.what, f.kind, f.name, f.layer, f.count, f.index) for f in watch.findings]


def test_clean_runs_have_no_findings(setup):
    """Finite from end to end."""
    assert found(setup, np.full((2, 3), 2.0)) == []


def test_the_first_maker_is_named_and_not_who_passes_it_on(setup):
    """log of a negative number makes the NaN; scale, neg and exp carry it."""
    assert found(setup, [[1, 1, 1], [1, -1, 1]]) == [("nan", "log", "layer.3.logged", 3, 1, (1, 1))]


def test_infinity_is_found_beside_nan_and_can_be_left_out(setup):
    """log(0) is infinite; that is a finding of its own."""
    both = [[0, 1, -2], [1, 1, 0]]
    assert found(setup, both) == [
        ("nan", "log", "layer.3.logged", 3, 1, (0, 2)),
        ("infinity", "log", "layer.3.logged", 3, 2, (0, 0)),
    ]
    assert [what for what, *_ in found(setup, both, infinity=False)] == ["nan"]


def test_overflow_is_found_where_it_happens(setup):
    """exp(-2 log x) of a tiny x: the logarithm is fine, the exponential is not."""
    assert found(setup, [[1, 1, 1e-30], [1, 1, 1]]) == [("infinity", "exp", "blown", None, 1, (0, 2))]


def test_what_the_host_gives_is_not_the_doing_of_an_op(setup):
    """An input that is not finite is said to be given; a later op may still be the first to make one."""
    assert found(setup, [[np.nan, 1, 1], [1, 1, 1]]) == [("nan", "host.write", "x", None, 1, (0, 0))]
    kinds = [kind for _, kind, *_ in found(setup, [[np.inf, 1, 1], [1, -1, 1]])]
    assert kinds == ["host.write", "log"]


def test_it_can_stop_the_run_with_one_clear_line(setup):
    """The error names sort, op, step, tensor, place and what was read."""
    with pytest.raises(
        EngineError, match=r"nan first made by log at op 1, layer\.3\.logged \(1 of 6.*\[0, 1\]\); it read x f32"
    ):
        found(setup, [[1, -1, 1], [1, 1, 1]], fail=True)


def test_an_observer_changes_no_bit(setup):
    """Looking is all it does."""
    _, runtime = setup
    x = {"x": np.full((2, 3), 2.5, np.float32)}
    assert np.array_equal(runtime.run(x)["blown"], runtime.run(x, observer=FiniteWatch(runtime))["blown"])
