"""Random models compiled by TorchInductor for the CPU, for `random_models.py`.

    python benchmarks/inductor_models.py FOLDER SEED ...

For each seed: a model is drawn (products, softmax, norms, views, slices, concatenations, writes in place; half of them with a backward pass, of the
others three of four change their inputs), compiled, three of five with a switch of memory planning changed, and run on the same numbers as eagerly. Its wrappers go to FOLDER/SEED/graphN.py, and row.json beside them says how far the numbers
are apart: `apart` of the eager ones, `reuse` of those compiled with `allow_buffer_reuse` and `inplace_buffers` off where `apart` is far, or where
SEED is written with a `!`. A seed is printed when it is done. Needs torch and a C++ compiler.
"""

import random
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from each_seed import main
from torch._inductor import config
from torch._inductor.utils import run_and_get_code

N = 12
FAR = 1e-3
"""Of the largest element: more than float32 loses in such chains of operations."""

Step = Callable[[list[torch.Tensor]], torch.Tensor]


def view_and_write(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Write a part of a copy in place, through a view."""
    made = a.clone()
    made[2:5].mul_(b[0])
    return made


DEEDS: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (
    lambda a, b: a + b,
    lambda a, b: a * b.sigmoid(),
    lambda a, b: a @ b,
    lambda a, _: torch.softmax(a, -1),
    lambda a, _: a.t().contiguous(),
    lambda a, _: a.t(),
    lambda a, b: torch.cat([a[: N // 2], b[N // 2 :]]),
    lambda a, _: torch.nn.functional.layer_norm(a, (N,)),
    lambda a, b: torch.where(a > 0, a, b),
    lambda a, _: a.sum(0).expand(N, N),
    lambda a, b: (a.reshape(2, N // 2, N) @ b).reshape(N, N),
    lambda a, _: a.clamp(-1, 1).flip(0),
    view_and_write,
    lambda a, b: torch.roll(a, 1, 0) - b.amax(-1, keepdim=True),
)


WRITES: tuple[Callable[[torch.Tensor, torch.Tensor], object], ...] = (
    lambda given, a: given.add_(a),
    lambda given, a: given[2:5].mul_(a[0] * 0.5),
    lambda given, a: given.copy_(a.t() * 0.5),
    lambda given, _: given.mul_(0.5),
)
"""What is done to an input by a value."""


def drawn(seed: int) -> tuple[Step, list[torch.Tensor], bool]:
    """Return a model, its inputs, and whether its gradients are asked for."""
    rng = random.Random(seed)  # noqa: S311 - cases, not secrets
    backward = rng.random() < 0.5
    kept = 3
    steps = []
    for _ in range(rng.randint(4, 16)):
        steps.append((rng.randrange(len(DEEDS)), rng.randrange(kept), rng.randrange(kept)))
        kept += 1
    shown = sorted(rng.sample(range(kept), 2))
    rng = random.Random(seed + 2_000_003)  # noqa: S311 - the draws above stay what they were
    writes = range(0 if backward else rng.randrange(4))
    wrote = {rng.randrange(len(steps)): (rng.randrange(3), rng.choice(WRITES)) for _ in writes}

    def step(given: list[torch.Tensor]) -> torch.Tensor:
        values = list(given)
        for number, (deed, a, b) in enumerate(steps):
            values.append(DEEDS[deed](values[a], values[b]))
            if number in wrote:
                place, write = wrote[number]
                write(values[place], values[-1])
        return torch.stack([torch.tanh(values[-1]), *(torch.tanh(values[place]) for place in shown)])

    torch.manual_seed(seed)
    return step, [torch.randn(N, N).requires_grad_(backward) for _ in range(3)], backward


def results(step: Step, given: list[torch.Tensor], *, backward: bool) -> list[torch.Tensor]:
    """Return outputs, gradients, and what became of the inputs."""
    inputs = [row.detach().clone().requires_grad_(row.requires_grad) for row in given]
    made = step(inputs)
    if not backward:
        return [made.detach(), *inputs]
    (made * made).sum().backward()
    return [made.detach(), *(row.grad for row in inputs if row.grad is not None)]


def apart(ones: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    """Return the largest difference, relative to the largest element."""
    if len(ones) != len(others):
        return float("inf")
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-6)) for a, b in zip(ones, others, strict=True))


def switches(seed: int) -> dict[str, bool | str]:
    """Return how the compiler of a seed plans memory: as it does by default in two of five, else with one thing changed."""
    pool: dict[str, bool | str] = {"memory_planning": True, "memory_pool": "intermediates"}
    rng = random.Random(seed + 1_000_003)  # noqa: S311 - models, no secrets
    return rng.choice([{}, {}, {"inplace_buffers": False}, {"allow_buffer_reuse": False}, pool])


def measured(seed: int, folder: Path, *, doubt: bool) -> dict[str, object]:
    """Return the row of a seed; its wrappers go to the folder."""
    step, given, backward = drawn(seed)
    wanted = results(step, given, backward=backward)
    torch.compiler.reset()
    with config.patch(switches(seed)):
        found, codes = run_and_get_code(
            lambda: results(torch.compile(step, fullgraph=True, dynamic=False), given, backward=backward)
        )
    for number, code in enumerate(codes):
        (folder / f"graph{number}.py").write_text(code, encoding="utf-8")
    far = apart(found, wanted)
    row = {"seed": seed, "version": version("torch"), "backward": backward, "graphs": len(codes), "apart": far} | {
        "switches": switches(seed)
    }
    if not doubt and far <= FAR:
        return row
    torch.compiler.reset()
    with config.patch(allow_buffer_reuse=False, inplace_buffers=False):
        alone = results(torch.compile(step, fullgraph=True, dynamic=False), given, backward=backward)
    return row | {"reuse": apart(found, alone)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(measured)
