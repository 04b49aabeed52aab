"""Training on disk: one safetensors file with the whole state, replaced atomically.

| tensor | holds |
|---|---|
| weight.NAME | a trained weight |
| state.NAME | its moments, and states of the model (accumulators are empty between optimizer steps
and are not saved) |
| state.best.NAME | a weight or a state of the model at the lowest evaluation, with `patience` |
| order | the datapoints in the order of this epoch |

Of a step of several ranks each writes its part of all weights and moments into a file of its own
(`engine.training.checkpoint_parts`), and this one names the parts.

The metadata entry `allocsim.training` is JSON: version, position, losses of the epoch so far, the
epochs before, the generator's state, and the *identity*: settings, model, frozen weights and data,
as far as they decide the course. It has also the plans and the memory of what ran, so that the
results of a resumed course are those of all of it, and where it ran (BLAS and its kernels, numpy,
processor): a resume elsewhere says that its bits may differ. Equal courses make equal bytes. A file
with another identity is refused, with the first entry that differs. Frozen weights are not saved,
only hashed.

The metadata entry `allocsim.digest` is a BLAKE2b hash over all of it, every tensor (name, dtype,
shape, bytes) and the JSON: a file in which anything changed is refused, since it would go on to
other weights without a word. Files of version 1 carry none and are refused. The hash finds
accidents, not malice: who can write the file can write its hash; what is read is checked as any
input is (the order is one of the datapoints, positions fit).

What this module does not see: graphs and plans; the same weights go on under any planner.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from allocsim import processor
from allocsim.errors import EngineError
from allocsim.files import write_atomic
from allocsim.files.gate import converted, refused_with, refusing
from engine.models.trainable import Model
from engine.training.checkpoint_parts import forget, read_parts, write_part
from engine.training.dataset import Dataset
from engine.training.digests import content, digest, ordered
from engine.training.epoch_results import EpochResult
from engine.training.measured_memory import MemoryRecord
from engine.training.settings import Epoch, Settings, TrainingState
from engine.training.step_rules import ACCUMULATED, BEST
from engine.training.trainer import Trainer

KEY: Final = "allocsim.training"
DIGEST: Final = "allocsim.digest"
VERSION: Final = 5
_READ: Final = (2, 3, 4, VERSION)
"""Version 2 has no account of memory nor of where it was made; 3 no evaluations, 4 no parts."""
_MISSING: Final = 1
"""The version that had no digest."""

_refused: Final = refused_with(EngineError)

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Packed = tuple[list[float], Count, Count, bool]


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the metadata says."""

    version: int
    identity: dict[str, Any]
    epoch: Count
    batch: Count
    step: Count
    result: _Packed
    history: list[tuple[_Packed, _Packed]]
    generator: dict[str, Any]
    plans: dict[str, Count] = {}
    memory: dict[str, MemoryRecord] = {}
    made_on: dict[str, str] = {}
    evaluations: list[tuple[Count, _Packed]] = []
    parts: list[str] = []
    shapes: dict[str, list[Count]] = {}


def made_on() -> dict[str, str]:
    """Return what decides a product's bits beside its numbers: BLAS, kernels, numpy, processor."""
    from threadpoolctl import threadpool_info  # noqa: PLC0415 - scans the loaded libraries

    rows = [row for row in threadpool_info() if row["user_api"] == "blas" and "numpy" in row["filepath"]]
    kernels = [f"{row['internal_api']} {row['version']} {row.get('architecture', '')}".strip() for row in rows]
    return {"BLAS": ", ".join(kernels), "numpy": np.__version__, "processor": processor.name()}


def identity(
    model: Model, dataset: Dataset, settings: Settings, about: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what a course of training is decided by, by name.

    `about`, and what can be seen. O(bytes of the weights and of the data).
    """
    return {
        "model": model.name,
        "initial weights": content({**model.parameters, **model.states}),
        "data": content(dataset.columns),
        "shard": dataset.shard,
        "batch": settings.batch,
        "logical batch": settings.batch * settings.period,
        "validation": settings.validation,
        "loss": settings.loss,
        "optimizer": settings.optimizer,
        "hyper-parameters": dict(sorted(settings.hyper.items())),
        **settings.said,
        **{name: value for name in ("evaluate_every", "patience") if (value := getattr(settings, name))},
        "shuffle": settings.shuffle,
        "seed": settings.seed,
        **(about or {}),
    }


def save(path: str | Path, trainer: Trainer, course: TrainingState, about: Mapping[str, Any]) -> None:
    """Write the checkpoint, of several ranks the parts of those of this process; OutputError where
    it cannot be written.

    Between optimizer steps only. Every rank asks, and none goes on before the file is in its place:
    a part of the next checkpoint would be taken for one that this one replaces.
    """
    from safetensors.numpy import save as pack  # noqa: PLC0415 - only who saves needs it

    if trainer.pending:
        raise EngineError(
            f"{trainer.pending} physical batches are accumulated; checkpoints are made between optimizer steps"
        )
    tensors = {f"weight.{name}": array for name, array in trainer.weights.items()}
    tensors |= {f"state.{name}": array for name, array in trainer.states.items() if not name.startswith(ACCUMULATED)}
    tensors |= {f"state.{BEST}{name}": array for name, array in course.best.items()}
    path = Path(path)
    cut: dict[str, Any] = {}
    if trainer.ranks > 1:
        mine = [write_part(path, tensors, rank, trainer.ranks) for rank in trainer.mine]
        cut = {"parts": trainer.of_all(mine), "shapes": {name: array.shape for name, array in tensors.items()}}
        tensors = {}
    if trainer.writes:
        said = {
            "version": VERSION,
            "identity": dict(about),
            "epoch": course.epoch,
            "batch": course.batch,
            "step": trainer.steps,
            "result": _packed(course.result),
            "history": [[_packed(done.training), _packed(done.validation)] for done in course.history],
            "generator": course.generator.bit_generator.state,
            "plans": course.plans,
            "memory": course.memory,
            "made_on": made_on(),
            "evaluations": [[step, _packed(found)] for step, found in course.evaluations],
            **cut,
        }
        tensors["order"] = course.order
        text = json.dumps(said)
        write_atomic(path, ordered(pack(tensors, metadata={KEY: text, DIGEST: digest(tensors, text)})))
        forget(path, cut.get("parts", ()))
    trainer.of_all([])


def restore(
    path: str | Path, trainer: Trainer, course: TrainingState, about: Mapping[str, Any], say: Callable[[str], object]
) -> None:
    """Put trainer and course where they were; say in one line that it was made elsewhere.

    EngineError, with file and rule, for a file that is none or another run's.
    """
    tensors, said = read(path)
    mine = json.loads(json.dumps(about))
    for name in dict.fromkeys((*mine, *said.identity)):  # what is as by default is in neither
        if (was := said.identity.get(name)) != (now := mine.get(name)):
            raise EngineError(f"{path}: was made with {name} {was!r}; this run has {now!r}")
    order = tensors.pop("order", None)
    if order is None or order.dtype != np.int64 or not np.array_equal(np.sort(order, axis=None), np.sort(course.order)):
        raise EngineError(
            f"{path}: is no complete checkpoint: its order does not hold each of {len(course.order)} datapoints once"
        )
    if len(said.history) != said.epoch or len(said.result[0]) != said.batch:
        raise EngineError(
            f"{path}: is no complete checkpoint: it has losses of {len(said.history)} epochs and "
            f"{len(said.result[0])} batches, "
            f"and stands at epoch {said.epoch}, batch {said.batch}"
        )
    try:
        course.generator.bit_generator.state = said.generator
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise EngineError(f"{path}: is no complete checkpoint: the state of its generator is none: {error}") from None
    trainer.steps = said.step
    course.epoch, course.batch = said.epoch, said.batch
    course.result = _unpacked(said.result)
    course.history[:] = [Epoch(training=_unpacked(one), validation=_unpacked(two)) for one, two in said.history]
    course.evaluations[:] = [(step, _unpacked(found)) for step, found in said.evaluations]
    course.order = order
    course.plans, course.memory = dict(said.plans), dict(said.memory)
    here = made_on()
    differs = [
        f"{what} {theirs!r}, here {here.get(what)!r}"
        for what, theirs in said.made_on.items()
        if here.get(what) != theirs
    ]
    if differs:
        say(f"{path}: was made with {'; '.join(differs)}: the bits may differ from those of a course that never moved")
    states = _under("state.", tensors)
    course.best = _under(BEST, states)
    trainer.adopt(
        _under("weight.", tensors), {name: array for name, array in states.items() if not name.startswith(BEST)}
    )


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def read(path: str | Path) -> tuple[dict[str, Any], _Record]:
    """Return the tensors of a checkpoint, whole, and what its metadata says.

    Raises EngineError if the file is none, or is not as it was written.
    """
    from safetensors import safe_open  # noqa: PLC0415 - only who resumes needs it

    with refusing(str(path), "checkpoint", refusal=_refused), safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        if KEY not in metadata:
            raise EngineError(f"{path}: is a safetensors file, but no checkpoint of training")
        found: Any = json.loads(metadata[KEY])
        version = found.get("version") if isinstance(found, dict) else None
        if version not in _READ:
            why = ", which has no digest to tell whether it is whole" if version == _MISSING else ""
            raise EngineError(f"{path}: is a checkpoint of version {version!r}{why}; this one reads versions {_READ}")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    if metadata.get(DIGEST) != digest(tensors, metadata[KEY]):
        raise EngineError(f"{path}: is not as it was written: its digest differs; take an earlier copy, or train anew")
    said: _Record = converted(found, _Record, str(path), what="complete checkpoint", refusal=_refused)
    return {**tensors, **read_parts(Path(path), said.parts, said.shapes)}, said


def _packed(result: EpochResult) -> list[Any]:
    return [list(result.losses), result.rows, result.hits, result.summed]


def _unpacked(said: _Packed) -> EpochResult:
    losses, rows, hits, summed = said
    return EpochResult(losses=tuple(losses), rows=rows, hits=hits, summed=summed)
