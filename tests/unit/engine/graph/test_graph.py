"""Shapes, views, order and refusals of the graph and of the op table."""

import pytest

from allocsim.errors import EngineError, UnknownNameError
from allocsim.model import Role
from engine.autodiff import backward
from engine.graph import Graph
from engine.kernels import KERNELS
from engine.ops import OPS


@pytest.fixture
def graph():
    return Graph("test")


def leafs(graph, *shapes, dtype="f32"):
    return [graph.input(f"x{i}", shape, dtype) for i, shape in enumerate(shapes)]


def test_every_op_but_views_has_a_kernel():
    """The op table and the kernel table name the same ops."""
    assert {kind for kind, rule in OPS.items() if not rule.view} == set(KERNELS)


@pytest.mark.parametrize(
    ("kind", "shapes", "params", "expected"),
    [
        ("mul_mat", ((2, 4, 5), (6, 3, 5)), {}, (6, 3, 4)),
        ("out_prod", ((2, 5, 4), (6, 5, 3)), {}, (6, 3, 4)),
        ("mul_mat", ((4, 5), (0, 5)), {}, (0, 4)),
        ("repeat", ((1, 3),), {"shape": (2, 4, 3)}, (2, 4, 3)),
        ("repeat_back", ((2, 4, 3),), {"shape": (1, 3)}, (1, 3)),
        ("sum", ((2, 3),), {}, (1,)),
        ("cont", ((2, 3),), {"shape": (6,)}, (6,)),
        ("transpose", ((2, 3, 4),), {}, (2, 4, 3)),
        ("permute", ((2, 3, 4),), {"axes": (2, 0, 1)}, (4, 2, 3)),
        ("cross_entropy_loss", ((2, 3), (2, 3)), {}, (1,)),
    ],
)
def test_shape_of_the_result(graph, kind, shapes, params, expected):
    """The shape rule of an op infers the shape of its result."""
    assert graph.op(kind, *leafs(graph, *shapes), **params).shape == expected


def test_views_flatten_to_their_root(graph):
    """A view of a view lies in the root's storage at an absolute offset, in bytes."""
    (x,) = leafs(graph, (4, 6))
    row = graph.op("view", x, shape=(2, 6), strides=(6, 1), offset=12)
    turned = graph.op("transpose", row)
    corner = graph.op("view", turned, shape=(2,), strides=(6,), offset=1)

    assert (turned.root, turned.offset, turned.strides) == (x, 48, (4, 24))
    assert (corner.root, corner.offset, corner.strides) == (x, 52, (24,))
    assert not turned.contiguous


def test_strides_of_axes_of_length_one_do_not_matter_to_contiguity(graph):
    """A transposed row is still contiguous."""
    (x,) = leafs(graph, (1, 6))

    assert graph.op("transpose", x).contiguous


def test_mutation_is_a_new_tensor_in_the_old_storage(graph):
    """`opt_step_sgd` and `add_inplace` leave their result where their first source lies, `cpy` where its second does."""
    w = graph.parameter("w", (2, 3), trainable=True)
    g, hp = leafs(graph, (2, 3), (2,))
    step = graph.op("opt_step_sgd", w, g, hp)
    column = graph.op("view", w, shape=(2,), strides=(3,), offset=1)
    copied = graph.op("cpy", graph.input("c", (2,)), column)

    assert step.storage is w
    assert (copied.storage, copied.strides, copied.offset) == (w, (12,), 4)


def test_order_is_depth_first_with_sources_left_to_right(graph):
    """Order is that of need, not of creation, and each tensor stands once."""
    a, b, unused = leafs(graph, (2,), (2,), (2,))
    late = graph.op("silu", b, name="late")
    early = graph.op("silu", a, name="early")
    both = graph.op("add", early, late, name="both")
    top = graph.op("add", both, late, name="top")
    graph.op("silu", unused, name="never")
    graph.expand(top)
    graph.expand(top, both)

    assert [node.name for node in graph.nodes] == ["early", "late", "both", "top"]
    assert graph.leafs == [a, b]


def test_depth_has_no_limit(graph):
    """A chain of 20,000 ops is ordered and differentiated without recursion."""
    x = graph.parameter("x", (1,), trainable=True)
    y = x
    for _ in range(20_000):
        y = graph.op("scale", y, s=1.0)
    found = backward(graph, y)

    assert len(graph.nodes) == 40_000
    assert found[x].shape == (1,)


def test_names_are_made_unique_and_scopes_nest(graph):
    """Given names must be new; made names get a number; scopes carry layer and stage."""
    with graph.scope("layer.3", layer=3), graph.scope("attn", stage="backward"):
        x = graph.input("x", (2,))
        first, second = (graph.op("silu", x) for _ in range(2))

    assert [t.name for t in (x, first, second)] == ["layer.3.attn.x", "layer.3.attn.silu", "layer.3.attn.silu_2"]
    assert (first.layer, first.stage) == (3, "backward")
    assert graph.op("silu", x).layer is None
    assert graph.find("layer.3.attn.silu") is first
    with pytest.raises(EngineError, match=r"layer\.3\.attn\.x"):
        graph.input("layer.3.attn.x", (2,))


@pytest.mark.parametrize(
    ("kind", "shapes", "params", "said"),
    [
        ("add", ((2, 3), (2,)), {}, r"add\(a x0 f32\[2, 3\], b x1 f32\[2\]\).*does not repeat"),
        ("add", ((2, 3), (0, 3)), {}, "does not repeat"),
        ("add", ((3,), (1, 3)), {}, "does not repeat"),
        ("mul_mat", ((4, 5), (3, 6)), {}, "dimension -1"),
        ("mul_mat", ((5,), (3, 5)), {}, "matrices"),
        ("mul_mat", ((4, 4, 5), (6, 3, 5)), {}, "batch"),
        ("out_prod", ((5, 4), (6, 3)), {}, "dimension -2"),
        ("scale", ((2,),), {}, "parameter s is missing"),
        ("scale", ((2,),), {"s": 1, "bias": 2}, "no parameter bias; there are s"),
        ("silu", ((2,), (2,)), {}, "2 operands given; it takes x"),
        ("swiglu", ((2, 3), (3, 2)), {}, "one shape"),
        ("reshape", ((2, 3),), {"shape": (4,)}, "6 elements"),
        ("reshape", ((2, 3),), {"shape": ()}, "at least one"),
        ("reshape", ((2, 3),), {"shape": (-1,)}, "none negative"),
        ("permute", ((2, 3),), {"axes": (0, 0)}, "no permutation"),
        ("transpose", ((2,),), {}, "two axes"),
        ("view", ((4, 6),), {"shape": (4, 6), "strides": (6, 1), "offset": 1}, r"\[4, 100\) lie outside the 96 bytes"),
        ("view", ((4, 6),), {"shape": (2,), "strides": (-1,)}, "outside"),
        ("view", ((4, 6),), {"shape": (2,), "strides": (1, 1)}, "strides"),
        ("repeat", ((4,),), {"shape": (6,)}, "repeat"),
        ("argmax", ((2, 3),), {"axis": 1.5}, "axis: 1.5 is no whole number"),
        ("sum_axes", ((2, 3),), {"axes": (0, 1.0)}, "axis: 1.0 is no whole number"),
        ("permute", ((2, 3),), {"axes": (1.2, 0)}, r"axes: \(1.2, 0\) are no whole numbers"),
        ("reshape", ((2, 3),), {"shape": (6.9,)}, r"shape: \(6.9,\) are no whole numbers"),
        ("view", ((4, 6),), {"shape": (2,), "strides": (1,), "offset": 0.5}, "offset: 0.5 is no whole number"),
        ("avg_pool", ((1, 1, 4, 4),), {"kernel": 2.5}, "kernel: 2.5 is no whole number"),
        ("avg_pool", ((1, 1, 4, 4),), {"kernel": 2, "stride": (1, 2.5)}, r"stride: \(1, 2.5\) are no whole numbers"),
        ("im2col", ((1, 1, 4, 4),), {"kernel": (2, 2), "padding": (0.5, 1)}, r"padding: \(0.5, 1\) are no whole numbers"),
        ("get_rows", ((4, 6), (3,)), {}, "vector of i32"),
        ("soft_max", ((4, 6), (4, 4)), {}, "does not repeat"),
        ("cross_entropy_loss", ((6,), (6,)), {}, "matrix"),
        ("opt_step_sgd", ((6,), (6,), (3,)), {}, r"shape \(2,\)"),
    ],
)  # fmt: skip
def test_misuse_is_refused_with_op_operands_and_rule(graph, kind, shapes, params, said):
    """Each refusal names the op, its operands with shapes, and the rule."""
    with pytest.raises(EngineError, match=said) as raised:
        graph.op(kind, *leafs(graph, *shapes), **params)
    assert str(raised.value).startswith(f"{kind}(")


@pytest.mark.parametrize(
    ("shape", "params", "said"),
    [
        ((3, 8), {}, "position, head"),
        ((2, 1, 8), {}, "3 entries; 2 are needed"),
        ((3, 1, 7), {}, "even"),
        ((3, 1, 8), {"dims": 10}, "head size 8"),
        ((3, 1, 8), {"mode": "other"}, "normal, neox"),
    ],
)
def test_rope_refuses_shapes_it_cannot_turn(graph, shape, params, said):
    """Positions, dims and mode must fit."""
    x, pos = graph.input("x", shape), graph.input("pos", (3,), "i32")
    with pytest.raises(EngineError, match=said):
        graph.op("rope", x, pos, base=1e4, **params)


def test_dtypes_do_not_mix(graph):
    """All floating operands of an op share one dtype."""
    x, y = graph.input("x", (2,)), graph.input("y", (2,), "f64")
    with pytest.raises(EngineError, match="f32, f64"):
        graph.op("add", x, y)
    half = graph.input("half", (2,), "f16")
    with pytest.raises(EngineError, match="all must be f32 or all f64"):
        graph.op("exp", half)
    with pytest.raises(EngineError, match="f8"):
        graph.input("z", (2,), "f8")


def test_unknown_ops_and_strangers_are_refused(graph):
    """A kind of no row, and a tensor of another graph."""
    (x,) = leafs(graph, (2,))
    with pytest.raises(UnknownNameError, match="mul"):
        graph.op("mull", x, x)
    with pytest.raises(EngineError, match="belongs to graph 'test', not 'other'"):
        Graph("other").op("silu", x)
    with pytest.raises(EngineError, match="belongs to graph 'test'"):
        Graph("other").expand(x)


def test_read_only_parameters_cannot_be_changed(graph):
    """A frozen weight is no destination, not even through a view."""
    frozen, (g, hp) = graph.parameter("w", (2,)), leafs(graph, (2,), (2,))
    for target in (frozen, graph.op("view", frozen, shape=(2,), strides=(1,))):
        with pytest.raises(EngineError, match="read-only"):
            graph.op("opt_step_sgd", target, g, hp)


def test_leafs_have_the_role_they_were_made_for(graph):
    """Inputs, parameters and states differ by role alone."""
    found = [leaf.role for leaf in (graph.input("i", (1,)), graph.parameter("p", (1,)), graph.state("s", (1,)))]

    assert found == [Role.INPUT, Role.PARAMETER, Role.STATE]
    with pytest.raises(EngineError, match="at least one and none negative"):
        graph.input("scalar", ())


@pytest.mark.parametrize(
    ("kind", "params", "says"),
    [
        ("scale", {"s": (1, 0)}, r"scale\(x x0 f32\[2, 3\]\): s: "),
        ("scale", {"s": "a"}, "s: could not convert string to float: 'a'"),
        ("pow", {"p": [1, 2]}, "p: "),
        ("rms_norm", {"eps": None}, "eps: "),
        ("soft_max", {"scale": (2,)}, "scale: "),
        ("clamp", {"low": -1.0, "high": (1,)}, "high: "),
        ("pad", {"before": (0, 0), "after": (0, 0), "value": "x"}, "value: "),
        ("permute", {"axes": None}, "axes: None are no whole numbers"),
        ("permute", {"axes": (1.0, 0.0)}, r"axes: \(1\.0, 0\.0\) are no whole numbers"),
        ("sum_axes", {"axes": 1.5}, r"axis: 1\.5 is no whole number"),
        ("argmax", {"axis": "a"}, "axis: 'a' is no whole number"),
        ("reshape", {"shape": (2.9, 3)}, r"shape: \(2\.9, 3\) are no whole numbers"),
        ("slice", {"starts": (0.5, 0), "lengths": (1, 1)}, r"starts: \(0\.5, 0\) are no whole numbers"),
        ("slice", {"starts": (0, 0), "lengths": (2, 2), "steps": (1, 0)}, r"steps \(1, 0\) must be at least 1"),
        ("slice", {"starts": (0, 0), "lengths": (2, 2), "steps": (1, 3)}, r"\[0, 4\) of axis 1 lies outside"),
        ("view", {"shape": (2,), "strides": (1,), "offset": 1.5}, r"offset: 1\.5 is no whole number"),
        ("repeat", {"shape": 7}, "shape 7 is not a sequence"),
    ],
)
def test_a_parameter_of_another_type_is_one_line(graph, kind, params, says):
    """It names op, parameter and value when the op is added; nothing is cut to a whole number."""
    (x,) = leafs(graph, (2, 3))
    with pytest.raises(EngineError, match=says) as caught:
        graph.op(kind, x, **params)
    assert "\n" not in str(caught.value)


def test_a_leaf_has_whole_lengths(graph):
    """Half an element is refused when the leaf is made."""
    with pytest.raises(EngineError, match=r"half: shape: \(2\.5,\) are no whole numbers"):
        graph.input("half", (2.5,))


def test_the_mask_of_soft_max_has_rows_as_long(graph):
    """A mask repeats over rows, never within them: the rule refuses what the kernel could not read."""
    x, mask = leafs(graph, (2, 4), (2, 2))
    with pytest.raises(EngineError, match="does not repeat into"):
        graph.op("soft_max", x, mask)


def test_a_strided_tensor_gains_and_loses_axes_of_length_1_without_a_copy(graph):
    """reshape is a view there; any other new shape of it needs a copy, and says so."""
    (x,) = leafs(graph, (4, 6))
    column = graph.op("slice", x, starts=(0, 2), lengths=(4, 1))
    flat = graph.op("reshape", column, shape=(4,))
    assert (flat.strides, flat.offset, flat.storage) == ((24,), 8, x)
    assert graph.op("reshape", flat, shape=(1, 4, 1)).strides[1] == 24
    with pytest.raises(EngineError, match="not contiguous"):
        graph.op("reshape", flat, shape=(2, 2))
