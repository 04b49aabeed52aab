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
from typing import Any, Final

from numpy.typing import NDArray

from engine.graph import Graph, Tensor
from engine.ops.rule import Shape

KEY: Final = "step_key"
"""An input, i32 [1], that a model may have: a number drawn anew for each physical batch."""

Array = NDArray[Any]
Shapes = Mapping[str, Shape]
"""Column -> shape in one batch."""


def _nothing(shapes: Shapes) -> Mapping[str, Array]:
    del shapes
    return {}


def _no_files(weights: Mapping[str, Array]) -> Mapping[str, bytes]:
    del weights
    return {}


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
    constants: Callable[[Shapes], Mapping[str, Array]] = _nothing
    """Inputs that are the same for every batch of these shapes."""
    evaluation: "Model | None" = None
    """The model as it is used, with the same parameters: what predicts and validates; None where
    that is the model as it is trained."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What decides a course of training and neither weights nor a training file show."""
    exported: Callable[[Mapping[str, Array]], Mapping[str, bytes]] = _no_files
    """Trained weights -> files, by name, by which other programs read the model."""
    example: Mapping[str, Array] = field(default_factory=dict)
    """Column -> rows of one batch to be looked at with where nobody gives another; empty: none."""
