"""Make a scenario of a user's own model: three training runs, every detector, one verdict.

    net  = model(classifier, weights, example={"data": points, "labels": classes})    # in my_module.py
    case = trial(net, {"data": points, "labels": classes}, optimizer="adamw")

    $ allocsim diagnose my_module:net --allocator greedy_by_size
    $ allocsim repro run my_module:case

`trial` makes the scenario from a model (`engine.model`, or the graph API), one batch, and the
settings of its training. Without a defect the verdict must be sound. With a defect (`kernels`,
`belief`, `write_once`, `streams`) and `expected` causes, the result is like a table's scenario.
A model that is given by name is tried on its example batch, or on another batch given by name. A
training file is tried on its first batch.

Importing a name `package.module:attribute` runs code. Therefore such a name is accepted from a
person on the command line, but never from a file.

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
"""The arguments of `trial` that the command line can give for a model that is given by name."""


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
    """Return the scenario that trains a model on one batch.

    Args:
        model: the model to train.
        batch: column -> rows, or a dataset, of which all rows are used.
        loss: the name of a loss in `engine.training.losses.LOSSES`.
        optimizer: the name of an optimizer in `engine.training.optimizers.OPTIMIZERS`. Values that
            the optimizer would change from step to step (the bias correction of AdamW) keep those
            of the first step.
        hyper: hyper-parameters that differ from the optimizer's defaults.
        rules: the parts of a step besides its optimizer (`engine.training.step_rules`).
        steps: the number of training steps.
        planned_batch: another batch, for which the default plan is made (a defect).
        title: one line for reports.
        defects: other fields of `repro.scenario.Scenario`, and `expected` for their causes.

    Raises EngineError if `model` is not a `Model` or a column of the batch is not numeric.
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
    return Scenario(name=model.name, title=title or "a user's own model", training=training, **fields)


def _columns(batch: "Mapping[str, Array] | Dataset") -> dict[str, Array]:
    given = batch.columns if isinstance(batch, Dataset) else batch
    return {name: _column(name, rows) for name, rows in given.items()}


def _column(name: str, rows: Any) -> Array:
    try:
        made = np.asarray(rows)
    except (ValueError, TypeError) as error:
        raise EngineError(f"column {name!r} of the batch is no array: {one_line(str(error))}") from None
    if made.dtype.kind not in "fiub":
        raise EngineError(f"column {name!r} of the batch has dtype {made.dtype}; a numeric dtype is needed")
    return made


def find_own(name: str, how: Mapping[str, Any] | None = None, *, steps: int = 20) -> Scenario:
    """Return the scenario called `name`, or the trial of the model called `name`.

    Args:
        name: the name `package.module:attribute` of a scenario, or of a model.
        how: arguments for the trial of a model: `loss`, `optimizer`, and `data`. `data` is the name
            of a batch: columns, a dataset, or a function that returns columns or a dataset.
        steps: the number of training steps of a model.

    Raises UnknownNameError if no object is called `name`. Raises EngineError if the import
    fails, if the object is neither a scenario nor a model, if the model has no batch, or if `how`
    is given for a scenario.
    """
    found = named_object(name, what="model", raised=EngineError)
    told = dict(how or {})
    if isinstance(found, Scenario):
        if told:
            raise EngineError(f"{name} is a scenario and sets its {', '.join(told)} itself; leave these options out")
        return found
    if not isinstance(found, Model):
        raise EngineError(f"{name} is a {type(found).__name__}; a scenario or a model is needed")
    batch = _batch(told.pop("data")) if "data" in told else found.example
    if not batch:
        raise EngineError(
            f"{name} has no example batch; give one with engine.model(..., example=...), --data or "
            "repro.trial(model, batch)"
        )
    return trial(found, batch, steps=steps, **told)


def _batch(name: str) -> Any:
    """Return the batch called `package.module:attribute`; a function of that name is called."""
    found = named_object(name, what="batch", raised=EngineError)
    try:
        made = found() if callable(found) else found
    except AllocsimError:
        raise
    except (Exception, SystemExit) as error:
        raise EngineError(f"batch {name!r} failed: {in_a_line(error)}") from error
    if not isinstance(made, Mapping | Dataset):
        raise EngineError(f"{name} is a {type(made).__name__}; a batch is a mapping of columns, or a dataset")
    return made


def find_trained(path: Path, how: Mapping[str, Any], *, steps: int) -> Scenario:
    """Return the scenario that trains the model of a training file on the first batch of its data.

    Loss, optimizer and hyper-parameters are those of the file. The schedule of the file is not
    used, and the data are not shuffled.

    Raises EngineError if the file cannot be read, or if `how` is not empty.
    """
    if how:
        raise EngineError(f"{path}: a training file sets its {', '.join(how)} itself; leave these options out")
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
    """Return the graph, weights and inputs of a user's own model.

    Raises EngineError if model, batch, loss and optimizer do not fit together.
    """
    of = training
    with Trainer(of.model, loss=of.loss, optimizer=of.optimizer, hyper=of.hyper, rules=of.rules) as trainer:
        return trainer.unplanned("optimizer", of.batch)
