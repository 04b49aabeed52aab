"""Numbers of 16 and 8 bits at the front: computed in float32, rounded once after each op, promoted as PyTorch promotes them."""

import operator

import ml_dtypes
import numpy as np
import pytest

import engine
from allocsim.errors import EngineError
from engine import tensor
from engine.front import functions as fn
from engine.front.tensors import EagerTensor
from engine.training import Trainer

HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
EIGHTHS = {"float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn), "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2)}
NARROW = HALVES | EIGHTHS
CLOSE = {"float16": 2e-3, "bfloat16": 2e-2, "float8_e4m3fn": 0.15, "float8_e5m2": 0.3}
DRAW = np.random.default_rng(8)
A, B = (DRAW.normal(0, 3, (4, 3)).astype(np.float32) for _ in range(2))
CALLS = [
    ("exp", lambda x: x.exp()),
    ("tanh", lambda x: x.tanh()),
    ("sigmoid", lambda x: x.sigmoid()),
    ("sqrt", lambda x: x.abs().sqrt()),
    ("sum", lambda x: x.sum()),
    ("mean", lambda x: x.mean(1)),
    ("max", lambda x: x.max(0)),
    ("softmax", lambda x: x.softmax()),
]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv, operator.lt])
def test_an_op_is_the_float32_op_of_the_numbers_stored_rounded_once(dtype, op):
    a, b = (tensor(x).astype(dtype) for x in (A, B))
    wide = op(*(x.numpy().astype(np.float32) for x in (a, b)))
    found = op(a, b)
    assert found.dtype == NARROW[dtype]
    assert np.array_equal(found.numpy(), wide.astype(NARROW[dtype]))
    number = op(a, 0.1)  # 0.1 itself, not what the dtype would make of it
    assert number.dtype == NARROW[dtype]
    wide = op(a.numpy().astype(np.float32), np.float32(0.1))
    assert np.array_equal(number.numpy(), wide.astype(NARROW[dtype]))


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(("name", "call"), CALLS, ids=[name for name, _ in CALLS])
def test_functions_are_those_of_float32_rounded_and_so_are_gradients(dtype, name, call):
    x = tensor(A).astype(dtype)
    wide = call(tensor(x.numpy().astype(np.float32)))
    assert np.array_equal(call(x).numpy(), wide.numpy().astype(NARROW[dtype]))
    leaf, beside = tensor(x.numpy(), True), tensor(x.numpy().astype(np.float32), True)
    call(leaf).sum().backward()
    call(beside).sum().backward()
    assert leaf.grad.dtype == NARROW[dtype]
    np.testing.assert_allclose(
        leaf.grad.numpy().astype("f4"), beside.grad.numpy(), rtol=CLOSE[dtype], atol=CLOSE[dtype]
    )


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("float16", "float16", "float16"),
        ("bfloat16", "bfloat16", "bfloat16"),
        ("float16", "bfloat16", "float32"),
        ("float16", "float32", "float32"),
        ("bfloat16", "float64", "float64"),
        ("float8_e4m3fn", "float8_e4m3fn", "float8_e4m3fn"),
        ("float8_e4m3fn", "float8_e5m2", "float32"),
        ("float8_e5m2", "bfloat16", "float32"),
        ("float8_e5m2", "float64", "float64"),
    ],
)
def test_dtypes_promote_as_pytorchs(one, other, both):
    a, b = tensor(A, dtype=one), tensor(B, dtype=other)
    for found in (a + b, b * a, a @ b.T, fn.where(a > b, a, b) if one == other else a - b):
        assert found.dtype == np.dtype(NARROW.get(both, both))


def test_what_is_mixed_without_a_rule_is_still_refused():
    with pytest.raises(EngineError, match="must be f32 or all f64"):
        tensor(A) + tensor(B, dtype="float64")
    with pytest.raises(EngineError, match="1e\\+39 is beyond float32"):
        tensor(A).astype("float16") * 1e39
    with pytest.raises(EngineError, match="70000 is beyond float16"):
        tensor([70000.0], dtype="float16")
    for dtype in EIGHTHS:
        with pytest.raises(EngineError, match=f"70000 is beyond {dtype}"):
            tensor([70000.0], dtype=dtype)
        with pytest.raises(EngineError, match=f"beyond {dtype}"):
            tensor(np.array([1e6], ml_dtypes.bfloat16), dtype=dtype)
    assert np.isinf((tensor([300.0], dtype="float16") * 300.0).item())  # what overflows is infinite
    assert np.isnan((tensor([300.0], dtype="float8_e4m3fn") * 300.0).item())  # or NaN, where no number is infinite


@pytest.mark.parametrize("dtype", NARROW)
def test_a_model_in_16_bits_is_recorded_trained_and_judged(dtype):
    def narrow(p, data):
        return (data.astype(dtype) @ p["w"].astype(dtype)).tanh().astype("float32")

    weights = {"w": np.eye(3, dtype=np.float32)}
    net = engine.model(narrow, weights, example={"data": A})
    with Trainer(net, loss="sum", optimizer="sgd", hyper={"alpha": 0.0}) as trainer:
        outputs = trainer.run("gradient", {"data": A}).outputs
        leaf = tensor(weights["w"], True)
        typed = narrow({"w": leaf}, tensor(A))
        typed.sum().backward()
        assert np.array_equal(outputs, typed.numpy())
        assert np.array_equal(trainer.gradients()["w"], leaf.grad)
    assert engine.diagnose(net, loss="sum", steps=2).verdict.sound


@pytest.mark.parametrize("dtype", HALVES)
def test_values_and_dtypes_are_pytorchs(dtype):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    kinds = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
    for other in (dtype, "float32", "bfloat16"):
        ours = [tensor(A, dtype=dtype), tensor(B, dtype=other)]
        theirs = [torch.tensor(A).to(kinds[dtype]), torch.tensor(B).to(kinds[other])]
        for op in (operator.add, operator.mul, operator.truediv, torch.maximum):
            found = fn.maximum(*ours) if op is torch.maximum else op(*ours)
            wanted = op(*theirs)
            assert str(wanted.dtype) == f"torch.{found.dtype}"
            assert np.array_equal(found.numpy().astype("f4"), wanted.float().numpy())
    for ours, theirs in (
        (lambda x: x * 0.1, lambda x: x * 0.1),
        (lambda x: x + 0.5, lambda x: x + 0.5),  # PyTorch rounds 0.1 to float16 before it adds
        (lambda x: x.sum(), lambda x: x.sum()),
        (lambda x: x.mean(0), lambda x: x.mean(0)),
        (lambda x: x.relu(), torch.relu),
    ):
        found, wanted = ours(tensor(A, dtype=dtype)), theirs(torch.tensor(A).to(kinds[dtype]))
        assert np.array_equal(found.numpy().astype("f4"), wanted.float().numpy())


FORMS = [
    lambda f, x, y: f(x),
    lambda f, x, y: f(x, -1),
    lambda f, x, y: f(x, y),
    lambda f, x, y: f(x, 3.0),
    lambda f, x, y: f(x, y, 0.5),
]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size", [300.0, 0.3])
def test_a_function_of_several_ops_rounds_once(dtype, size):
    """Of every function, in every form that float32 takes: squares of 300 are beyond float16."""
    compared = set()
    rows = np.random.default_rng(0).normal(0, size, (8, 16))
    x, y = (tensor(values, dtype=dtype) for values in (rows, rows[::-1] * 0.5))
    wide = x.astype(np.float32), y.astype(np.float32)
    for name in fn.__all__:
        for number, form in enumerate(FORMS):
            try:
                wanted = form(getattr(fn, name), *wide)
            except (EngineError, TypeError, AttributeError, ValueError, IndexError):
                continue  # not a form of this function
            if (
                isinstance(wanted, EagerTensor)
                and wanted.dtype.kind == "f"
                and name not in {"nan_to_num", "cross_entropy"}
            ):
                found = form(getattr(fn, name), x, y)
                assert found.dtype == NARROW[dtype], (name, number)
                assert np.array_equal(found.numpy(), wanted.astype(dtype).numpy(), equal_nan=True), (name, number)
                compared.add(name)
    assert {"batch_norm", "normalize", "norm", "var", "std", "cdist", "cumsum", "fmod", "remainder", "cosine_similarity"} < compared  # fmt: skip
    assert len(compared) > 80


@pytest.mark.parametrize("dtype", HALVES)
def test_what_does_not_fit_in_between_is_no_infinity_and_no_zero(dtype):
    x = tensor([[300.0, 400.0]], dtype=dtype)
    assert fn.norm(x).numpy() == 500.0
    np.testing.assert_allclose(fn.normalize(x).numpy().astype("f4"), [[0.6, 0.8]], rtol=1e-2)
    assert (x % 7.0).numpy().astype("f4").tolist() == [[6.0, 1.0]]
    assert x[x > 350.0].numpy().astype("f4").tolist() == [400.0]
    assert fn.nan_to_num(x * float("inf")).numpy().tolist() == [[(np if dtype == "float16" else ml_dtypes).finfo(NARROW[dtype]).max] * 2]  # fmt: skip
    leaf = tensor([[300.0, 400.0]], True, dtype=dtype)
    fn.norm(leaf).backward()
    np.testing.assert_allclose(leaf.grad.numpy().astype("f4"), [[0.6, 0.8]], rtol=1e-2)


@pytest.mark.parametrize("dtype", HALVES)
def test_running_statistics_of_16_bits_are_moved(dtype):
    x, mean, variance = (tensor(v, dtype=dtype) for v in ([[300.0], [-100.0]], [0.0], [1.0]))
    found = fn.batch_norm(x, mean=mean, variance=variance, momentum=0.5)
    assert found.dtype == NARROW[dtype]
    assert found.numpy().tolist() == [[1.0], [-1.0]]
    assert float(mean) == 50.0
    assert abs(float(variance) - 40000.5) < 200


@pytest.mark.parametrize("dtype", EIGHTHS)
def test_8_bits_hold_the_numbers_that_pytorchs_do(dtype):
    """All patterns of 16 bits, rounded to 8; where e4m3 ends, ours are NaN as JAX's are, and PyTorch's the largest number."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    given = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    found = tensor(given).astype(dtype).astype("float32").numpy()
    wanted = torch.tensor(given).to(getattr(torch, dtype)).float().numpy()

    held = np.isnan(given) | (np.abs(given) <= (464 if dtype == "float8_e4m3fn" else np.inf))
    np.testing.assert_array_equal(found[held], wanted[held])
    assert np.isnan(found[~held]).all()
