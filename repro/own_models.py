"""A model of one's own, through the whole pipeline: three runs, every detector, one verdict.

    net  = model(classifier, weights, example={"data": points, "labels": classes})    # in my_module.py
    case = trial(net, {"data": points, "labels": classes}, optimizer="adamw")

    $ allocsim diagnose my_module:net --allocator greedy_by_size
    $ allocsim repro run my_module:case

`trial` makes the scenario: a model (`engine.model`, or of the graph API), one batch, how it is
trained, and no defect, so that the verdict must come out clean. With a defect (`kernels`, `belief`,
`write_once`, `streams`) it is a scenario like those of the table, with the verdict it must get. A
model that is named alone is tried on its example batch, or another one that is named; a training
file on its first batch.

A name `package.module:attribute` runs code, so only a person gives it, on the command line; no file
can.

What this module does not see: detectors and verdicts.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from allocsim.allocators.planner import in_a_line
from allocsim.allocators.strangers import named_object
from allocsim.errors import AllocsimError, EngineError
from allocsim.printable import one_line
from engine.kernels.binding import Array
from engine.models.trainable import Model
from engine.training import config as configs
from engine.training.dataset import Dataset
from engine.training.step_rules import StepRules
from engine.training.trainer import Trainer, UnplannedBuild
from repro.scenario import OwnTraining, Scenario

HOW: Final = frozenset({"data", "loss", "optimizer"})
"""What the trial of a model that was named is told on the command line."""


def trial(
    model: Model,
    batch: "Mapping[str, Array] | Dataset",
    *,
    loss: str = "cross_entropy",
    optimizer: str = "sgd",
    hyper: Mapping[str, float] | None = None,
    rules: StepRules | None = None,
    steps: int = 20,
    planned_batch: "Mapping[str, Array] | Dataset | None" = None,
    title: str = "",
    **defects: Any,
) -> Scenario:
    """Return the scenario of training a model on one batch.

    Args:
        model: what to train.
        batch: column -> rows, or a dataset, all of it.
        loss: a name of `engine.training.losses.LOSSES`.
        optimizer: a name of `engine.training.optimizers.OPTIMIZERS`; what it changes from step to
            step (the bias correction of AdamW) stays as it is at the first.
        hyper: hyper-parameters that differ from the optimizer's defaults.
        rules: what a step does beside its optimizer (`engine.training.step_rules`).
        steps: how many are trained.
        planned_batch: the batch that the plan is made for, where that is another one (a defect).
        title: one line for reports.
        defects: other fields of `repro.scenario.Scenario`, with `expected` for what they must show.

    Raises EngineError where the model or the batch is none.
    """
    if not isinstance(model, Model):
        raise EngineError(f"{type(model).__name__} given where a model is needed; engine.model(...) makes one")
    columns = _columns(batch)
    other = None if planned_batch is None else _columns(planned_batch)
    training = OwnTraining(
        model=model,
        batch=columns,
        loss=loss,
        optimizer=optimizer,
        hyper=dict(hyper or {}),
        rules=rules or StepRules(),
        steps=steps,
        planned_batch=other,
    )
    fields = {"expected": (), "source": "", "story": "", "least_steps": 1, **defects}
    return Scenario(name=model.name, title=title or "a model of one's own", training=training, **fields)


def _columns(batch: "Mapping[str, Array] | Dataset") -> dict[str, Array]:
    given = batch.columns if isinstance(batch, Dataset) else batch
    return {name: _column(name, rows) for name, rows in given.items()}


def _column(name: str, rows: Any) -> Array:
    try:
        made = np.asarray(rows)
    except (ValueError, TypeError) as error:
        raise EngineError(f"column {name!r} of the batch is no array: {one_line(str(error))}") from None
    if made.dtype.kind not in "fiub":
        raise EngineError(f"column {name!r} of the batch is of {made.dtype}; numbers are needed")
    return made


def find_own(name: str, how: Mapping[str, Any] | None = None, *, steps: int = 20) -> Scenario:
    """Return the scenario called `package.module:attribute`, or that of a model of that name.

    Args:
        name: a scenario, or a model with an example batch.
        how: of a model, what its trial is told: `loss`, `optimizer`, and `data`, the name of
            another batch: columns, a dataset, or a function that returns one of these.
        steps: how many are trained, of a model.

    Raises UnknownNameError where there is none of that name, EngineError where importing fails or
    it is neither.
    """
    found = named_object(name, what="model", raised=EngineError)
    told = dict(how or {})
    if isinstance(found, Scenario):
        if told:
            raise EngineError(f"{name} is a scenario and states its {', '.join(told)} itself")
        return found
    if not isinstance(found, Model):
        raise EngineError(f"{name} is a {type(found).__name__}; a scenario or a model is needed")
    batch = _batch(told.pop("data")) if "data" in told else found.example
    if not batch:
        raise EngineError(
            f"{name} has no example batch; engine.model(..., example=...) or --data gives one, or "
            "repro.trial(model, batch)"
        )
    return trial(found, batch, steps=steps, **told)


def _batch(name: str) -> Any:
    """Return the batch called `package.module:attribute`."""
    found = named_object(name, what="batch", raised=EngineError)
    try:
        made = found() if callable(found) else found
    except AllocsimError:
        raise
    except (Exception, SystemExit) as error:
        raise EngineError(f"batch {name!r} failed: {in_a_line(error)}") from error
    if not isinstance(made, Mapping | Dataset):
        raise EngineError(f"{name} is a {type(made).__name__}; a batch is columns by name, or a dataset")
    return made


def find_trained(path: Path, how: Mapping[str, Any], *, steps: int) -> Scenario:
    """Return the scenario of a training file: its model on its first batch, in the order of the
    data, with its loss, optimizer and hyper-parameters; without its schedule.

    Raises EngineError where the file cannot be read, or for something told that it states itself.
    """
    if how:
        raise EngineError(f"{path}: a training file states its {', '.join(how)} itself")
    said = configs.read(path)
    dataset, settings = said.data.made(path.parent), said.training
    batch = dataset.take(np.arange(min(len(dataset), settings.batch), dtype=np.int64))
    return trial(
        said.model.made(path.parent),
        batch,
        loss=settings.loss,
        optimizer=settings.optimizer,
        hyper=settings.hyper,
        rules=settings,
        steps=steps,
        title=f"the training of {path.name}",
    )


def set_up_own(training: OwnTraining) -> UnplannedBuild:
    """Return graph, weights and inputs of a model of one's own.

    Raises EngineError where model, batch, loss and optimizer do not fit together.
    """
    of = training
    with Trainer(of.model, loss=of.loss, optimizer=of.optimizer, hyper=of.hyper, rules=of.rules) as trainer:
        return trainer.unplanned("optimizer", of.batch)
