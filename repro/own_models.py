"""A model of one's own, through the whole pipeline: three runs, every detector, one verdict.

    net = trial(model(classifier, weights), {"data": points, "labels": classes})    # in my_module.py

    $ allocsim repro run my_module:net --allocator greedy_by_size

`trial` makes the scenario: a model (`engine.model`, or of the graph API), one batch, how it is
trained, and no defect, so that the verdict must come out clean. With a defect (`kernels`, `belief`,
`write_once`, `streams`) it is a scenario like those of the table, with the verdict it must get.

A name `package.module:attribute` runs code, so only a person gives it, on the command line; no file
can. The attribute is a scenario.

What this module does not see: detectors and verdicts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocsim.allocators.strangers import named_object
from allocsim.errors import EngineError
from engine.graph import Graph, Tensor
from engine.models.trainable import Model
from engine.training.trainer import Trainer
from repro.scenario import OwnTraining, Scenario

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSetup:
    """A training run of a model of one's own, ready to be lowered."""

    graph: Graph
    loss: Tensor
    gradients: Mapping[Tensor, Tensor]
    """Parameter -> gradient, before the optimiser takes it."""
    parameters: Mapping[str, Array]
    inputs: Mapping[str, Array]


def trial(
    model: Model,
    batch: Mapping[str, Array],
    *,
    loss: str = "cross_entropy",
    optimizer: str = "sgd",
    hyper: Mapping[str, float] | None = None,
    steps: int = 20,
    planned_batch: Mapping[str, Array] | None = None,
    title: str = "",
    **defects: Any,
) -> Scenario:
    """Return the scenario of training a model on one batch.

    Args:
        model: what to train.
        batch: column -> rows.
        loss: a name of `engine.training.losses.LOSSES`.
        optimizer: a name of `engine.training.optimizers.OPTIMIZERS`; what it changes from step to
            step (the bias correction of AdamW) stays as it is at the first.
        hyper: hyper-parameters that differ from the optimizer's defaults.
        steps: how many are trained.
        planned_batch: the batch that the plan is made for, where that is another one (a defect).
        title: one line for reports.
        defects: other fields of `repro.scenario.Scenario`, with `expected` for what they must show.

    Raises EngineError where the model or the batch is none.
    """
    if not isinstance(model, Model):
        raise EngineError(f"{type(model).__name__} given where a model is needed; engine.model(...) makes one")
    columns = {name: np.asarray(rows) for name, rows in batch.items()}
    other = None if planned_batch is None else {name: np.asarray(rows) for name, rows in planned_batch.items()}
    training = OwnTraining(
        model=model,
        batch=columns,
        loss=loss,
        optimizer=optimizer,
        hyper=dict(hyper or {}),
        steps=steps,
        planned_batch=other,
    )
    fields = {"expected": (), "source": "", "story": "", "least_steps": 1, **defects}
    return Scenario(name=model.name, title=title or "a model of one's own", training=training, **fields)


def find_own(name: str) -> Scenario:
    """Return the scenario called `package.module:attribute`.

    Raises UnknownNameError where there is none of that name, EngineError where importing fails or
    it is no scenario.
    """
    found = named_object(name, what="model", raised=EngineError)
    if not isinstance(found, Scenario):
        hint = "; repro.trial(model, batch) makes one of it" if isinstance(found, Model) else ""
        raise EngineError(f"{name} is a {type(found).__name__}; a scenario is needed{hint}")
    return found


def set_up_own(training: OwnTraining) -> OwnSetup:
    """Return graph, weights and inputs of a model of one's own.

    Raises EngineError where model, batch, loss and optimizer do not fit together.
    """
    with Trainer(training.model, loss=training.loss, optimizer=training.optimizer, hyper=training.hyper) as trainer:
        made = trainer.unplanned("optimizer", training.batch)
    return OwnSetup(
        graph=made.graph,
        loss=made.loss,
        gradients=made.graph.gradients,
        parameters=made.parameters,
        inputs=made.inputs,
    )


__all__ = ["OwnSetup", "find_own", "set_up_own", "trial"]
