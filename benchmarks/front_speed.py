"""Attention and a stack of convolutions typed at the front, beside PyTorch: CPU time and wall time, forward alone and with backward.

    BENCH_PEERS=python-with-torch python benchmarks/front_speed.py [--rounds N] [--threads N ...] [--out FILE]

Attention over [8, 8, 256, 64]; three convolutions of 3 x 3 (16, 32, 32 filters, padding 1), each with a relu, over [8, 3, 64, 64]; float32. Both sides run
in one process and take turns, so that both meet the same company; `ratio` is of the smallest time of each, the front's over PyTorch's, by the process's
CPU time and by the clock. BLAS has as many threads as PyTorch. Before each turn there is a pause, since threads of the other side still wait for more
work on a processor that this one may use.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

PAUSE = 0.03
"""Seconds before each turn."""
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not


def sides(threads: int) -> dict[str, dict[str, object]]:
    """Return case -> side -> a function that runs it once."""
    import torch  # noqa: PLC0415 - only in the interpreter that has it

    from engine import tensor  # noqa: PLC0415
    from engine.front import functions as fn  # noqa: PLC0415

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
            **{
                f"{side}_{what}_ms": round(least[side][i], 2)
                for side in least
                for i, what in enumerate(("cpu", "wall"))
            },
            **{
                f"ratio_{what}": round(least["front"][i] / least["pytorch"][i], 2)
                for i, what in enumerate(("cpu", "wall"))
            },
        }
    return found


def main() -> int:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "front_speed.json")
    parser.add_argument("--inner", type=int, help="Print the figures of so many threads, in this interpreter.")
    asked = parser.parse_args()
    if asked.inner:
        print(json.dumps(figures(asked.inner, asked.rounds)))
        return 0
    found = {}
    for count in asked.threads:
        words = [
            os.environ.get("BENCH_PEERS", sys.executable),
            __file__,
            "--inner",
            str(count),
            "--rounds",
            str(asked.rounds),
        ]
        limited = {**os.environ, "OPENBLAS_NUM_THREADS": str(count), "OMP_NUM_THREADS": str(count)}
        said = subprocess.run(words, env=limited, check=True, stdout=subprocess.PIPE, text=True).stdout
        found[f"threads {count}"] = json.loads(said.splitlines()[-1])
    asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
