"""What `x[key]` and `x[key] = y` mean with arrays and masks: numpy's, with derivatives."""

import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import engine
from allocsim.errors import EngineError
from engine import gradcheck, no_grad, tensor
from engine.front import functions as fn
from engine.training import Trainer

SHAPE = (3, 4, 2)
ARRAY = np.random.default_rng(2).standard_normal(SHAPE)
MASKS = {rank: ARRAY.reshape(*SHAPE[:rank], -1)[..., 0] > 0 for rank in (1, 2, 3)}
KEYS = {
    "two arrays": (np.array([0, 2, 2]), np.array([1, 3, 3])),
    "broadcast": (np.array([[0], [2]]), np.array([1, -1])),
    "behind a slice": (slice(1, None), np.array([0, 0]), np.array([1, 1])),
    "apart": (np.array([0, 1]), slice(None), np.array([1, 1])),
    "apart by a number": (0, slice(None), np.array([1, 1, 0])),
    "apart by a new axis": (np.array([0, 1]), None, np.array([3, 3])),
    "all elements": (MASKS[3],),
    "rows of two axes": (MASKS[2],),
    "rows": (MASKS[1],),
    "mask and array": (np.array([True, False, True]), np.array([0, 1])),
    "mask behind a slice": (slice(None, 2), MASKS[2][0]),
    "mask behind dots": (..., np.array([True, False])),
    "none": (np.zeros(SHAPE, bool),),
    "truth": (True,),
    "turned": (slice(None, None, -1), np.array([0, 0])),
}


@pytest.mark.parametrize("name", KEYS)
def test_what_is_picked_is_numpys_and_its_gradient_adds_up(name):
    key = KEYS[name]
    assert np.array_equal(tensor(ARRAY)[key].numpy(), ARRAY[key])
    if ARRAY[key].size:
        gradcheck(lambda x: (x * x)[key] ** 3, ARRAY)
    x = tensor(ARRAY, requires_grad=True)
    x[key].sum().backward()
    counted = np.zeros(SHAPE)
    np.add.at(counted, key, 1.0)
    assert np.array_equal(x.grad, counted)


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("rows", ["scalar", "row", "all"])
def test_what_is_laid_is_numpys_and_the_last_of_equals_has_the_gradient(name, rows):
    key = KEYS[name]
    wanted = ARRAY[key].shape
    y = np.random.default_rng(3).standard_normal({"scalar": (), "row": wanted[-1:], "all": wanted}[rows])
    laid = ARRAY.copy()
    laid[key] = y
    x = tensor(ARRAY)
    x[key] = y
    assert np.array_equal(x, laid)

    def function(x, y):
        z = x * 1.0
        z[key] = y * y
        return z * z

    assert np.array_equal(function(tensor(ARRAY), tensor(y)), _put(ARRAY, key, y * y) ** 2)
    gradcheck(function, ARRAY, y)


def _put(array, key, values):
    made = array.copy()
    made[key] = values
    return made


@pytest.mark.filterwarnings("ignore::engine.front.rebasing.CopyWarning")
@given(st.data())
def test_any_index_of_numpys_picks_and_lays_what_numpy_does(data):
    shape = data.draw(hnp.array_shapes(max_dims=3, max_side=4))
    array = np.arange(float(np.prod(shape))).reshape(shape)
    keys = st.one_of(
        hnp.basic_indices(shape, allow_newaxis=True),
        hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=2, max_side=3)),
        hnp.arrays(bool, st.integers(1, len(shape)).map(lambda rank: shape[:rank])),
    )
    key = data.draw(keys)
    assume(array[key].size)
    assert np.array_equal(tensor(array)[key].numpy(), array[key])
    laid = -np.arange(float(array[key].size)).reshape(array[key].shape)
    x = tensor(array, requires_grad=True)
    y = x * 1.0
    y[key] = tensor(laid)
    assert np.array_equal(y, _put(array, key, laid))
    y.sum().backward()
    assert np.array_equal(x.grad, _put(np.ones(shape), key, 0.0))


def test_a_comparison_is_a_mask_and_other_numbers_are_none():
    x = tensor([1.0, -2.0, 3.0], requires_grad=True)
    assert x[x > 0].numpy().tolist() == [1, 3]
    (x[x > 0] * tensor([5.0, 7.0])).sum().backward()
    assert x.grad.numpy().tolist() == [5, 0, 7]
    with no_grad():
        x[x < 0] *= 10.0
    assert x.numpy().tolist() == [1, -20, 3]
    with pytest.raises(EngineError, match="is of float32"):
        x[tensor([0.0, 2.0, 1.0])]


def test_derivatives_of_second_order_go_through_what_is_picked():
    x = tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x[[0, 2, 2], ] ** 3).sum().backward(create_graph=True)  # fmt: skip
    slope = x.grad
    x.zero_grad()
    slope.sum().backward()
    assert x.grad.numpy().tolist() == [6, 0, 36]


def capped(p, data):
    """Lays into masks that follow from the batch, and picks by arrays that do not."""
    made = data * p["w"]
    made[data > 1.0] = 0.25
    made[data[:, 0] > 0.5] = p["row"]
    made[((data > 0.0) & ~(data[:, :1] > 0.5)) | (data.T < -0.5).T] = -1.0
    return made[:, [2, 0, 0]] + made[[0, 1, 1], [2, 2, 2]]


def test_a_recorded_model_lays_into_masks_of_each_batch_as_it_is_typed():
    weights = {"w": np.full(3, 2.0), "row": np.arange(3.0)}
    net = engine.model(capped, weights, dtypes={"data": "float64"})
    draw = np.random.default_rng(4)
    with Trainer(net, loss="sum", optimizer="sgd", hyper={"alpha": 0.0}) as trainer:
        for _ in range(3):
            rows = draw.normal(size=(5, 3)) + 0.5
            typed = {name: tensor(array, True) for name, array in weights.items()}
            outputs = capped(typed, tensor(rows))
            assert np.array_equal(trainer.run("gradient", {"data": rows}).outputs, outputs.numpy())
            outputs.sum().backward()
            for name, leaf in typed.items():
                np.testing.assert_allclose(trainer.gradients()[name], leaf.grad, rtol=1e-12)
    found = engine.diagnose(net, {"data": rows}, loss="sum", steps=2)
    assert found.verdict.sound


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda p, x: (x * p["w"])[x > 0.0], "masked_fill"),
        (lambda p, x: (x * p["w"]).__setitem__(x > 0.0, p["w"]), "where(mask, y, x)"),
        (lambda p, x: (x * p["w"]).__setitem__(x[:1] > 0.0, 0.0), "the mask has shape"),
        (lambda p, x: (x * p["w"]).__setitem__(x, 0.0), "made by comparing"),
        (lambda p, x: (x * p["w"]).__setitem__((x > 0.0) * x, 0.0), "made by comparing"),
        (lambda p, x: (x * p["w"]).__setitem__((x > 0.0) + (x > 1.0), 0.0), "made by comparing"),
    ],
)
def test_a_shape_that_depends_on_the_batch_is_refused_with_its_cure(function, says):
    net = engine.model(function, {"w": np.ones(3, np.float32)})
    with Trainer(net, loss="sum", optimizer="sgd") as trainer, pytest.raises(EngineError) as raised:
        trainer.step({"x": np.ones((5, 3), np.float32)})
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("key", [np.zeros(3, bool), ([], []), (slice(0), [0, 1])])
def test_what_is_laid_nowhere_changes_nothing_and_has_a_gradient_of_zero(key):
    x = tensor(np.array([[-0.0, 1.0], [np.nan, 2.0], [3.0, 4.0]]))
    before, y = x.numpy(), tensor(7.0, requires_grad=True, dtype="float64")
    x[key] = y
    assert x.numpy().tobytes() == before.tobytes()
    x[1:, 1].sum().backward()
    assert y.grad.item() == 0


def test_what_is_laid_is_never_tiled():
    x = tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True) * 1.0
    for lay in (lambda: x.copy_(tensor([1.0, 2.0], True)), lambda: x.__setitem__([0, 1, 2, 3], tensor([1.0, 2.0], True))):  # fmt: skip
        with pytest.raises(EngineError, match="does not broadcast"):
            lay()


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dilation", [1, 2])
def test_convolutions_of_groups_are_those_of_their_parts(groups, dilation):
    draw = np.random.default_rng(6)
    x, w, b = draw.normal(size=(2, 4, 6, 5)), draw.normal(size=(8, 4 // groups, 2, 3)), draw.normal(size=8)
    how = {"padding": 1, "dilation": dilation}
    inside, out = 4 // groups, 8 // groups
    parts = [
        fn.conv2d(
            tensor(x[:, g * inside : g * inside + inside]),
            tensor(w[g * out : g * out + out]),
            tensor(b[g * out : g * out + out]),
            **how,
        ).numpy()
        for g in range(groups)
    ]
    found = fn.conv2d(tensor(x), tensor(w), tensor(b), groups=groups, **how)
    assert np.array_equal(found, np.concatenate(parts, 1))
    gradcheck(lambda x, w, b: fn.conv2d(x, w, b, groups=groups, **how), x[:, :, :3, :4], w, b)
    y = draw.normal(size=found.shape)
    turned = fn.conv_transpose2d(tensor(y), tensor(w), groups=groups, **how)
    assert np.isclose((found.numpy() - b[:, None, None]).ravel() @ y.ravel(), turned.numpy().ravel() @ x.ravel())
    with pytest.raises(EngineError, match="groups"):
        fn.conv2d(tensor(x), tensor(w), groups=3)


@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.parametrize(("shape", "value"), [((1, 1), [[5.0]]), ((2, 2), [[5.0]]), ((2, 2), [[[5.0]]]), ((2, 2), 5.0)])
def test_what_is_laid_may_have_axes_of_length_1_in_front_also_where_a_mask_names_nothing(shape, value, followed):
    for over, wanted in ((0.5, 0.0), (-0.5, 5.0)):
        x = tensor(np.zeros(shape), followed) * 1.0
        laid = tensor(np.array(value), followed)
        x[x > over] = laid
        assert (x.numpy() == wanted).all()
        if followed:
            x.sum().backward()
            assert laid.grad.sum().item() == (x.size if wanted else 0)


@pytest.mark.parametrize("lay", [lambda x: x.copy_(x), lambda x: x.__setitem__(slice(None), x)])
def test_to_lay_a_tensor_into_itself_makes_a_new_version_of_it(lay):
    """The gradient that is kept is that of the latest; a hook stays with the value that it was hung on."""
    leaf = tensor([1.0, 2.0], True)
    x = leaf * 1.0
    x.register_hook(lambda gradient: gradient * 0.5)
    x.retain_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells that bytes are copied
        lay(x)
    (x * tensor([1.0, 10.0])).sum().backward()

    assert (x.grad.numpy().tolist(), leaf.grad.numpy().tolist()) == ([1, 10], [0.5, 5])
