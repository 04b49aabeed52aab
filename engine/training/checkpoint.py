"""Training on disk: one safetensors file with the whole state, replaced atomically.

| tensor | holds |
|---|---|
| weight.NAME | a trained weight |
| state.NAME | its moments (accumulators are empty between optimizer steps and are not saved) |
| order | the datapoints in the order of this epoch |

The metadata entry `allocsim.training` is JSON: version, position, losses of the epoch so far, the
epochs before, the generator's state, and the *identity*: settings, model, frozen weights and data,
as far as they decide the course. A file with another identity is refused, with the first entry that
differs. Frozen weights are not saved, only hashed.

What this module does not see: graphs and plans; the same weights go on under any planner.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np

from allocsim.errors import EngineError
from allocsim.files import write_atomic
from engine.models.trainable import Model
from engine.training.dataset import Dataset
from engine.training.epoch_results import EpochResult
from engine.training.settings import Epoch, Settings, TrainingState
from engine.training.trainer import Trainer

KEY: Final = "allocsim.training"
VERSION: Final = 1


def identity(model: Model, dataset: Dataset, settings: Settings, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a course of training is decided by, by name.

    `about`, and what can be seen. O(bytes of the weights and of the data).
    """
    state = blake2b(digest_size=16)
    for name, array in sorted(model.parameters.items()):
        state.update(f"{name} {array.dtype.str} {array.shape}".encode())
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return {
        "model": model.name,
        "initial weights": state.hexdigest(),
        "data": dataset.digest(),
        "shard": dataset.shard,
        "batch": settings.batch,
        "logical batch": settings.batch * settings.period,
        "validation": settings.validation,
        "loss": settings.loss,
        "optimizer": settings.optimizer,
        "hyper-parameters": dict(sorted(settings.hyper.items())),
        "shuffle": settings.shuffle,
        "seed": settings.seed,
        **(about or {}),
    }


def save(path: str | Path, trainer: Trainer, course: TrainingState, about: Mapping[str, Any]) -> None:
    """Write the checkpoint; OutputError where it cannot be written.

    Between optimizer steps only.
    """
    from safetensors.numpy import save as pack  # noqa: PLC0415 - only who saves needs it

    if trainer.pending:
        raise EngineError(f"{trainer.pending} physical batches are accumulated; checkpoints are made between optimizer steps")
    tensors = {f"weight.{name}": array for name, array in trainer.weights.items()}
    tensors |= {f"state.{name}": array for name, array in trainer.states.items() if not name.startswith("acc.")}
    said = {
        "version": VERSION,
        "identity": dict(about),
        "epoch": course.epoch,
        "batch": course.batch,
        "step": trainer.steps,
        "result": _packed(course.result),
        "history": [[_packed(done.training), _packed(done.validation)] for done in course.history],
        "generator": course.generator.bit_generator.state,
    }
    write_atomic(path, pack({**tensors, "order": course.order}, metadata={KEY: json.dumps(said)}))


def restore(path: str | Path, trainer: Trainer, course: TrainingState, about: Mapping[str, Any]) -> None:
    """Put trainer and course where they were.

    EngineError, with file and rule, for a file that is none or another run's.
    """
    tensors, said = read(path)
    theirs = said["identity"]
    for name, value in json.loads(json.dumps(about)).items():
        if theirs.get(name) != value:
            raise EngineError(f"{path}: was made with {name} {theirs.get(name)!r}; this run has {value!r}")
    try:
        trainer.steps = int(said["step"])
        course.epoch, course.batch = int(said["epoch"]), int(said["batch"])
        course.result = _unpacked(said["result"])
        course.history[:] = [Epoch(training=_unpacked(one), validation=_unpacked(two)) for one, two in said["history"]]
        course.generator.bit_generator.state = said["generator"]
        course.order = tensors.pop("order")
        trainer.adopt(
            {name.removeprefix("weight."): array for name, array in tensors.items() if name.startswith("weight.")},
            {name.removeprefix("state."): array for name, array in tensors.items() if name.startswith("state.")},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"{path}: is no complete checkpoint: {error}") from None


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tensors of a checkpoint and what its metadata says.

    Raises EngineError if the file is none.
    """
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - only who resumes needs it

    try:
        with safe_open(path, framework="numpy") as file:
            said = (file.metadata() or {}).get(KEY)
            if said is None:
                raise EngineError(f"{path}: is a safetensors file, but no checkpoint of training")
            found: Any = json.loads(said)
            if not isinstance(found, dict) or found.get("version") != VERSION:
                raise EngineError(f"{path}: is a checkpoint of another version; this one reads version {VERSION}")
            return {name: file.get_tensor(name) for name in file.keys()}, found  # noqa: SIM118 - no mapping
    except (SafetensorError, json.JSONDecodeError) as error:
        raise EngineError(f"{path}: is no readable checkpoint: {error}") from None
    except OSError as error:
        raise EngineError(f"{path}: is no readable checkpoint: {error.strerror or error}") from None


def _packed(result: EpochResult) -> list[Any]:
    return [list(result.losses), result.rows, result.hits, result.summed]


def _unpacked(said: list[Any]) -> EpochResult:
    losses, rows, hits, summed = said
    return EpochResult(losses=tuple(losses), rows=rows, hits=hits, summed=summed)
