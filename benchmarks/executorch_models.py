"""Random models in ExecuTorch's runtime, for `random_models.py`.

    python benchmarks/executorch_models.py FOLDER SEED ...

For each seed a model is drawn: products, sums, softmax, norms, views, slices, concatenations, splits, writes into copies, a buffer that is kept
between runs and written, an input that is written, `torch.cond` (nested too) and `map`. So are the switches under which it is lowered
(`SWITCHES`). It is run twice, with other inputs each time, as planned; and as plain Python in float64 and float32. Where the planned numbers are
far from those in float64, or SEED is written with a `!`, it is run too as it is lowered without reuse (`naive`, and no view elided).
FOLDER/SEED/program.pte is the planned program, row.json beside it says the switches, how far numbers are from those in float64 (`planned`, `without`,
`eager` in float32; of each run the worst output, relative to its largest element), and which sides of branches each run took. A seed is printed when
it is done. Needs executorch.
"""

import logging
import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from each_seed import main
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, greedy, naive
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.runtime import Runtime
from torch._higher_order_ops.map import map as torch_map

logging.disable(logging.WARNING)

N = 6
RUNS = 2
FAR = 1e-3
"""Of the largest element: more than float32 loses in such chains of operations."""

SWITCHES: dict[str, tuple[Any, ...]] = {
    "algorithm": ("greedy", "greedy", "greedy", "greedy apart", "naive"),
    "alloc_graph_input": (True, True, False),
    "alloc_graph_output": (True, True, False),
    "remove_view_copy": (True, True, True, False),
    "run_reinplace_pass": (False, True),
    "alignment": (16, 16, 1, 64),
}
"""Switch -> what is drawn; `greedy apart` is greedy without `allow_overlapping_allocations`."""

WITHOUT = dict(zip(SWITCHES, ("naive", True, True, False, False, 16), strict=True))
"""Switches without reuse."""

Tensor = torch.Tensor
Step = tuple[str, tuple[int, ...], Any]
"""Deed, values by place, what else it needs: the steps of its sides, or of its body."""


def written_copy(a: Tensor, b: Tensor) -> Tensor:
    """Write a part of a copy, through a view of it."""
    made = a.clone()
    made[1:4].mul_(b[0])
    return made


def added_to(a: Tensor, b: Tensor) -> Tensor:
    """Add to a copy in place, twice."""
    return a.clone().add_(b).relu_()


DEEDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b,
    "gated": lambda a, b: a * b.sigmoid(),
    "product": lambda a, b: a @ b / N,
    "softmax": lambda a, _: torch.softmax(a, -1),
    "norm": lambda a, _: torch.nn.functional.layer_norm(a, (N,)),
    "turned": lambda a, _: a.t(),
    "folded": lambda a, b: (a.reshape(2, N // 2, N) + b[0]).reshape(N, N),
    "flat": lambda a, _: a.reshape(N * N).tanh().reshape(N, N),
    "joined": lambda a, b: torch.cat([a[: N // 2], b[N // 2 :]]),
    "split": lambda a, b: torch.cat(list(reversed(a.split(2, 1))), 1) - b,
    "chosen": lambda a, b: torch.where(a > 0, a, b),
    "spread": lambda a, _: a.sum(0).expand(N, N),
    "largest": lambda a, b: a - b.amax(-1, keepdim=True),
    "relu": lambda a, _: a.relu(),
    "negative": lambda a, _: -a,
    "written copy": written_copy,
    "added to": added_to,
    "rolled": lambda a, _: torch.roll(a, 1, 0),
}


class Drawn(torch.nn.Module):
    """A model: steps over three inputs and a buffer, some of the values shown."""

    def __init__(self, steps: Sequence[Step], shown: Sequence[int], *, kept: bool, writes_input: bool) -> None:
        super().__init__()
        self.steps, self.shown, self.kept, self.writes_input = steps, shown, kept, writes_input
        self.register_buffer("state", torch.arange(float(N * N)).reshape(N, N) / (N * N) - 0.5)
        self.sides: list[bool] | None = None
        """Where the model runs as plain Python: the sides of branches, as they are taken."""

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Run the steps; last, write the buffer and an input where the model does."""
        values = self.run(self.steps, [*given, self.state])
        made = tuple(values[place] for place in self.shown)
        if self.kept:
            self.state.copy_(torch.tanh(values[-1] + self.state))
        if self.writes_input:
            given[0].add_(values[-1].tanh())
        return made

    def run(self, steps: Sequence[Step], values: Sequence[Tensor]) -> list[Tensor]:
        """Return the values and what the steps add to them."""
        values = list(values)
        for deed, places, inner in steps:
            at = [values[place] for place in places]
            if deed == "cond":
                values.append(self.branch(at, inner))
            elif deed == "map":
                values.append(self.mapped(at, inner))
            else:
                values.append(DEEDS[deed](*at))
        return values

    def branch(self, at: Sequence[Tensor], inner: Any) -> Tensor:
        """Run one of two lists of steps, as the sum of a value says."""
        asked = at[0].sum() > 0
        if self.sides is None:
            return torch.cond(asked, *(partial(self.inside, steps) for steps in inner), tuple(at))
        side = bool(asked)
        self.sides.append(side)
        return self.inside(inner[not side], *at)

    def mapped(self, at: Sequence[Tensor], inner: Any) -> Tensor:
        """Run a step on each row of a value."""
        if self.sides is None:
            return torch_map(lambda row, other: DEEDS[inner](row, other).clone(), at[0], at[1][0].clone())
        return torch.stack([DEEDS[inner](row, at[1][0]) for row in at[0]])

    def inside(self, steps: Sequence[Step], *at: Tensor) -> Tensor:
        """Run the steps of a side; what it returns is no operand."""
        return (self.run(steps, at)[-1] * 1.5).contiguous()


def steps_of(rng: random.Random, kept: int, count: int, *, depth: int, branchy: bool) -> list[Step]:
    """Draw steps over `kept` values, and over what they add."""
    found: list[Step] = []
    for _ in range(count):
        pair = max(0, kept - 5) if rng.random() < 0.7 else 0
        places = rng.randrange(pair, kept), rng.randrange(pair, kept)
        chance = rng.random()
        if branchy and depth < 2 and chance < 0.2:
            inner = tuple(steps_of(rng, 2, rng.randint(1, 3), depth=depth + 1, branchy=branchy) for _ in range(2))
            found.append(("cond", places, inner))
        elif branchy and depth == 0 and chance < 0.25:
            found.append(("map", places, rng.choice(("add", "gated", "chosen", "relu"))))
        else:
            found.append((rng.choice(sorted(DEEDS)), places, None))
        kept += 1
    return found


def needed(steps: Sequence[Step], shown: Sequence[int], given: int) -> tuple[list[Step], list[int]]:
    """Return the steps that what is shown comes from, renumbered: so the exporter leaves no branch out."""
    wanted = {place for place in shown if place >= given}
    for at in reversed(range(len(steps))):
        if at + given in wanted:
            wanted |= set(steps[at][1])
    kept = [at for at in range(len(steps)) if at + given in wanted]
    number = {place: place for place in range(given)} | {at + given: new + given for new, at in enumerate(kept)}
    rows = [
        (deed, tuple(number[p] for p in places), tuple(side_of(side) for side in inner) if deed == "cond" else inner)
        for deed, places, inner in (steps[at] for at in kept)
    ]
    return rows, [number[place] for place in shown]


def side_of(steps: Sequence[Step]) -> list[Step]:
    """Return the steps of a side that its last value comes from."""
    return needed(steps, [len(steps) + 1], 2)[0]


def drawn(seed: int) -> tuple[Callable[[], Drawn], list[list[Tensor]], dict[str, Any]]:
    """Return how a model is made, its inputs for each run, and its switches."""
    rng = random.Random(seed)  # noqa: S311 - cases, not secrets
    switches = {name: rng.choice(choices) for name, choices in SWITCHES.items()}
    count = rng.randint(3, 14)
    steps = steps_of(rng, 4, count, depth=0, branchy=rng.random() < 0.3)
    shown = [count + 3, *rng.sample(range(4, count + 3), min(rng.randint(0, 2), count - 1))]
    rows, places = needed(steps, shown, 4)
    kept, writes_input = rng.random() < 0.3, rng.random() < 0.15
    torch.manual_seed(seed)
    given = [[torch.randn(N, N) for _ in range(3)] for _ in range(RUNS)]
    return partial(Drawn, rows, places, kept=kept, writes_input=writes_input), given, switches


def lowered(model: Drawn, given: Sequence[Tensor], switches: dict[str, Any]) -> Any:
    """Return the manager of the program that the switches ask for."""
    algorithm = {
        "greedy": greedy, "greedy apart": partial(greedy, allow_overlapping_allocations=False), "naive": naive,
    }[switches["algorithm"]]  # fmt: skip
    planning = MemoryPlanningPass(
        memory_planning_algo=MemoryPlanningAlgorithmSuite(algo_list=[algorithm]),
        **{name: switches[name] for name in switches if name.startswith("al") and name != "algorithm"},
    )
    config = ExecutorchBackendConfig(
        passes=[InitializedMutableBufferPass(["state"])],
        memory_planning_pass=planning,
        remove_view_copy=switches["remove_view_copy"],
        run_reinplace_pass=switches["run_reinplace_pass"],
    )
    torch.compiler.reset()
    exported = torch.export.export(model, tuple(row.clone() for row in given))
    return to_edge(exported).to_executorch(config)


def ran(program: bytes, given: Sequence[Sequence[Tensor]], shown: int) -> list[list[Tensor]]:
    """Return the outputs of each run of one method; what comes before them is the input that was written."""
    method = Runtime.get().load_program(program).load_method("forward")
    return [[row.clone() for row in method.execute([x.clone() for x in run])][-shown:] for run in given]


def right(model: Drawn, given: Sequence[Sequence[Tensor]], dtype: torch.dtype) -> tuple[list[list[Tensor]], Any]:
    """Return the outputs as plain Python, and the sides that each run took."""
    model = model.to(dtype)
    found, taken = [], []
    for run in given:
        model.sides = []
        found.append([row.clone() for row in model(*(x.clone().to(dtype) for x in run))])
        taken.append(model.sides)
    return found, taken


def apart(ones: Sequence[Sequence[Tensor]], others: Sequence[Sequence[Tensor]]) -> list[float]:
    """Return for each run the largest difference, relative to the largest element."""
    found = []
    for mine, theirs in zip(ones, others, strict=True):
        rows = [
            float((a.double() - b).abs().max() / b.abs().max().clamp(min=1e-6))
            for a, b in zip(mine, theirs, strict=True)
        ]
        found.append(max((1e30 if math.isnan(row) else row for row in rows), default=0.0))
    return found


def measured(seed: int, folder: Path, *, doubt: bool) -> dict[str, Any]:
    """Return the row of a seed; its program goes to the folder."""
    make, given, switches = drawn(seed)
    wanted, taken = right(make(), given, torch.float64)
    single, sides = right(make(), given, torch.float32)
    planned, shown = lowered(make(), given[0], switches).buffer, len(wanted[0])
    (folder / "program.pte").write_bytes(planned)
    row = {
        "seed": seed,
        "version": version("executorch"),
        "switches": switches,
        "sides": taken,
        "rounded": sides != taken,
        "eager": apart(single, wanted),
        "planned": apart(ran(planned, given, shown), wanted),
    }
    if not doubt and max(row["planned"]) <= FAR:
        return row
    without = lowered(make(), given[0], WITHOUT).buffer
    return row | {"without": apart(ran(without, given, shown), wanted)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(measured)
