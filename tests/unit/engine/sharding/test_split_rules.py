"""Each way of the table, executed: what ranks make of their parts is the part of the whole result."""

import numpy as np
import pytest

from allocsim.allocators import find
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.runtime import Runtime
from engine.sharding.split_rules import PARTIAL, RULES, WHOLE, held, ways

RANKS = 2
INDICES = {("get_rows", 1): 6, ("rope", 1): 9}
"""Operands that hold whole numbers, below these."""
SOURCES = {
    "mul_mat": ([(2, 6, 4), (4, 8, 4)], {}),
    "out_prod": ([(2, 4, 6), (4, 4, 8)], {}),
    "reshape": ([(4, 6)], {"shape": (4, 2, 1, 3)}),
    "cont": ([(2, 4, 3)], {"shape": (8, 3)}),
    "permute": ([(2, 4, 6)], {"axes": (2, 0, 1)}),
    "transpose": ([(2, 4, 6)], {}),
    "rope": ([(3, 4, 6), (3,)], {"base": 1e4, "dims": 6}),
    "attention": ([(4, 3, 6), (2, 3, 6), (2, 3, 2), (3, 3)], {"scale": 0.5}),
    "get_rows": ([(6, 4), (3,)], {}),
    "soft_max": ([(2, 4, 6), (4, 6)], {"scale": 0.5}),
    **dict.fromkeys(("rms_norm", "norm"), ([(4, 6)], {"eps": 1e-5})),
    "scale": ([(4, 6)], {"s": 0.3}),
    "clamp": ([(4, 6)], {"low": 0.4, "high": 0.8}),
    "pow": ([(4, 6)], {"p": 1.5}),
    "cast": ([(4, 6)], {"dtype": "f64"}),
    "where": ([(4, 6)] * 3, {}),
    **dict.fromkeys(("swiglu", "straight_through", "power"), ([(4, 6)] * 2, {})),
}
BROADCAST = ([(2, 4, 6), (1, 6)], {})


def sources_of(kind):
    two = ("add", "sub", "mul", "div", "maximum", "minimum")
    of_two = kind in two or kind.startswith(("equal", "not_", "less", "greater"))
    return SOURCES.get(kind, BROADCAST if of_two else ([(4, 6)], {}))


def recorded(kind, shapes, params):
    graph = Graph(kind)
    dtypes = ["i32" if (kind, place) in INDICES else "f64" for place in range(len(shapes))]
    leafs = [graph.input(f"x{place}", shape, dtypes[place]) for place, shape in enumerate(shapes)]
    return graph.op(kind, *leafs, name="y", **params)


def executed(node, arrays):
    graph = node.graph
    out = graph.op("cont", node)
    graph.expand(out)
    lowered = lower(graph, (out,))
    with Runtime(lowered, find("reference").plan(lowered.program), parameters={}) as runtime:
        return runtime.run({f"x{place}": array for place, array in enumerate(arrays)})[out.name].copy()


def parts(array, layout, rng):
    """What each rank holds of an array."""
    if layout == PARTIAL:
        first = rng.standard_normal(array.shape)
        return [first, array - first]
    return [array] * RANKS if layout == WHOLE else np.split(array, RANKS, layout)


@pytest.mark.parametrize("kind", sorted(RULES))
def test_a_way_makes_of_the_parts_what_the_op_makes_of_all(kind, rng):
    shapes, params = sources_of(kind)
    node = recorded(kind, shapes, params)
    arrays = [
        rng.integers(0, INDICES[kind, place], shape, dtype=np.int32)
        if (kind, place) in INDICES
        else rng.uniform(0.1, 0.9, shape)
        for place, shape in enumerate(shapes)
    ]
    if kind == "where":
        arrays[0] = np.round(arrays[0])
    whole, found = executed(node, arrays), ways(node, RANKS)
    assert len(found) > 1
    for way in found:
        rows = zip(*(parts(array, layout, rng) for array, layout in zip(arrays, way.sources, strict=True)), strict=True)
        local = {**params, **({"shape": held(node.shape, way.result, RANKS)} if "shape" in params else {})}
        made = [executed(recorded(kind, [x.shape for x in row], local), row) for row in rows]
        if way.result == WHOLE:
            together = made[0]
        else:
            together = sum(made) if way.result == PARTIAL else np.concatenate(made, way.result)
        np.testing.assert_allclose(together, whole, rtol=1e-12, atol=1e-12, err_msg=str(way))


def test_lengths_that_ranks_do_not_divide_are_not_split():
    node = recorded("silu", [(4, 6)], {})
    assert [way.result for way in ways(node, 3)] == [WHOLE, 1]
    assert [way.result for way in ways(node, 5)] == [WHOLE]


@pytest.mark.parametrize("kind", ["norm", "soft_max"])
def test_a_row_is_never_split_where_all_of_it_is_needed(kind):
    shapes, params = sources_of(kind)
    last = len(shapes[0]) - 1
    assert last not in {way.result for way in ways(recorded(kind, shapes, params), RANKS)}


def test_what_is_repeated_along_an_axis_is_not_split_there():
    """b meets each half of a whole."""
    assert [way.result for way in ways(recorded("add", [(8, 6), (4, 6)], {}), RANKS)] == [WHOLE, 1, PARTIAL]


def test_what_has_no_row_is_done_whole():
    assert len(ways(recorded("argmax", [(4, 6)], {}), RANKS)) == 1
