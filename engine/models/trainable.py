"""What training needs of a model: a function that builds its graph, and its weights.

`build(graph, shapes)` adds one input for each column it reads, named like the column, and returns
the outputs. `shapes` are those of the columns of one batch, the leading length being the number of
datapoints; an input may have another shape of as many elements (tokens [B, T] read as [B * T]).
Inputs that are no columns (positions, masks) get the arrays of `constants`, and `KEY` a number of
the step. Everything marked
`trainable` is trained. A name that the graph asks for and `parameters` lacks is an error; one of
`parameters` that the graph does not ask for stays as it is, and a warning names it.

A model may keep states: `graph.state(name, ...)` reads one, and `graph.writes[state] = tensor` says
what it holds after a run that trains. What it holds before the first is in `states`, or zeros.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.model import Role
from engine.graph import Graph, Tensor
from engine.ops.rule import Shape

KEY: Final = "step_key"
"""An input, i32 [1], that a model may have: a number drawn anew for each physical batch."""

Array = NDArray[Any]
Shapes = Mapping[str, Shape]
"""Column -> shape in one batch."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """A graph for any batch, and the weights it starts from."""

    name: str
    build: Callable[[Graph, Shapes], Tensor]
    """Adds inputs and nodes, returns the outputs; called once for each graph that is made."""
    parameters: Mapping[str, Array]
    """Weight -> array; training copies those that it changes."""
    states: Mapping[str, Array] = field(default_factory=dict)
    """State -> array it starts from."""
    constants: Callable[[Shapes], Mapping[str, Array]] = lambda _shapes: {}
    """Inputs that are the same for every batch of these shapes."""
    evaluation: "Model | None" = None
    """The model as it is used, with the same parameters: what predicts and validates; None where
    that is the model as it is trained."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What decides a course of training and neither weights nor a training file show."""
    exported: Callable[[Mapping[str, Array]], Mapping[str, bytes]] = lambda _weights: {}
    """Trained weights -> files, by name, by which other programs read the model."""
    example: Mapping[str, Array] = field(default_factory=dict)
    """Column -> rows of one batch to be looked at with where nobody gives another; empty: none."""


def drawn(build: Callable[[Graph, Shapes], Tensor], shapes: Shapes, *, scale: float, seed: int) -> dict[str, Array]:
    """Return f32 weights for all parameters of a graph: normal with standard deviation sqrt(scale /
    fan in), in the order in which it asks for them; what has one axis is 0.
    """
    graph, generator = Graph("parameters"), np.random.default_rng(seed)
    build(graph, shapes)
    made: dict[str, Array] = {}
    for name, shape in ((tensor.name, tensor.shape) for tensor in graph.tensors if tensor.role == Role.PARAMETER):
        draws = generator.normal(0, sqrt(scale / prod(shape[1:])), shape) if len(shape) > 1 else np.zeros(shape)
        made[name] = draws.astype(np.float32)
    return made
