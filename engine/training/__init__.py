"""Training with all memory planned.

There are datasets, losses, optimizers, logical batches, validation and checkpoints.

    from engine.training import Dataset, Settings, fit
    fitted = fit(models.mlp((2, 16, 2)), Dataset.of(points, classes), Settings(epochs=50, batch=20))

The way data takes: `Dataset` -> physical batches -> `Trainer` (graph, plan, runtime of each build;
shared weights and moments) -> `EpochResult`s; `fit` drives it, `checkpoint` saves it. Capabilities
and their meaning are those of ggml's ggml-opt.

| file | room for |
|---|---|
| `losses.py`, `optimizers.py`, `schedules.py` | a new row |
| `dataset.py` | what a batch is taken from |
| `step_rules.py` | what a step does beside its optimizer: clipping, groups, loss scale, averages |
| `trainer.py` | one step: graphs, plans, memory |
| `settings.py`, `loop.py` | settings and position; epochs |
| `measured_memory.py` | memory of a run by category, as measured; `allocsim.liveness.memory_categories` predicts it |
| `nonfinite_policy.py` | what is done about NaN and infinity |
| `checkpoint.py` | what a resumed run needs |
| `checkpoint_parts.py` | of many ranks, the part that each writes |
| `digests.py` | hashes of what is kept on disk |
| `config.py` | `allocsim train CONFIG.toml` |
"""

from engine.models.trainable import Model
from engine.training.dataset import Dataset
from engine.training.epoch_results import EpochResult
from engine.training.loop import BatchProgress, Fitted, epoch, fit
from engine.training.losses import LOSSES
from engine.training.nonfinite_policy import NotFiniteError
from engine.training.optimizers import OPTIMIZERS
from engine.training.schedules import SCHEDULES, Position, constant, cosine, linear
from engine.training.settings import Epoch, Settings, Split, TrainingState
from engine.training.step_rules import StepRules, WeightGroup
from engine.training.trainer import GRAPHS, BatchOutcome, Trainer, UnreachedParameterWarning

__all__ = [
    "GRAPHS", "LOSSES", "OPTIMIZERS", "SCHEDULES", "BatchOutcome", "BatchProgress", "Dataset", "Epoch",
    "EpochResult", "Fitted", "Model", "NotFiniteError", "Position", "Settings", "Split", "StepRules",
    "Trainer", "TrainingState", "UnreachedParameterWarning", "WeightGroup", "constant", "cosine", "epoch",
    "fit", "linear",
]  # fmt: skip
