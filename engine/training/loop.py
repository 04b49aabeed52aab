"""Epochs over a dataset: shuffling, logical batches, validation, callbacks and checkpoints.

    history = fit(model, dataset, Settings(epochs=30, batch=50, logical_batch=500, validation=0.05))

The first `1 - validation` of the shuffled datapoints, rounded down to whole logical batches, train;
all other whole physical batches validate, and what is left over rests. Before each epoch the
training part is shuffled again, in shards. This is ggml_opt_fit's way.

All that decides the course of training (position, order, generator, weights, moments) is in
`TrainingState` and `Trainer` and can be saved after any optimizer step
(`engine.training.checkpoint`): a resumed run goes on to the same bits as one that was never
stopped.

Numbers that are no longer finite end it (`Settings.nonfinite`, `engine.training.nonfinite_policy`):
no checkpoint is made of them.

What this module does not see: graphs, plans, terminals.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from allocsim.model import Document
from engine.kernels.binding import Array
from engine.models.trainable import Model
from engine.training import checkpoint
from engine.training.dataset import LABELS, Dataset
from engine.training.epoch_results import EpochResult
from engine.training.measured_memory import MemoryOfRun, MemoryRecord
from engine.training.nonfinite_policy import Lookout, tell_unless_falling, warn
from engine.training.schedules import Position, Schedule
from engine.training.settings import Epoch, Settings, Split, TrainingState
from engine.training.trainer import Trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """Told after each physical batch."""

    epoch: int
    epochs: int
    batch: int
    batches: int
    step: int
    """Optimizer steps made so far, over all epochs."""
    training: bool
    """Whether the batch trained or validated."""
    result: EpochResult
    """Of the epoch so far."""


OnBatch = Callable[[BatchProgress], None]
OnEpoch = Callable[[int, Epoch], None]
CHECKPOINT_EVERY: Final = 100
"""Optimizer steps between checkpoints by default; the end of an epoch always makes one."""


def fit(
    model: Model,
    dataset: Dataset,
    settings: Settings,
    *,
    schedule: Schedule | None = None,
    on_batch: OnBatch | None = None,
    on_epoch: OnEpoch | None = None,
    save: str | Path | None = None,
    save_every: int = CHECKPOINT_EVERY,
    resume: bool = False,
    stop_after: int | None = None,
    about: Mapping[str, Any] | None = None,
    say: Callable[[str], object] = warn,
    trained_by: Callable[..., Trainer] = Trainer,
) -> "Fitted":
    """Train for all epochs and return the weights with the history.

    Args:
        model: what to train; its arrays are left as they are.
        dataset: datapoints; columns as the model's inputs are named, and `labels`.
        settings: how.
        schedule: hyper-parameters before each optimizer step; those of `settings` where it says
            nothing.
        on_batch: called after each physical batch.
        on_epoch: called after each epoch with its number from 0.
        save: file for checkpoints, replaced atomically.
        save_every: optimizer steps between checkpoints.
        resume: go on from `save` where it exists; EngineError if it was made with other settings,
            weights or data.
        stop_after: return after so many optimizer steps over all epochs, resumable.
        about: what else decides the course, by name and in plain values, say the parameters of the
            schedule: functions show none of it. A checkpoint made with other ones is refused.
        say: called with one line where numbers are not finite and training goes on, and at the end
            where the loss did not fall; a RuntimeWarning by default.
        trained_by: makes the trainer, say one over many ranks (`engine.sharding.ranked_trainer`).

    Raises:
        EngineError: model, dataset and settings do not fit together.
        NotFiniteError: a loss or a weight is NaN or infinite, and `settings.nonfinite` is `stop`.
    """
    with trained_by(
        model,
        loss=settings.loss,
        optimizer=settings.optimizer,
        hyper=settings.hyper,
        period=settings.period,
        graphs=settings.graphs,
        planner=settings.planner,
        executor=settings.executor,
        threads=settings.threads or None,
        seed=settings.seed,
        watch=settings.watch,
        measure=True,
        rules=settings,
    ) as trainer:
        split = Split.of(len(dataset), settings)
        course = _begin(dataset, settings, trainer)
        identity = checkpoint.identity(model, dataset, settings, about)
        if resume and save is not None and Path(save).exists():
            checkpoint.restore(save, trainer, course, identity, say)
        trainer.agree({**identity, "epoch": course.epoch, "batch": course.batch, "step": trainer.steps})

        lookout = Lookout(settings.nonfinite, say, watching=settings.watch, ranks=trainer.ranks > 1)

        def saved() -> None:
            trainer.gather()
            lookout.weights(f"after step {trainer.steps}", trainer.weights)
            _account(trainer, course)
            if save is not None:
                checkpoint.save(save, trainer, course, identity)

        def stepped() -> None:
            if trainer.steps % max(1, save_every) == 0:
                saved()

        while course.epoch < settings.epochs and not course.ends(settings):
            done = epoch(
                trainer,
                dataset,
                course,
                split,
                settings,
                schedule=schedule,
                on_batch=on_batch,
                after_step=stepped,
                lookout=lookout,
                stop_after=stop_after,
            )
            if done is None:
                saved()
                break
            course.history.append(done)
            course.epoch, course.batch, course.result = course.epoch + 1, 0, EpochResult(summed=not trainer.loss.mean)
            if on_epoch is not None:
                on_epoch(course.epoch - 1, done)
            if course.epoch < settings.epochs:
                _shuffle(dataset, course, settings, split)
            saved()
        _account(trainer, course)
        if course.epoch == settings.epochs:
            tell_unless_falling([loss for done in course.history for loss in done.training.losses], say)
        ended = {**trainer.weights, **trainer.states, **course.best}
        return Fitted(
            weights={name: ended[name].copy() for name in trainer.weights},
            averages={name: array.copy() for name, array in trainer.averages.items()},
            evaluations=tuple(course.evaluations),
            states={name: ended[name].copy() for name in trainer.states if name in model.states},
            history=tuple(course.history),
            steps=trainer.steps,
            plans=len(course.plans),
            peak_bytes=max(course.plans.values(), default=0),
            document=trainer.document(),
            predictions=course.history[-1].validation.predictions if course.history else np.empty(0, np.int32),
            held_out=course.order[split.training * settings.batch :][: split.validation * settings.batch].copy(),
            memory=dict(trainer.memory),
            memory_records=dict(course.memory),
        )


def _account(trainer: Trainer, course: TrainingState) -> None:
    """Add what ran here to the course's account of memory; what ran first stays."""
    for key, plan in trainer.plans.items():
        course.plans.setdefault(key, plan.peak_bytes)
    for build, found in trainer.memory.items():
        if build not in course.memory:
            course.memory[build] = found.as_json()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """What training came to."""

    weights: Mapping[str, Array]
    """Trained weight -> array; with `patience` those of the lowest evaluation."""
    averages: Mapping[str, Array]
    """Weight -> its moving average, where there is one."""
    evaluations: tuple[tuple[int, EpochResult], ...]
    """Optimizer steps made -> the evaluation there, with `evaluate_every` or `patience`."""
    states: Mapping[str, Array]
    """State that the model keeps -> array; with `patience` those of the lowest evaluation."""
    history: tuple[Epoch, ...]
    steps: int
    plans: int
    """Plans of the whole course."""
    peak_bytes: int
    """The largest of them."""
    document: Document
    """Every program that ran (`Trainer.document`), with its plan and the belief behind it."""
    predictions: Array
    """The class, i32, that each row held out got in the last epoch that this call ended; empty
    where the loss knows no classes. `history[n].validation.predictions` has those of an epoch."""
    held_out: Array
    """Datapoints that validated, in the order of their rows in `predictions`."""
    memory: Mapping[str, MemoryOfRun]
    """Build (`forward`, `gradient`, `optimizer`) -> memory by category, predicted and measured."""
    memory_records: Mapping[str, MemoryRecord]
    """The same of the whole course, what ran before it was resumed too."""


def epoch(
    trainer: Trainer,
    dataset: Dataset,
    course: TrainingState,
    split: Split,
    settings: Settings,
    *,
    schedule: Schedule | None = None,
    on_batch: OnBatch | None = None,
    after_step: Callable[[], object] | None = None,
    stop_after: int | None = None,
    lookout: Lookout | None = None,
) -> Epoch | None:
    """Train over the first part of the order from where `course` is, then validate on the rest.

    Returns None if stopped before its end by `stop_after`; where evaluations end training, what
    there is.
    """
    lookout = lookout or Lookout(settings.nonfinite, warn, watching=settings.watch)
    tell = on_batch or _nobody

    def measured(result: EpochResult, batch: int, *, train: bool) -> EpochResult:
        rows = course.order[batch * settings.batch : (batch + 1) * settings.batch]
        given = dataset.take(rows)
        outcome = trainer.step(given) if train else trainer.run("forward", given)
        which = f"batch {batch + 1}" if train else f"validation batch {batch - split.training + 1}"
        place = f"epoch {course.epoch + 1}, {which}, step {trainer.steps}"
        lookout.batch(place, outcome, given, rows, training=train)
        classes = trainer.loss.classes
        outputs, labels = (outcome.outputs, given[LABELS]) if classes else (None, None)
        return result.plus(outcome.loss, outputs, labels, keep=not train)

    def validated() -> EpochResult:
        found = EpochResult(summed=not trainer.loss.mean)
        for index in range(split.validation):
            found = measured(found, split.training + index, train=False)
            tell(_progress(course, split, settings, trainer, found, training=False))
        return found

    while course.batch < split.training:
        if stop_after is not None and trainer.steps >= stop_after:
            return None
        if schedule is not None and trainer.pending == 0:
            _schedule(schedule, trainer, course, settings, split)
        course.result = measured(course.result, course.batch, train=True)
        course.batch += 1
        tell(_progress(course, split, settings, trainer, course.result, training=True))
        if trainer.pending or course.batch == split.training:
            continue
        if settings.evaluate_every and trainer.steps % settings.evaluate_every == 0:
            found = validated()
            if _ends(found, trainer, course, settings):
                return Epoch(training=course.result, validation=found)
        if after_step is not None:
            after_step()
    found = validated()
    _ends(found, trainer, course, settings)
    return Epoch(training=course.result, validation=found)


def _nobody(progress: BatchProgress) -> None:
    del progress


def _schedule(schedule: Schedule, trainer: Trainer, course: TrainingState, settings: Settings, split: Split) -> None:
    """Tell the trainer the hyper-parameters of the next step."""
    steps = settings.epochs * (split.training // settings.period)
    position = Position(epoch=course.epoch, epochs=settings.epochs, step=trainer.steps, steps=steps)
    trainer.hyper = trainer.optimizer.checked({**settings.hyper, **schedule(position)})


def _ends(found: EpochResult, trainer: Trainer, course: TrainingState, settings: Settings) -> bool:
    """Keep an evaluation, and the weights of the lowest; return whether training ends."""
    if not settings.evaluate_every and not settings.patience:
        return False
    course.evaluations.append((trainer.steps, found))
    if settings.patience and course.stale() == 0:
        kept = {name: trainer.states[name] for name in trainer.model.states if name in trainer.states}
        course.best = {name: array.copy() for name, array in {**trainer.weights, **trainer.averages, **kept}.items()}
    return course.ends(settings)


def _begin(dataset: Dataset, settings: Settings, trainer: Trainer) -> TrainingState:
    course = TrainingState(
        generator=np.random.Generator(np.random.PCG64(settings.seed)),
        order=dataset.order(),
        result=EpochResult(summed=not trainer.loss.mean),
    )
    if settings.shuffle:  # all of it once, so that what is held out is a sample
        course.order = dataset.shuffled(course.order, course.generator)
        _shuffle(dataset, course, settings, Split.of(len(dataset), settings))
    return course


def _shuffle(dataset: Dataset, course: TrainingState, settings: Settings, split: Split) -> None:
    if settings.shuffle:
        course.order = dataset.shuffled(course.order, course.generator, split.training * settings.batch)


def _progress(
    course: TrainingState, split: Split, settings: Settings, trainer: Trainer, result: EpochResult, *, training: bool
) -> BatchProgress:
    return BatchProgress(
        epoch=course.epoch,
        epochs=settings.epochs,
        batch=len(result.losses),
        batches=split.training if training else split.validation,
        step=trainer.steps,
        training=training,
        result=result,
    )
