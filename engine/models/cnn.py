"""A small convolutional classifier: 3x3 convolutions, relu, 2x2 max pooling, a dense layer.

Input `data` [batch, channels, size, size]; weights `conv.0.weight` [out, in, 3, 3], `conv.0.bias`
[out], `dense.weight` [classes, features], `dense.bias`. Each stage keeps height and width (padding
1) and halves them by pooling, rounding down. Built of `engine.graph.composites`, so every
intermediate is planned and seen. The shape of LeCun et al., Gradient-Based Learning Applied to
Document Recognition, 1998.
"""

from itertools import pairwise
from math import prod

from allocsim.errors import EngineError
from engine.graph import Graph, Tensor
from engine.graph.composites import conv2d, max_pool2d
from engine.models.trainable import Model, Shapes, drawn


def cnn(
    *, size: int, classes: int, channels: tuple[int, ...] = (8, 16), inputs: int = 1, seed: int = 0, name: str = "cnn"
) -> Model:
    """Return a model of f32 weights for images of `size` x `size` with `inputs` channels.

    Weights are normal with standard deviation sqrt(2 / fan in), biases 0. Raises EngineError for
    sizes that make no model: every stage must leave at least one pixel.
    """
    left = size >> len(channels)
    if not channels or min(*channels, classes, inputs) < 1 or left < 1:
        raise EngineError(
            f"size {size}, channels {channels}, inputs {inputs}, classes {classes}: each stage halves the "
            "image, all are at least 1"
        )
    image = (inputs, size, size)

    def build(graph: Graph, shapes: Shapes) -> Tensor:
        batch = shapes["data"][0]
        if prod(shapes["data"][1:]) != prod(image):
            raise EngineError(
                f"data of shape {shapes['data']} has {prod(shapes['data'][1:])} numbers an image; {name} takes {image}"
            )
        x = graph.input("data", (batch, *image))
        for layer, (fan_in, fan_out) in enumerate(pairwise((inputs, *channels))):
            with graph.scope(f"conv.{layer}", layer=layer):
                weight = graph.parameter("weight", (fan_out, fan_in, 3, 3), trainable=True)
                bias = graph.parameter("bias", (fan_out,), trainable=True)
                x = max_pool2d(graph.op("relu", conv2d(x, weight, bias, padding=1), name="relu"), 2)
        with graph.scope("dense", layer=len(channels)):
            flat = graph.op("reshape", x, shape=(batch, channels[-1] * left * left))
            weight = graph.parameter("weight", (classes, flat.shape[1]), trainable=True)
            bias = graph.parameter("bias", (classes,), trainable=True)
            return graph.op("add", graph.op("mul_mat", weight, flat, name="product"), bias, name="sum")

    return Model(name=name, build=build, parameters=drawn(build, {"data": (1, *image)}, scale=2, seed=seed))
