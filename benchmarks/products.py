"""Products of matrices by the engine's tiles against numpy's BLAS, at the shapes of the full model, T = 64 and 256, one thread.

    python benchmarks/products.py [--rounds N] [--grid] [--lanes 8] [--out FILE]

Weights of 128 MiB in all are gone through in turn, as a training step does, so that none waits in a cache. Tiles and BLAS take turns; the figure is
the median over rounds of the CPU time of the tiles / that of BLAS. `chosen` is what the engine takes. `--lanes 8` has tiles and BLAS use
vectors of 256 bits, as on a processor that has no wider ones. `--grid` measures tiles and BLAS over many sizes instead (into products_grid.json), and says where the engine's choice is
slower than the other by more than a tenth: what `engine.kernels.tiles.MEASURED` was read off.
"""

import os
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from harness import Found, cpu, run, write

from allocsim import processor

NARROW = sys.argv[sys.argv.index("--lanes") + 1] == "8" if "--lanes" in sys.argv else False
if NARROW:
    os.environ["OPENBLAS_CORETYPE"] = "Haswell"
    processor.flags = lambda *_: frozenset({"avx2", "fma"})
processor.prefer(os.environ)  # before numpy loads its BLAS

import numpy as np  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from engine.kernels import tiles  # noqa: E402
from engine.kernels.binding import Array, scratch  # noqa: E402
from engine.kernels.vector_width import lanes as width  # noqa: E402
from engine.kernels.vector_width import wide  # noqa: E402

D, F, V, R, H, K, S = 576, 1536, 49152, 8, 9, 3, 64
"""Hidden, feed-forward, vocabulary, rank, heads, heads of keys, size of a head."""


def shapes(t: int) -> dict[str, tuple[tuple[int, ...], tuple[int, ...], str]]:
    """Return for each product of a step the shapes of left and right, and which of them lie turned ("l", "r")."""
    weights = {"hidden": (D, D), "keys": (D, K * S), "up": (D, F), "down": (F, D), "head": (D, V)}
    forward = {f"{name}, forward": ((t, k), (k, n), "r") for name, (k, n) in weights.items()}
    backward = {f"{name}, backward": ((t, n), (n, k), "") for name, (k, n) in weights.items()}
    heads = {
        "scores": ((K, H // K, t, S), (K, 1, S, t), "r"),
        "values": ((K, H // K, t, t), (K, 1, t, S), "r"),
        "scores, backward": ((K, H // K, t, t), (K, 1, t, S), ""),
        "keys of a head, backward": ((H, t, t), (H, t, S), "l"),
        "adapter, backward": ((R, t), (t, D), "l"),
        "weight, backward": ((D, t), (t, F), "l"),
    }
    return forward | backward | heads


def matrices(shape: tuple[int, ...], turned: bool, count: int) -> list[Array]:  # noqa: FBT001 - a letter of the table
    """Return `count` random arrays, each beginning with a line; turned: unit stride along the axis before the last."""
    rng, made = np.random.default_rng(0), []
    for _ in range(count):
        array = scratch((*shape[:-2], shape[-1], shape[-2]) if turned else shape, np.dtype(np.float32))
        rng.standard_normal(dtype=np.float32, out=array)
        made.append(array.swapaxes(-1, -2) if turned else array)
    return made


def row_of(left: tuple[int, ...], right: tuple[int, ...], turned: str, rounds: int) -> dict[str, Any]:
    """Return one row: rates of both, and the median of tiles / BLAS."""
    size = int(np.prod(right)) * 4
    (x,), ys = matrices(left, "l" in turned, 1), matrices(right, "r" in turned, max(2, min(40, 2**27 // size)))
    out = scratch((*left[:-1], right[-1]), np.dtype(np.float32))
    work = 2 * out.size * left[-1] * len(ys) / 1e9
    times: dict[str, list[float]] = {"tiles": [], "blas": []}
    calls = {"tiles": [tiles.call(x, y, out) for y in ys], "blas": [(np.matmul, (x, y, out)) for y in ys]}
    for _ in range(rounds + 1):  # the first only warms
        for name, todo in calls.items():
            times[name].append(cpu(lambda todo=todo: [function(*args) for function, args in todo])[0])
    pairs = list(zip(times["tiles"][1:], times["blas"][1:], strict=True))
    return {
        "left": list(left), "right": list(right), "turned": turned,
        "chosen": "tiles" if tiles.chosen(x, ys[0], out) else "blas",
        "tiles_gflops": work / median(a for a, _ in pairs), "blas_gflops": work / median(b for _, b in pairs),
        "ratio": median(a / b for a, b in pairs),
    }  # fmt: skip


GRID = {
    "m": (8, 9, 12, 16, 20, 24, 33, 48, 64, 100, 128, 192, 256, 384, 512, 700, 1024),
    "k": (16, 64, 192, 576, 1536),
    "n": (48, 64, 80, 101, 192, 256, 300, 576, 1536),
}


def of_grid(rounds: int) -> dict[str, Any]:
    """Measure products of all sizes of the grid that are no larger than 1e9; say where the choice is slow."""
    found: dict[str, Any] = {"lanes": width(), "classes": {}}
    for turned in ("", "r"):
        sizes = [(m, k, n) for m, k, n in product(*GRID.values()) if m * k * n < 1e9]
        rows = [{"size": [m, k, n], **row_of((m, k), (k, n), turned, rounds)} for m, k, n in sizes]
        cost = [row["ratio"] if row["chosen"] == "tiles" else 1 / row["ratio"] for row in rows]
        slow = sorted((one for one in zip(cost, rows, strict=True) if one[0] > 1.1), key=lambda one: -one[0])
        found["classes"]["turned" if turned else "plain"] = {
            "products": len(rows),
            "by_tiles": sum(row["chosen"] == "tiles" for row in rows),
            "chosen_against_blas": geometric_mean(row["ratio"] if row["chosen"] == "tiles" else 1.0 for row in rows),
            "slower_by_a_tenth": {name: sum(row["chosen"] == name for _, row in slow) for name in ("tiles", "blas")},
            "worst_of_tiles": [[*row["size"], round(one, 2)] for one, row in slow if row["chosen"] == "tiles"][:8],
        }
    return found


def measure(*, rounds: int = 7, grid: bool = False, lanes: str = "", out: Path) -> Iterator[Found]:  # noqa: ARG001 - as said
    """Measure the shapes of a step, or the grid; `lanes` is looked at where numpy is loaded."""
    with threadpool_limits(1, user_api="blas"):
        if grid:
            write(out.with_name(f"products_grid{'_8' if NARROW else ''}.json"), of_grid(rounds))
            return
        rows = []
        for t in (64, 256):
            for name, (left, right, turned) in shapes(t).items():
                rows.append({"t": t, "what": name, **row_of(left, right, turned, rounds)})
                print(rows[-1], flush=True)
    overall = {t: geometric_mean(row["ratio"] for row in rows if row["t"] == t) for t in (64, 256)}
    yield {"wide": wide(), "geometric_mean": overall, "rows": rows}


if __name__ == "__main__":
    run(measure, known={"lanes": ("", "8")})
