"""Ops against PyTorch, where it is installed: value and gradients in float64 and, more loosely, in float32."""

import numpy as np
import pytest

from engine.autodiff import backward
from engine.graph import Graph

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional

IDS = np.array([[3, 0, 3], [1, 1, 2]], np.int32)
LONG = torch.tensor(IDS.astype(np.int64))

TABLE = [
    ("add", {}, ((3, 4), (4,)), torch.add),
    ("div", {}, ((3, 4), (3, 1)), lambda a, b: a / b),
    ("maximum", {}, ((3, 4), (3, 4)), torch.maximum),
    ("minimum", {}, ((3, 4), (4,)), torch.minimum),
    ("neg", {}, ((3, 5),), torch.neg),
    ("abs", {}, ((3, 5),), torch.abs),
    ("relu", {}, ((3, 5),), F.relu),
    ("exp", {}, ((3, 5),), torch.exp),
    ("expm1", {}, ((3, 5),), torch.expm1),
    ("sqr", {}, ((3, 5),), torch.square),
    ("sin", {}, ((3, 5),), torch.sin),
    ("cos", {}, ((3, 5),), torch.cos),
    ("tanh", {}, ((3, 5),), torch.tanh),
    ("sigmoid", {}, ((3, 5),), torch.sigmoid),
    ("softplus", {}, ((3, 5),), F.softplus),
    ("silu", {}, ((3, 5),), F.silu),
    ("gelu", {}, ((3, 5),), lambda x: F.gelu(x, approximate="tanh")),
    ("gelu_erf", {}, ((3, 5),), F.gelu),
    ("swiglu", {}, ((3, 5), (3, 5)), lambda gate, up: F.silu(gate) * up),
    ("clamp", {"low": -0.5, "high": 0.6}, ((3, 5),), lambda x: x.clamp(-0.5, 0.6)),
    ("pow", {"p": 3.0}, ((3, 5),), lambda x: x**3),
    ("norm", {"eps": 1e-5}, ((3, 8),), lambda x: F.layer_norm(x, (8,), eps=1e-5)),
    ("rms_norm", {"eps": 1e-5}, ((3, 8),), lambda x: F.rms_norm(x, (8,), eps=1e-5)),
    ("soft_max", {"scale": 0.5}, ((3, 8),), lambda x: F.softmax(x * 0.5, -1)),
    ("log_soft_max", {}, ((3, 8),), lambda x: F.log_softmax(x, -1)),
    ("mul_mat", {}, ((4, 5), (2, 3, 5)), lambda a, b: b @ a.T),
    ("out_prod", {}, ((5, 4), (5, 3)), lambda a, b: b.T @ a),
    ("sum_axes", {"axes": (0, 2)}, ((2, 3, 4),), lambda x: x.sum((0, 2))),
    ("mean", {"axes": 1, "keepdims": True}, ((2, 3, 4),), lambda x: x.mean(1, keepdim=True)),
    ("concat", {"axis": 1}, ((2, 3), (2, 4)), lambda a, b: torch.cat([a, b], 1)),
    ("pad", {"before": (1, 0), "after": (0, 2), "value": 0.5}, ((2, 3),), lambda x: F.pad(x, (0, 2, 1, 0), value=0.5)),
    ("slice", {"starts": (1, 1), "lengths": (2, 3)}, ((4, 5),), lambda x: x[1:3, 1:4]),
    ("gather", {}, ((2, 4), IDS), lambda x: x.gather(-1, LONG)),
    ("scatter", {"length": 4}, ((2, 3), IDS), lambda x: torch.zeros(2, 4, dtype=x.dtype).scatter_add(-1, LONG, x)),
    ("get_rows", {}, ((5, 3), IDS[0]), lambda table: F.embedding(LONG[0], table)),
    ("mean_squared_error", {}, ((3, 5), (3, 5)), lambda p, t: F.mse_loss(p, t).reshape(1)),
    ("cross_entropy_loss", {}, ((3, 5), (3, 5)), lambda x, y: F.cross_entropy(x, y).reshape(1)),
    ("cross_entropy_classes", {}, ((2, 5), IDS[:, 0]), lambda x: F.cross_entropy(x, LONG[:, 0]).reshape(1)),
    ("attention", {"scale": 0.6}, ((4, 70, 6), (4, 9, 6), (4, 9, 5)), lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.6)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_value_and_gradients_are_pytorch_s(execute, rng, row, dtype):
    """The same numbers to rounding, for every operand that has a gradient."""
    kind, params, shapes, theirs = row
    graph, floats = Graph(kind), {"f64": np.float64, "f32": np.float32}[dtype]
    operands, data, twins = [], {}, []
    for position, shape in enumerate(shapes):
        name = f"x{position}"
        if isinstance(shape, np.ndarray):
            operands.append(graph.input(name, shape.shape, "i32"))
            data[name] = shape
            continue
        operands.append(graph.parameter(name, shape, dtype, trainable=True))
        data[name] = rng.standard_normal(shape).astype(floats)
        twins.append(torch.tensor(data[name], requires_grad=True))
    y = graph.op(kind, *operands, **params)
    weights = graph.input("weights", y.shape, dtype)
    data |= {"weights": rng.standard_normal(y.shape).astype(floats), "loss_grad": np.ones(1, floats)}
    found = backward(graph, graph.op("sum", graph.op("mul", y, weights)))
    value, *gradients = execute(graph, data, y, *found.values())
    whole = theirs(*twins)
    (whole * torch.tensor(data["weights"])).sum().backward()
    close = {"f64": 1e-11, "f32": 2e-5}[dtype]

    np.testing.assert_allclose(value, whole.detach().numpy(), rtol=close, atol=close)
    for gradient, twin in zip(gradients, twins, strict=True):
        np.testing.assert_allclose(gradient, twin.grad.numpy(), rtol=close, atol=close)
