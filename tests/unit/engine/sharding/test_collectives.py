"""Collectives over several ranks: what each gets, and that each gradient is the transpose."""

import ml_dtypes
import numpy as np
import pytest

from allocsim.errors import EngineError
from engine.graph import Graph
from engine.kernels import COLLECTIVES, kernel
from engine.kernels.collective import communicating, receive, summed
from engine.ops import OPS

KINDS = tuple(kind for kind in COLLECTIVES if kind != "all_gather_over")


def meaning(kind, x, rank, params):
    """What a rank gets of x [ranks, rows, n], in plain words of numpy."""
    ranks, rows, _ = x.shape
    mine = slice(rank * (rows // ranks), (rank + 1) * (rows // ranks))
    return {
        "all_gather": lambda: np.concatenate(list(x)),
        "reduce_scatter": lambda: sum(one[mine] for one in x),
        "all_reduce": lambda: sum(x),
        "broadcast": lambda: x[params.get("root", 0)],
        "reduce": lambda: sum(x) if rank == params.get("root") else np.zeros_like(x[0]),
        "all_to_all": lambda: np.concatenate([one[mine] for one in x]),
        "send_receive": lambda: x[(rank - params.get("by", 0)) % ranks],
    }[kind]()


def got(kind, params, x, shape):
    out = np.empty((len(x), *shape))
    for rank in range(len(x)):
        receive(kind, params, rank, list(x), out[rank])
    return out


def node_of(kind, ranks, **params):
    graph = Graph("g")
    return graph.op(kind, graph.parameter("x", (2 * ranks, 3), "f64"), ranks=ranks, **params)


PARAMS = {"broadcast": {"root": 1}, "reduce": {"root": 1}, "send_receive": {"by": 2}}


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_each_rank_gets_what_the_kind_says(kind, ranks, rng):
    node = node_of(kind, ranks, **PARAMS.get(kind, {}))
    x = rng.standard_normal((ranks, 2 * ranks, 3))
    found = got(kind, node.params, x, node.shape)
    for rank in range(ranks):
        np.testing.assert_array_equal(found[rank], meaning(kind, x, rank, node.params))


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_transpose_over_all_ranks(kind, ranks, rng):
    """The sum over ranks of <y, A x> is that of <A' y, x>."""
    node = node_of(kind, ranks, **PARAMS.get(kind, {}))
    weight = node.graph.parameter("weight", node.shape, "f64")
    back = OPS[kind].derivatives["x"](node, weight)
    x, y = rng.standard_normal((ranks, 2 * ranks, 3)), rng.standard_normal((ranks, *node.shape))
    forward, backward = got(kind, node.params, x, node.shape), got(back.kind, back.params, y, back.shape)
    assert back.shape == x.shape[1:]
    assert (forward * y).sum() == pytest.approx((backward * x).sum(), rel=1e-12)


@pytest.mark.parametrize("kind", ["all_gather", "broadcast"])
def test_gradients_that_are_stored_in_16_bits_travel_so(kind):
    graph = Graph("g")
    node = graph.op(kind, graph.parameter("x", (4, 3), "bf16"), ranks=2)
    back = OPS[kind].derivatives["x"](node, graph.parameter("weight", node.shape, "bf16"))
    assert (back.dtype, back.shape) == ("bf16", (4, 3))
    assert back.kind in {"reduce_scatter", "reduce"}


def test_16_bits_are_added_in_f32_and_rounded_once():
    """1 and twice half a unit in the last place of bf16: added in bf16 that stays 1."""
    out = np.empty(1, ml_dtypes.bfloat16)
    summed([np.array([value], out.dtype) for value in (1, 2**-8, 2**-8)], out)
    assert float(out[0]) == 1 + 2**-7


def test_a_sum_that_all_go_on_with_alike_passes_its_gradient_on():
    node = node_of("all_reduce", 4, backward="identity")
    weight = node.graph.parameter("weight", node.shape, "f64")
    assert OPS["all_reduce"].derivatives["x"](node, weight) is weight


@pytest.mark.parametrize(
    ("kind", "params", "says"),
    [
        ("reduce_scatter", {"ranks": 4}, "4 ranks must divide"),
        ("broadcast", {"ranks": 2, "root": 2}, "root 2 must be one of the 2 ranks"),
        ("all_gather", {"ranks": 0}, "at least one rank"),
        ("all_gather", {"group": 3}, "a group has a name"),
        ("all_reduce", {"backward": "none"}, "none of all_reduce, identity"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(kind, params, says):
    graph = Graph("g")
    with pytest.raises(EngineError, match=says):
        graph.op(kind, graph.parameter("x", (3, 3)), **params)


def test_a_collective_of_several_ranks_is_not_bound_alone():
    x = np.zeros((4, 2), np.float32)
    params = {"ranks": 4, "group": "world"}
    with pytest.raises(EngineError, match="group 'world' has 1 ranks here; the op is for 4"):
        kernel("all_reduce").bind({**params, "backward": "identity"}, (x,), (x.copy(),))


class Place:
    def __init__(self, rank, size):
        self.rank, self.size = rank, size


@pytest.mark.parametrize(("size", "ranks"), [(10, 4), (3, 4), (8, 4), (1, 3)])
def test_parts_cover_the_whole_and_are_filled_with_zeros(size, ranks):
    """Joined over the destination, the parts that ranks take give the whole back."""
    x, length = np.arange(1, size + 1, dtype=np.float32), -(-size // ranks)
    parts = []
    for rank in range(ranks):
        out = np.full(length, np.nan, np.float32)
        with communicating(lambda _, rank=rank: Place(rank, ranks)):
            call, args = kernel("own_part").bind({"ranks": ranks, "group": "world"}, (x,), (out,))
        call(*args)
        parts.append(out)
    whole = np.full_like(x, np.nan)
    receive("all_gather_over", {}, 0, parts, whole)
    np.testing.assert_array_equal(whole, x)
    assert np.concatenate(parts)[size:].sum() == 0
