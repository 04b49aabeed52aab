"""Values at the edges: comparisons, powers, infinities, indices. Each is what numpy, or the limit, says."""

import operator
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
from allocsim.errors import EngineError
from engine import custom_op, gradcheck, tensor
from engine.front import functions as fn
from engine.front.custom_ops import forget
from engine.training import Dataset, Settings, UnreachedParameterWarning, fit

EDGES = np.array([-np.inf, -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, np.inf, np.nan])


@pytest.mark.parametrize("compare", [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_comparisons_are_element_by_element_as_numpys(compare, dtype):
    given = EDGES if dtype != "int32" else np.array([-3, 0, 2, 2**31 - 1])
    a, b = np.meshgrid(given.astype(dtype), given.astype(dtype))
    for left, right in ((a, b), (a, b[:, :1]), (a[:1], b)):
        if dtype == "int32" and left.shape != a.shape:
            continue  # whole numbers are not repeated
        found = compare(tensor(left, dtype=dtype), tensor(right, dtype=dtype))
        assert np.array_equal(found.numpy(), compare(left, right).astype(dtype))
        assert not found.requires_grad


def test_a_recorded_model_compares_as_an_eager_one(rng):
    """The comparison is an op of the program, not a constant of the batch that it was recorded with."""

    def masked(p, data):
        return fn.where(data == 1.0, 0.0, data * p["w"]) + (data != 0.0) * p["w"]

    data = rng.integers(0, 3, (6, 4)).astype(np.float32)
    net = engine.model(masked, {"w": np.full(4, 2.0, np.float32)})
    found = fit(net, Dataset.of(data, masked({"w": tensor([2.0] * 4)}, tensor(data)).numpy()), Settings(loss="mean_squared_error", epochs=1, batch=3))  # fmt: skip
    assert [epoch.training.loss for epoch in found.history] == [0.0]


def test_tensors_are_keys_by_identity_and_differ_from_what_is_no_number():
    x, y = tensor([1.0]), tensor([1.0])
    assert {x: "x", y: "y"}[x] == "x"
    assert (x == None) is False  # noqa: E711 - what is asked
    assert (x != "text") is True


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_are_numpys_also_of_negative_bases(dtype):
    a, b = (grid.astype(dtype) for grid in np.meshgrid(EDGES, EDGES))
    with np.errstate(all="ignore"):
        assert np.array_equal((tensor(a) ** tensor(b)).numpy(), a**b, equal_nan=True)
        assert np.array_equal((-(2.0 ** tensor(b[:, 0]))).numpy(), -(2.0 ** b[:, 0]), equal_nan=True)
        assert np.array_equal(((-2.0) ** tensor(b[:, 0])).numpy(), (-2.0) ** b[:, 0], equal_nan=True)


def test_derivatives_of_powers():
    gradcheck(lambda x, p: x**p, [[0.3, 1.7, 2.0]], [[2.0, -1.5, 0.0]])
    gradcheck(lambda x: x ** tensor(np.array([2.0, 3.0])), [-2.0, -0.5])
    x, p = tensor([0.0, 0.0, 0.0, -2.0], True), tensor([2.0, 1.0, 0.0, 0.0], True)
    (x**p).sum().backward()
    assert x.grad.numpy().tolist() == [0.0, 1.0, 0.0, 0.0]
    assert p.grad.numpy()[:3].tolist() == [0.0, 0.0, 0.0]  # the limit from above
    assert np.isnan(p.grad.numpy()[3])  # (-2)^p is real at whole p alone


@pytest.mark.parametrize("function", ["silu", "gelu", "exact gelu"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_activations_meet_their_limits_at_infinity(function, dtype):
    x = tensor(np.array([-np.inf, -3e38, -1e5, np.inf, 3e38, np.nan], dtype), True)
    y = x.gelu(exact=True) if function == "exact gelu" else getattr(x, function.split()[-1])()
    y.backward(np.ones(6))
    assert np.array_equal(y.numpy()[:3], [0.0] * 3)
    assert np.signbit(y.numpy()[:3]).all()  # each is below 0 all the way there
    assert np.array_equal(y.numpy()[3:], x.numpy()[3:], equal_nan=True)
    assert np.allclose(x.grad.numpy(), [0, 0, 0, 1, 1, np.nan], atol=1e-25, equal_nan=True)
    assert np.array_equal(x.grad.numpy()[:3], [0.0] * 3) or function == "gelu"


@pytest.mark.parametrize("function", [fn.maximum, fn.minimum])
@pytest.mark.parametrize(
    ("a", "b"), [(np.inf, np.inf), (-np.inf, -np.inf), (-np.inf, np.inf), (np.inf, 1.0), (1.0, -np.inf)]
)
def test_the_gradient_of_an_extremum_of_infinities_is_that_of_the_chosen(function, a, b):
    x, y = tensor([a], True), tensor([b], True)
    result = function(x, y)
    result.backward()
    assert (x.grad.item(), y.grad.item()) == ((1.0, 0.0) if result.item() == a else (0.0, 1.0))


@pytest.mark.parametrize(("given", "said"), [(np.array([2**40 + 1]), "2147483647"), ([1.5], "1.5"), ([np.nan], "nan")])
def test_what_int32_does_not_hold_is_refused(given, said):
    with pytest.raises(EngineError, match=said):
        tensor(given, dtype=np.int32)


def language(p, tokens):
    return fn.embedding(p["table"], tokens) @ p["out"]


WEIGHTS = {"table": np.ones((7, 4), np.float32), "out": np.ones((4, 7), np.float32)}
TOKENS = np.arange(20, dtype=np.int32).reshape(4, 5) % 7


def test_a_token_out_of_range_is_refused_by_the_trainer():
    net = engine.model(language, WEIGHTS, dtypes={"tokens": np.int32})
    wrong = TOKENS.copy()
    wrong[3, 2] = 7
    with pytest.raises(EngineError, match=r"'tokens' holds 0 to 7 .* 7 rows"):
        fit(net, Dataset(columns={"tokens": wrong, "labels": TOKENS}), Settings(epochs=1, batch=4))


def test_cross_entropy_of_the_trainer_takes_rows_of_any_rank_and_says_the_accuracy():
    net = engine.model(language, WEIGHTS | {"out": np.eye(4, 7, dtype=np.float32)}, dtypes={"tokens": np.int32})
    fitted = fit(net, Dataset(columns={"tokens": TOKENS, "labels": TOKENS}), Settings(epochs=1, batch=4))
    assert fitted.history[0].training.rows == TOKENS.size


def test_a_parameter_that_nothing_reads_stays_as_it_is_with_a_warning():
    net = engine.model(language, WEIGHTS | {"spare": np.ones(3, np.float32)}, dtypes={"tokens": np.int32})
    with pytest.warns(UnreachedParameterWarning, match="'spare'"):
        fitted = fit(net, Dataset(columns={"tokens": TOKENS, "labels": TOKENS}), Settings(epochs=2, batch=2))
    assert fitted.weights["spare"].tolist() == [1.0, 1.0, 1.0]


def test_a_model_that_returns_its_loss_is_told_which_loss_to_name():
    def own_loss(p, tokens, labels):
        return fn.cross_entropy(language(p, tokens), labels)

    net = engine.model(own_loss, WEIGHTS, dtypes={"tokens": np.int32, "labels": np.int32})
    data = Dataset(columns={"tokens": TOKENS, "labels": TOKENS})
    with pytest.raises(EngineError, match="trained with loss 'mean'"):
        fit(net, data, Settings(epochs=1, batch=4))
    assert fit(net, data, Settings(epochs=1, batch=4, loss="mean")).steps == 1


def cubed_up_to_16(out, x):
    np.multiply(x, x * x, out=out)
    out[..., 16:] = x[..., 16:] ** 2


def cubed_twice_beyond_16(out, x):
    """Read x again after out was written, in long rows alone: not safe over x."""
    np.multiply(x, x * x, out=out)
    if x.shape[-1] > 16:
        np.multiply(x, x * x, out=out)


def slope_of_cube(op, gradient, x):
    return (op("mul", gradient, op("scale", op("sqr", x), s=3.0)),)


def test_an_op_of_ones_own_is_tried_at_each_shape_that_is_used():
    """A derivative that is wrong behind the sixteenth column is refused where there is one, each time."""
    wrong = custom_op("cube_of_short_rows", cubed_up_to_16, slope_of_cube)
    try:
        assert wrong(tensor(np.ones((3, 16)))).shape == (3, 16)
        for _ in range(2):
            with pytest.raises(EngineError, match=r"derivative .* out of tolerance .*\(3, 20\)"):
                wrong(tensor(np.ones((3, 20))))
        assert wrong(tensor(np.ones((0, 20)))).shape == (0, 20)
    finally:
        forget("cube_of_short_rows")


def test_an_op_of_ones_own_keeps_its_promise_in_place_at_each_shape_that_is_used():
    unsafe = custom_op("cube_in_place", cubed_twice_beyond_16, slope_of_cube, in_place=(0,))
    try:
        assert unsafe(tensor(np.ones((3, 16)))).shape == (3, 16)
        with pytest.raises(EngineError, match=r"declared safe .* over operand 0, and is not"):
            unsafe(tensor(np.ones((3, 20))))
    finally:
        forget("cube_in_place")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: tensor(np.array([2**40 + 1])), "1099511627777"),
        (lambda: tensor([3, -(2**24) - 1]), "-16777217"),
        (lambda: tensor(np.array([2**60 + 1]), dtype="float64"), str(2**60 + 1)),
        (lambda: tensor([0.0, 1e300]), "1e+300 is beyond float32"),
        (lambda: tensor(np.array([70000.0]), dtype="float16"), "beyond float16"),
        (lambda: tensor([1.0]) * 1e300, "1e+300 is beyond float32"),
        (lambda: engine.vmap(lambda x: x, "0")(tensor([1.0])), "'0' is no whole number"),
        (lambda: engine.vmap(lambda x: x, 0.5)(tensor([1.0])), "0.5 is no whole number"),
        (
            lambda: fn.conv2d(tensor(np.ones((1, 2, 4, 4))), tensor(np.ones((2, 1, 2, 2))), groups=2.0),
            "2.0 is no whole number",
        ),
        (lambda: engine.grad(3.0, tensor([1.0], True)), "grad: float is no tensor"),
        (
            lambda: fn.batch_norm(tensor(np.ones((4, 3))), mean=np.zeros(3), variance=np.ones(3), momentum=0.1),
            "give tensors",
        ),
        (lambda: tensor([1.0]) + (2**40 + 1), "holds whole numbers up to 16777216 exactly"),
        (lambda: tensor([1.0], dtype="float16") < 2**24 + 1, "holds whole numbers up to 16777216 exactly"),
        (lambda: tensor([1], dtype="int32") < 2**40, "int32 holds up to 2147483647"),
        (lambda: tensor([1], dtype="int32") == 1.5, "1.5 is no whole number"),
        (lambda: tensor([1.0]).copy_([1e300]), "1e+300 is beyond float32"),
        (lambda: tensor([1.0]).copy_(2**40 + 1), "holds whole numbers up to 16777216 exactly"),
        (lambda: tensor([1.0]).set_(0, 1e300), "1e+300 is beyond float32"),
        (lambda: tensor([1.0]).__setitem__([0], 1e300), "1e+300 is beyond float32"),
        (lambda: (tensor([1.0], True) * 1.0).__setitem__([0], 1e300), "1e+300 is beyond float32"),
        (lambda: tensor([1], dtype="int32").copy_(1.5), "1.5 is no whole number"),
        (lambda: tensor([1.0]) + 1e39, "1e+39 is beyond float32"),
        (lambda: fn.embedding(tensor(np.ones((3, 2))), [-1]), "-1 names none"),
    ],
)
def test_a_number_that_a_dtype_does_not_hold_is_refused_in_one_line(made, says):
    with pytest.raises(EngineError, match=re.escape(says)) as raised:
        made()
    assert "\n" not in str(raised.value)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5), st.sampled_from(["float16", "float32", "float64"]))
def test_whole_numbers_are_kept_exactly_or_refused(whole, dtype):
    try:
        kept = tensor(np.array(whole, np.int64), dtype=dtype).numpy().tolist()
    except EngineError:
        assert any(abs(number) > 2 ** (np.finfo(dtype).nmant + 1) for number in whole)
    else:
        assert kept == whole


def test_infinities_given_are_kept():
    assert tensor([np.inf, -np.inf]).numpy().tolist() == [np.inf, -np.inf]
    assert (tensor([1.0]) * np.inf).item() == np.inf


def test_whole_quotients_are_numpys():
    a, b = np.array([-7.0, 7.0, 5.5]), np.array([2.0, -2.0, 0.5])
    assert np.array_equal((tensor(a) // tensor(b)).numpy(), a // b)
    assert np.array_equal((9.0 // tensor(b)).numpy(), 9.0 // b)
    assert abs(tensor(-2.0)).item() == 2.0
