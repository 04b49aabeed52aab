"""Train a user's own model with an allocator that gives out memory while the steps run.

The model is trained in three modes:

* `default`: the online allocator gives out memory, and gets it back after the last use;
* `pinned`: the same allocator gives out memory, and nothing is given back;
* `reference`: every tensor has memory of its own.

Each step builds its own graph. Within `CYCLE` steps, each batch has one row less than the batch
before, as the last batch of an epoch has fewer rows. The addresses that the allocator returned in
the default run form a session with one plan for each step, which S, H and R judge. D compares the
losses and weights with those of the reference, bit by bit.

What this module does not see: how steps are issued (`allocsim.online.eager_host`), and verdicts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.array_difference import same_bits
from allocsim.errors import EngineError
from allocsim.online.eager_host import EagerHost
from allocsim.online.protocol import find
from allocsim.verdict.evidence import Evidence
from engine.d_differential.side_comparison import Progress, silent
from engine.graph import Graph
from engine.training.online_trainer import OnlineTrainer
from engine.training.trainer import Trainer
from repro.options import EngineOptions
from repro.run_records import TrainingSummary
from repro.scenario import OwnTraining, Scenario

CYCLE: Final = 3
"""The number of batch sizes, which are used in turn."""

State = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trained:
    arena_bytes: int
    loss: tuple[float, ...]
    weights: tuple[State, ...]
    """The weights after each step."""


def train_online(
    scenario: Scenario, options: EngineOptions, progress: Progress = silent
) -> tuple[Evidence, dict[str, TrainingSummary]]:
    """Return the evidence of the default run, and mode -> the training run, summed up.

    Raises EngineError if the scenario does not train a user's own model, if it sets `kernels`,
    `belief`, `write_once` or `planned_batch`, or if the options have modes or pin leafs. Raises
    CapacityError, PlannerError or AllocsimError if the allocator cannot serve the programs
    (`EagerHost`).
    """
    training, steps = scenario.training, options.steps_of(scenario)
    if not isinstance(training, OwnTraining):
        raise EngineError(f"{scenario.name}: an online allocator can be tried on a user's own model only")
    if (
        scenario.kernels
        or scenario.belief
        or scenario.write_once
        or training.planned_batch
        or options.modes
        or options.pin_leafs
    ):
        raise EngineError(
            f"{scenario.name}: defects, modes and pins need a plan; an online allocator makes none before the run"
        )
    make = find(options.online or "")
    streams = scenario.streams if scenario.streams > 1 else None
    hosts = {
        "default": EagerHost(make, streams=streams),
        "pinned": EagerHost(make, streams=streams, keeps=True, programs=steps),
    }
    settings: dict[str, Any] = {
        "loss": training.loss,
        "optimizer": training.optimizer,
        "hyper": training.hyper,
        "rules": training.rules,
        "threads": options.threads,
    }
    reference = Trainer(training.model, graphs="dynamic", planner="reference", **settings)
    trained = {"reference": _train(reference, training, steps, "reference", progress)}
    for name, host in hosts.items():
        trained[name] = _train(OnlineTrainer(training.model, host, **settings), training, steps, name, progress)
    modes = {name: _summary(trained[name], trained["reference"]) for name in ("default", "pinned", "reference")}
    document = hosts["default"].document()
    return Evidence(document=document, diverges=modes["default"].first_difference is not None), modes


def batches(training: OwnTraining, steps: int) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the batch of each step, without 0, 1, 2, 0, ... of its last rows if rows may be left
    out (`_rows_to_leave_out`).
    """
    most = _rows_to_leave_out(training)
    for step in range(steps):
        fewer = step % min(CYCLE, most)
        rows = slice(-fewer or None)
        yield {name: column[rows] if np.ndim(column) else column for name, column in training.batch.items()}


def _rows_to_leave_out(training: OwnTraining) -> int:
    """Return the number of rows of the batch if some rows may be left out, else 1.

    No row may be left out if the columns have different numbers of rows, if there are fewer than
    two rows, or if the model cannot be built with one row less.
    """
    shapes = {name: np.shape(column) for name, column in training.batch.items()}
    rows = {shape[0] if shape else 0 for shape in shapes.values()}
    if len(rows) != 1 or min(rows) < 2:
        return 1
    fewer = {name: (shape[0] - 1, *shape[1:]) for name, shape in shapes.items()}
    try:
        training.model.build(Graph("fewer"), fewer)
    except EngineError:
        return 1
    return min(rows)


def _train(trainer: Trainer, training: OwnTraining, steps: int, name: str, progress: Progress) -> _Trained:
    losses, weights = [], []
    with trainer:
        for number, batch in enumerate(batches(training, steps)):
            losses.append(trainer.step(batch).loss)
            weights.append({key: array.copy() for key, array in trainer.weights.items()})
            progress(name, number + 1, steps)
        plans = (
            [run.plan for run in trainer.host.runs] if isinstance(trainer, OnlineTrainer) else trainer.plans.values()
        )
        return _Trained(arena_bytes=max(plan.peak_bytes for plan in plans), loss=tuple(losses), weights=tuple(weights))


def _summary(trained: _Trained, reference: _Trained) -> TrainingSummary:
    differs = next((step for step in range(len(trained.loss)) if not _same(trained, reference, step)), None)
    first = None if differs is None else differs + 1
    return TrainingSummary(arena_bytes=trained.arena_bytes, loss=trained.loss, gradients=(), first_difference=first)


def _same(trained: _Trained, reference: _Trained, step: int) -> bool:
    losses = np.float64(trained.loss[step]), np.float64(reference.loss[step])
    if not np.array_equal(*losses, equal_nan=True):
        return False
    return all(same_bits(array, reference.weights[step][name]) for name, array in trained.weights[step].items())
