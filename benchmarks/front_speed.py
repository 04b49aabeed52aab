"""Attention and a stack of convolutions typed at the front, beside PyTorch: CPU time and wall time, forward alone and with backward.

    BENCH_PEERS=python-with-torch python benchmarks/front_speed.py [--rounds N] [--threads N,...] [--out FILE]

Attention over [8, 8, 256, 64]; three convolutions of 3 x 3 (16, 32, 32 filters, padding 1), each with a relu, over [8, 3, 64, 64]; float32. Both sides run
in one process and take turns, so that both meet the same company; `ratio` is of the smallest time of each, the front's over PyTorch's, by the process's
CPU time and by the clock. BLAS has as many threads as PyTorch. Before each turn there is a pause, since threads of the other side still wait for more
work on a processor that this one may use.
"""

import time

from harness import PEERS, Found, apart, run

import numpy as np

PAUSE = 0.03
"""Seconds before each turn."""


def sides(threads: int) -> dict[str, dict[str, object]]:
    """Return case -> side -> a function that runs it once."""
    import torch

    from engine import tensor
    from engine.front import functions as fn

    torch.set_num_threads(threads)
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    heads, given, images = [normal(8, 8, 256, 64) for _ in range(3)], normal(8, 8, 256, 64), normal(8, 3, 64, 64)
    filters = [0.1 * normal(*shape) for shape in ((16, 3, 3, 3), (32, 16, 3, 3), (32, 32, 3, 3))]
    mine = [tensor(a, requires_grad=True) for a in (*heads, *filters)]
    theirs = [torch.tensor(a, requires_grad=True) for a in (*heads, *filters)]
    picture, image, weights = tensor(images), torch.tensor(images), torch.tensor(given)

    def stack(x: object, leaves: list[object], conv: object) -> object:
        for leaf in leaves[3:]:
            x = conv(x, leaf, padding=1).relu()
        return x

    def cleared() -> None:
        for leaf in (*mine, *theirs):
            leaf.grad = None

    attend, conv = torch.nn.functional.scaled_dot_product_attention, torch.nn.functional.conv2d
    return {
        "attention, forward": {"front": lambda: fn.attention(*mine[:3]), "pytorch": lambda: attend(*theirs[:3])},
        "attention, with backward": {
            "front": lambda: (cleared(), fn.attention(*mine[:3]).backward(given)),
            "pytorch": lambda: (cleared(), attend(*theirs[:3]).backward(weights)),
        },
        "convolutions, forward": {"front": lambda: stack(picture, mine, fn.conv2d), "pytorch": lambda: stack(image, theirs, conv)},
        "convolutions, with backward": {
            "front": lambda: (cleared(), stack(picture, mine, fn.conv2d).sum().backward()),
            "pytorch": lambda: (cleared(), stack(image, theirs, conv).sum().backward()),
        },
    }  # fmt: skip


def figures(threads: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return case -> milliseconds of both sides and their ratios."""
    found = {}
    for case, both in sides(threads).items():
        spent: dict[str, list[tuple[float, float]]] = {side: [] for side in both}
        for _ in range(rounds):
            for side, once in both.items():
                time.sleep(PAUSE)
                wall, cpu = time.perf_counter(), time.process_time()
                once()
                spent[side].append((time.process_time() - cpu, time.perf_counter() - wall))
        least = {side: [min(column) * 1e3 for column in zip(*rows[1:], strict=True)] for side, rows in spent.items()}
        found[case] = {
            **{f"{side}_{what}_ms": round(row[i], 2) for side, row in least.items() for i, what in enumerate(CLOCKS)},
            **{f"ratio_{what}": round(least["front"][i] / least["pytorch"][i], 2) for i, what in enumerate(CLOCKS)},
        }
    return found


CLOCKS = ("cpu", "wall")


def measure(*, rounds: int = 8, threads: tuple[int, ...] = (1, 2)) -> Found:
    """Measure with each number of threads, in the interpreter that has PyTorch."""
    found = {}
    for count in map(str, threads):
        limited = {"OPENBLAS_NUM_THREADS": count, "OMP_NUM_THREADS": count}
        found[f"threads {count}"] = apart(figures, int(count), rounds, python=PEERS, **limited)
    return found


if __name__ == "__main__":
    run(measure)
