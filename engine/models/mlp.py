"""A multi-layer perceptron: `mul_mat` and a bias for each layer, an activation between them.

Weights `layer.0.weight` [out, in] and `layer.0.bias` [out]; input `data` [batch, ...], read as
rows. With sizes (2, 16, 16, 1), tanh or relu and the loss `mean_squared_error` this is micrograd's
classifier, all neurons of a layer at once.
"""

import itertools
from math import prod
from typing import Final

from allocsim.errors import EngineError
from engine.graph import Graph, Tensor
from engine.models.trainable import Model, Shapes, drawn

ACTIVATIONS: Final = ("relu", "tanh", "gelu", "gelu_erf", "silu", "sigmoid", "softplus")


def mlp(sizes: tuple[int, ...], *, activation: str = "relu", seed: int = 0, name: str = "mlp") -> Model:
    """Return a model of f32 weights; `sizes` are the widths from the data to the outputs.

    Weights are normal with standard deviation sqrt(2 / in) before a relu and 1 / sqrt(in)
    otherwise, biases 0. Raises EngineError for sizes or an activation that make no model.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise EngineError(f"sizes {sizes}: at least two widths, each at least 1")
    if activation not in ACTIVATIONS:
        raise EngineError(f"activation {activation!r} is none of {', '.join(ACTIVATIONS)}")

    def build(graph: Graph, shapes: Shapes) -> Tensor:
        batch = shapes["data"][0]
        if prod(shapes["data"][1:]) != sizes[0]:
            raise EngineError(
                f"data of shape {shapes['data']} has {prod(shapes['data'][1:])} numbers a row; {name} takes {sizes[0]}"
            )
        x = graph.input("data", (batch, sizes[0]))
        for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            with graph.scope(f"layer.{layer}", layer=layer):
                if layer:
                    x = graph.op(activation, x, name=activation)
                weight = graph.parameter("weight", (fan_out, fan_in), trainable=True)
                bias = graph.parameter("bias", (fan_out,), trainable=True)
                x = graph.op("add", graph.op("mul_mat", weight, x, name="product"), bias, name="sum")
        return x

    weights = drawn(build, {"data": (1, sizes[0])}, scale=2 if activation == "relu" else 1, seed=seed)
    return Model(name=name, build=build, parameters=weights)
