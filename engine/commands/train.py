"""`allocsim train CONFIG.toml`: train a model on the engine, with all memory planned.

In the folder of results: `checkpoint.safetensors` (what `--resume` goes on from),
`weights.safetensors` (the trained weights), `history.json` (loss and accuracy of each epoch, what
was planned) and `losses.csv` (the loss of each physical batch); `averages.safetensors` where moving
averages of the weights are kept; of a llama or GPT-2 also what other programs read
(`engine.models.model_files`). The checkpoint is replaced atomically, the others together; a
folder that holds a checkpoint is never trained over without `--resume`, and one that another
command writes into is refused. The last two and the weights are written when training ends or is
stopped.

What this module does not see: how a configuration is read (`engine.training.config`) and how
training goes (`engine.training.loop`).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from allocsim.cli.output import in_bytes, print_error, print_json, print_line
from allocsim.cli.progress import bar
from allocsim.errors import EngineError, OutputError
from allocsim.files.folders import Content, replace_files, working_in
from engine.models.model_files import MODEL_FILES
from engine.sharding.mpi_ranks import ending_together, launched, rank_here
from engine.sharding.ranked_trainer import RankedTrainer
from engine.training import Epoch, Fitted, NotFiniteError, fit
from engine.training import config as configs
from engine.training.loop import BatchProgress as Batch
from engine.training.loop import OnBatch
from engine.training.measured_memory import at_fullest
from engine.training.trainer import Trainer

CHECKPOINT = "checkpoint.safetensors"


def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Model, data and settings.")],
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of results.", show_default="out/CONFIG")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the folder's checkpoint.")] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many optimizer steps in all; resumable.")
    ] = None,
    allocator: Annotated[
        str | None,
        typer.Option("--allocator", "--planner", help='Who plans the memory: a name or "package.module:function".'),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=1, help="Cut each batch over so many ranks: processes of mpiexec, else simulated in this one."
        ),
    ] = None,
    zero: Annotated[
        int | None, typer.Option(min=0, max=3, help="With --ranks: the stage of ZeRO; 0 is DDP.", show_default="0")
    ] = None,
    tensor: Annotated[
        int | None,
        typer.Option(min=1, help="With --ranks: split tensors over so many neighbouring ranks.", show_default="1"),
    ] = None,
    experts: Annotated[
        int | None,
        typer.Option(min=1, help="With --ranks: spread experts over so many neighbouring ranks.", show_default="1"),
    ] = None,
    microbatches: Annotated[
        int | None,
        typer.Option(min=1, help="With --ranks: each is a stage of layers, and a batch so many microbatches."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Exit status: 0 trained, 1 stopped at numbers that are not finite, 2 bad input.

    Example: allocsim train digits.toml --steps 100
    """
    with ExitStack() as ends:
        how = {"zero": zero, "tensor": tensor, "experts": experts, "microbatches": microbatches}
        trained_by, writes = _trainer(ranks, ends, how)
        said = configs.read(config)
        settings = said.training if allocator is None else msgspec.structs.replace(said.training, planner=allocator)
        folder = out or Path("out") / config.stem
        with working_in(folder) if writes else nullcontext():
            if (folder / CHECKPOINT).exists() and not resume:
                raise OutputError(f"{folder}: holds a checkpoint; --resume goes on from it, --out takes another folder")
            there = next((name for name in MODEL_FILES if (folder / name).exists()), None)
            if there is not None and not (folder / CHECKPOINT).exists():
                raise OutputError(f"{folder}: holds {there} of a model, and no checkpoint; --out takes another folder")
            model, dataset = said.model.made(config.parent), said.data.made(config.parent)
            quiet = as_json or not writes

            def told(number: int, epoch: Epoch) -> None:
                if not quiet:
                    print_line(_line(number, settings.epochs, epoch))

            try:
                with _batches(quiet=quiet) as on_batch:
                    fitted = fit(
                        model,
                        dataset,
                        settings,
                        schedule=configs.schedule(said),
                        on_batch=on_batch,
                        on_epoch=told,
                        save=folder / CHECKPOINT,
                        save_every=settings.save_every,
                        resume=resume,
                        stop_after=steps,
                        about={**configs.about(said), **model.about},
                        say=print_error if writes else str,
                        trained_by=trained_by,
                    )
            except NotFiniteError as error:
                if writes:
                    print_error(str(error))
                return 1
            if not writes:
                return 0
            history = _history(fitted)
            _write(folder, fitted, history, model.exported(fitted.weights))
            if as_json:
                print_json(history)
            else:
                size = in_bytes(fitted.peak_bytes)
                print_line(
                    f"{fitted.steps} steps, {fitted.plans} plans by {settings.planner}, the largest of {size}; "
                    f"results in {folder}"
                )
                if ranks is not None:
                    where = "by MPI" if launched() else "simulated in this process"
                    split = f"stage {zero or 0} of ZeRO" if microbatches is None else f"{microbatches} microbatches"
                    split += f", tensors split over {tensor}" if tensor else ""
                    split += f", experts spread over {experts}" if experts else ""
                    each = "each step by" if microbatches is None else "each step through a pipeline of"
                    print_line(f"{each} {ranks} ranks {where}, {split}")
                for line in _memory(fitted) if ranks is None else ():  # that of validation says nothing of a rank
                    print_line(line)
            return 0


def _trainer(ranks: int | None, ends: ExitStack, how: Mapping[str, int | None]) -> tuple[Callable[..., Trainer], bool]:
    """Return what makes the trainer, and whether this process is the one that prints and writes."""
    said: dict[str, Any] = {option: value for option, value in how.items() if value is not None}
    if ranks is None:
        for option, value in said.items():
            raise EngineError(f"--{option} {value} says how ranks share a step; --ranks says how many there are")
        return Trainer, True
    trained_by = partial(RankedTrainer, **{"zero": 0, **said}, ranks=ranks)
    if not launched():
        return trained_by, True
    ends.enter_context(ending_together())
    return trained_by, rank_here() == 0


@contextmanager
def _batches(*, quiet: bool) -> Iterator[OnBatch | None]:
    """Show epochs, batches and the loss; None where no terminal shows them."""
    with bar(quiet=quiet) as shown:
        if shown is None:
            yield None
            return
        task = shown.add_task("", total=1)

        def show(progress: Batch) -> None:
            part = "train" if progress.training else "validate"
            text = f"epoch {progress.epoch + 1}/{progress.epochs} {part} loss {progress.result.loss:.4g}"
            shown.update(task, description=text, completed=progress.batch, total=progress.batches)

        yield show


def _line(number: int, epochs: int, epoch: Epoch) -> str:
    parts = [f"epoch {number + 1:>{len(str(epochs))}}/{epochs}"]
    for name, result in (("train", epoch.training), ("val", epoch.validation)):
        if result.losses:
            accuracy = f"  accuracy {100 * result.accuracy:.2f} %" if result.rows else ""
            error = f" ± {result.loss_error:.2g}" if len(result.losses) > 1 else ""
            parts.append(f"{name} loss {result.loss:.5g}{error}{accuracy}")
    return "   ".join(parts)


def _memory(fitted: Fitted) -> Iterator[str]:
    """Yield what the largest program holds at its fullest step by category, predicted and
    measured; nothing where no step was made.
    """
    if not fitted.memory_records:
        return
    found = max(fitted.memory_records.values(), key=lambda one: sum(at_fullest(one["predicted"]).values()))
    taken = in_bytes(found["taken"])
    yield f"live at the fullest step of {found['program']}; the run took {taken} with gaps and padding:"
    for which, live in (("predicted", found["predicted"]), ("measured", found["measured"])):
        parts = ", ".join(f"{name} {in_bytes(nbytes)}" for name, nbytes in at_fullest(live).items())
        yield f"  {which}: {parts}"


def _history(fitted: Fitted) -> dict[str, Any]:
    return {
        "steps": fitted.steps,
        "plans": fitted.plans,
        "peak_bytes": fitted.peak_bytes,
        "memory": dict(fitted.memory_records),
        "epochs": [
            {"training": dict(epoch.training.figures()), "validation": dict(epoch.validation.figures())}
            for epoch in fitted.history
        ],
        "evaluations": [{"step": step, **found.figures()} for step, found in fitted.evaluations],
    }


def _write(folder: Path, fitted: Fitted, history: dict[str, Any], exported: Mapping[str, Content]) -> None:
    from safetensors.numpy import save

    rows = [
        f"{number},{part},{batch},{loss!r}"
        for number, epoch in enumerate(fitted.history, 1)
        for part, result in (("training", epoch.training), ("validation", epoch.validation))
        for batch, loss in enumerate(result.losses, 1)
    ]
    files: dict[str, Content] = {
        "weights.safetensors": save(dict(fitted.weights)),
        "losses.csv": ("\n".join(["epoch,part,batch,loss", *rows]) + "\n").encode(),
        "history.json": (json.dumps(history, indent=1) + "\n").encode(),
    }
    if fitted.averages:
        files["averages.safetensors"] = save(dict(fitted.averages))
    replace_files(folder, {**files, **exported})
