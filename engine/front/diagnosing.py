"""A model of one's own, diagnosed: the same question that `allocsim diagnose my_module:net` asks.

    found = engine.diagnose(net, {"data": points, "labels": classes}, allocator="mine:plan")
    found.verdict.sound, found.verdict.text, found.modes["default"].loss, found.memory

What answers is the service `diagnose_model` (`allocsim.plugins`), which the package of the
scenarios brings: this module knows none of it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allocsim.errors import EngineError
from allocsim.plugins import service
from engine.models.trainable import Model


def diagnose(
    model: Model,
    data: Any = None,
    *,
    loss: str = "cross_entropy",
    optimizer: str = "sgd",
    hyper: Mapping[str, float] | None = None,
    steps: int = 5,
    allocator: str = "ggml",
    online: str | None = None,
    modes: Sequence[str] = (),
    pin_leafs: bool = False,
    threads: int = 1,
    out: str | Path | None = None,
    **defects: Any,
) -> Any:
    """Train a model three ways (default, pinned, reference), ask every detector, reach a verdict.

    Args:
        model: of `engine.model`, of the graph API, or built in.
        data: one batch, as columns by name or a dataset; the example of the model by default.
        loss: a name of `engine.training.losses.LOSSES`.
        optimizer: a name of `engine.training.optimizers.OPTIMIZERS`.
        hyper: hyper-parameters that differ from the optimizer's defaults.
        steps: of training.
        allocator: the planner under test, sound or not: a name or `package.module:function`.
        online: an allocator that gives out memory while the steps run, as `allocsim fuzz --online`
            names it; in place of `allocator`.
        modes: further modes to compare with the reference, as of `allocsim repro run --modes`.
        pin_leafs: whether the pinned run pins inputs too.
        threads: of matrix products.
        out: folder of a report, with page, pictures and evidence.
        defects: planted on purpose, as `repro.trial` takes them.

    Returns:
        `repro.run.EngineResult`: `verdict`, `evidence` (with the cure), `modes`, `memory`
        (predicted and measured, by category), `as_json()`.

    Raises:
        EngineError: no model or no batch, or they do not fit together.
        UnknownNameError: no such loss, optimizer or planner.
        NotInstalledError: the package of the scenarios is not there.
    """
    if not isinstance(model, Model):
        raise EngineError(f"{type(model).__name__} given where a model is needed; engine.model(...) makes one")
    if data is None and not model.example:
        raise EngineError(f"model {model.name!r} has no example batch; give one: diagnose(model, data)")
    return service("diagnose_model")(
        model,
        data,
        loss=loss,
        optimizer=optimizer,
        hyper=hyper,
        steps=steps,
        allocator=allocator,
        online=online,
        modes=tuple(modes),
        pin_leafs=pin_leafs,
        threads=threads,
        out=out,
        **defects,
    )
