"""How to train, and where training is: data only.

What this module does not see: models, graphs, files.
"""

from dataclasses import dataclass, field
from math import inf, isnan
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from engine.training.dataset import Order
from engine.training.epoch_results import EpochResult
from engine.training.measured_memory import MemoryRecord
from engine.training.nonfinite_policy import Nonfinite
from engine.training.optimizers import Hyper
from engine.training.step_rules import StepRules
from engine.training.trainer import Graphs


class Settings(StepRules, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to train; EngineError for what cannot be.

    A configuration file has the same fields (`engine.training.config`). Those of the step are in
    `engine.training.step_rules`.
    """

    epochs: int = 1
    batch: int = 1
    """Datapoints of a physical batch: what one run of the graph takes."""
    logical_batch: int | None = None
    """Datapoints between optimizer steps, a multiple of `batch`; `batch` by default."""
    validation: float = 0.0
    """Share of the datapoints held out, from 0 to below 1."""
    loss: str = "cross_entropy"
    optimizer: str = "adamw"
    hyper: Hyper = msgspec.field(default_factory=dict)
    """Hyper-parameters that differ from the optimizer's defaults."""
    shuffle: bool = True
    seed: int = 0
    """Of the shuffling, and of what the model draws."""
    evaluate_every: int = 0
    """Optimizer steps between evaluations, beside that at the end of an epoch; 0: none."""
    patience: int = 0
    """Evaluations in a row without a lower loss after which training ends, with the weights of the
    lowest; 0 for never."""
    graphs: Graphs = "static"
    planner: str = "ggml"
    executor: str = "calls"
    threads: int | None = 1
    """Threads of a step; None or 0 for as many as numpy's BLAS may use."""
    nonfinite: Nonfinite = "stop"
    """What a NaN or infinity in loss or weights leads to (`engine.training.nonfinite_policy`)."""
    watch: bool = False
    """Look at all results of all ops, to name who makes the first NaN; a pass over each."""

    def __post_init__(self) -> None:
        """Check what does not depend on data or model."""
        super().__post_init__()
        for name in ("evaluate_every", "patience"):
            if getattr(self, name) < 0:
                raise EngineError(f"{name} is {getattr(self, name)}; it must be at least 0")
        if (self.evaluate_every or self.patience) and not self.validation:
            raise EngineError("evaluate_every and patience ask for a share of the data to validate on: validation")
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise EngineError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.seed < 0:
            raise EngineError(f"seed is {self.seed}; it must be at least 0")
        if self.threads is not None and self.threads < 0:
            raise EngineError(f"threads is {self.threads}; it must be at least 1, or 0 for all")
        if self.logical_batch is not None and (self.logical_batch < 1 or self.logical_batch % self.batch):
            raise EngineError(f"logical_batch {self.logical_batch} is no multiple of batch {self.batch}")
        if not 0 <= self.validation < 1:
            raise EngineError(f"validation is {self.validation}; it must be at least 0 and below 1")

    @property
    def period(self) -> int:
        """Physical batches in a logical one."""
        return (self.logical_batch or self.batch) // self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """What one epoch came to."""

    training: EpochResult
    validation: EpochResult


@dataclass(slots=True, kw_only=True, eq=False)
class TrainingState:
    """Where training is: changed step by step, saved whole."""

    generator: np.random.Generator
    order: Order
    epoch: int = 0
    batch: int = 0
    """Physical batches of this epoch that are done."""
    result: EpochResult = field(default_factory=EpochResult)
    """Of this epoch's training so far."""
    history: list[Epoch] = field(default_factory=list)
    plans: dict[str, int] = field(default_factory=dict)
    """Fingerprint of each program that ran -> bytes of its plan; earlier commands' among them."""
    memory: dict[str, MemoryRecord] = field(default_factory=dict)
    """Build -> its memory by category, as the first run of the course had it."""
    evaluations: list[tuple[int, EpochResult]] = field(default_factory=list)
    """Optimizer steps made, and what was found on what is held out."""
    best: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Weight and state of the model -> as it was at the lowest evaluation, with `patience`."""

    def stale(self) -> int:
        """Return how many evaluations there have been since the lowest loss."""
        losses = [inf if isnan(found.loss) else found.loss for _, found in self.evaluations]
        return len(losses) - 1 - losses.index(min(losses)) if losses else 0

    def ends(self, settings: Settings) -> bool:
        """Return whether so many evaluations in a row found no lower loss that training ends."""
        return bool(settings.patience) and self.stale() >= settings.patience


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How many physical batches train and validate in an epoch."""

    training: int
    validation: int

    @classmethod
    def of(cls, datapoints: int, settings: Settings) -> "Split":
        """Return the split; EngineError if not one logical batch is left for training."""
        logical = datapoints // (settings.batch * settings.period)
        training = int((1 - settings.validation) * logical) * settings.period
        if not training:
            held = f" with {settings.validation:g} held out" if settings.validation else ""
            raise EngineError(
                f"{datapoints} datapoints{held} make no logical batch of {settings.batch * settings.period}"
            )
        held_out = datapoints // settings.batch - training if settings.validation else 0
        return cls(training=training, validation=held_out)
