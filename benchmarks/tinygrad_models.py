"""Random models in tinygrad, for `random_models.py`.

    python benchmarks/tinygrad_models.py FOLDER SEED ...

For each seed a model is drawn: sums, products, softmax, transposes, reshapes, joins, slices, shifts, whether a value is made contiguous (a buffer of
its own), a weight that some write by `assign`, and the switches: with `TinyJit` or without. It is run four times, with other inputs each time, as
planned; and in float64 by NumPy. Where the numbers are far apart, or SEED is written with a `!`, it is run too without the memory planner
(`NO_MEMORY_PLANNER`). FOLDER/SEED/schedules.json has what the planner gave back, row.json beside it how far the numbers are apart (`planned`,
`without`; of each run the worst output, relative to its largest element). A seed is printed when it is done. Needs tinygrad; on its device `PYTHON`
kernels are interpreted.
"""

import json
import os
import random
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("DEV", "PYTHON")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "allocsim" / "systems" / "tinygrad"))

import numpy as np
from each_seed import main
from record_tinygrad import recorded
from tinygrad import Tensor, TinyJit
from tinygrad.helpers import Context

N = 6
RUNS = 4
FAR = 1e-3
"""Of the largest element: more than float32 loses in such chains of operations."""

Step = tuple[str, int, int, bool]
"""Deed, two values by place, whether the result is made contiguous."""


def joined(a: Any, b: Any) -> Any:
    """Join the upper half of one and the lower half of the other."""
    parts = a[: N // 2], b[N // 2 :]
    return Tensor.cat(*parts) if isinstance(a, Tensor) else np.concatenate(parts)


def exponential(a: Any) -> Any:
    """Raise e to it; bounded, so that chains stay finite."""
    small = a / (1 + (a * a).max())
    return small.exp() if isinstance(a, Tensor) else np.exp(small)


DEEDS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "product": lambda a, b: a @ b / N,
    "times": lambda a, b: a * b / (1 + (b * b).max()),
    "turned": lambda a, _: a.T,
    "folded": lambda a, b: (a.reshape(2, N // 2, N) + b[0]).reshape(N, N),
    "flat": lambda a, _: (a.reshape(N * N) * 0.5).reshape(N, N),
    "joined": joined,
    "exponential": lambda a, _: exponential(a),
    "share": lambda a, _: exponential(a) / exponential(a).sum(),
    "largest": lambda a, b: a - b.max(0),
    "row": lambda a, b: a[1] + b,
}


def drawn(seed: int) -> tuple[list[Step], list[int], dict[str, bool], list[list[Any]]]:
    """Return steps over two inputs and a weight, what is shown, switches, and inputs of each run."""
    rng = random.Random(seed)  # noqa: S311 - cases, not secrets
    count = rng.randint(3, 12)
    steps = []
    for kept in range(3, 3 + count):
        low = max(0, kept - 5) if rng.random() < 0.7 else 0
        steps.append(
            (rng.choice(sorted(DEEDS)), rng.randrange(low, kept), rng.randrange(low, kept), rng.random() < 0.6)
        )
    shown = [count + 2, *rng.sample(range(3, count + 2), min(rng.randint(0, 2), count - 1))]
    switches = {"jit": rng.random() < 0.5, "assigns": rng.random() < 0.4}
    numbers = np.random.default_rng(seed)
    return steps, shown, switches, [[numbers.standard_normal((N, N)) for _ in range(2)] for _ in range(RUNS)]


def computed(steps: Sequence[Step], values: Sequence[Any]) -> list[Any]:
    """Return the values and what the steps add to them."""
    values = list(values)
    for deed, a, b, apart in steps:
        made = DEEDS[deed](values[a], values[b])
        values.append(made.contiguous() if apart and isinstance(made, Tensor) else made)
    return values


def ran(seed: int) -> list[list[Any]]:
    """Return the outputs of each run in tinygrad."""
    steps, shown, switches, given = drawn(seed)
    weight = Tensor(np.linspace(-1, 1, N * N).reshape(N, N).astype("f4")).realize()

    def call(*inputs: Tensor) -> tuple[Tensor, ...]:
        values = computed(steps, [*inputs, weight])
        outputs = tuple(values[place].contiguous() for place in shown)
        if switches["assigns"]:
            weight.assign((weight * 0.5 + values[-1] / (1 + (values[-1] * values[-1]).max())).contiguous())
            Tensor.realize(*outputs, weight)
        else:
            Tensor.realize(*outputs)
        return outputs

    step = TinyJit(call) if switches["jit"] else call
    return [[row.numpy().copy() for row in step(*(Tensor(x.astype("f4")).realize() for x in run))] for run in given]


def right(seed: int) -> list[list[Any]]:
    """Return the outputs of each run by NumPy."""
    steps, shown, switches, given = drawn(seed)
    weight = np.linspace(-1, 1, N * N).reshape(N, N)
    found = []
    for run in given:
        values = computed(steps, [*run, weight])
        found.append([values[place] for place in shown])
        if switches["assigns"]:
            weight = weight * 0.5 + values[-1] / (1 + (values[-1] * values[-1]).max())
    return found


def apart(ones: Sequence[Sequence[Any]], others: Sequence[Sequence[Any]]) -> list[float]:
    """Return for each run the largest difference, relative to the largest element."""
    return [
        max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-6)) for a, b in zip(mine, theirs, strict=True))
        for mine, theirs in zip(ones, others, strict=True)
    ]


def measured(seed: int, folder: Path, *, doubt: bool) -> dict[str, Any]:
    """Return the row of a seed; its schedules go to the folder."""
    wanted = right(seed)
    with recorded() as schedules:
        found = ran(seed)
    (folder / "schedules.json").write_text(json.dumps(schedules), encoding="utf-8")
    row = {
        "seed": seed,
        "version": version("tinygrad"),
        "switches": drawn(seed)[2],
        "planned": apart(found, wanted),
    }
    if not doubt and max(row["planned"]) <= FAR:
        return row
    with Context(NO_MEMORY_PLANNER=1):
        return row | {"without": apart(ran(seed), wanted)}


if __name__ == "__main__":
    main(measured)
