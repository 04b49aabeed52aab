"""Single kernels at the shapes of the full model: nanoseconds for each element of the result, apart and over the first declared operand.

    python benchmarks/kernels.py [--threads N] [--out FILE]

The median of many calls, wall time, on warm memory: for finding out where time outside the matrix products goes, not for comparing machines.
"""

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from harness import Found, run

import numpy as np
from threadpoolctl import threadpool_limits

from engine.kernels import KERNELS

T, D, F, H, K, V, R = 64, 576, 1536, 9, 3, 49152, 8
S = D // H
SHAPES: dict[str, list[tuple[dict[str, Any], list[tuple[int, ...]], tuple[int, ...]]]] = {
    "mul_mat": [
        ({}, [(D, D), (T, D)], (T, D)), ({}, [(F, D), (T, D)], (T, F)), ({}, [(D, F), (T, F)], (T, D)),
        ({}, [(V, D), (T, D)], (T, V)), ({}, [(K, T, S), (H, T, S)], (H, T, T)), ({}, [(R, D), (T, D)], (T, R)),
    ],
    "out_prod": [({}, [(D, F), (D, T)], (T, F)), ({}, [(V, D), (V, T)], (T, D)), ({}, [(T, D), (T, R)], (R, D))],
    "rms_norm": [({"eps": 1e-5}, [(T, D)], (T, D))],
    "rms_norm_back": [({"eps": 1e-5}, [(T, D), (T, D)], (T, D))],
    "soft_max": [({"scale": 0.125}, [(H, T, T), (T, T)], (H, T, T))],
    "soft_max_back": [({"scale": 0.125}, [(H, T, T), (H, T, T)], (H, T, T))],
    "rope": [({"base": 1e5, "dims": S, "mode": mode}, [(T, H, S), (T,)], (T, H, S)) for mode in ("normal", "neox")],
    "swiglu": [({}, [(T, F), (T, F)], (T, F))],
    "silu": [({}, [(T, F)], (T, F))],
    "silu_back": [({}, [(T, F), (T, F)], (T, F))],
    "add": [({}, [(T, D), (T, D)], (T, D))],
    "mul": [({}, [(T, D), (D,)], (T, D)), ({}, [(T, F), (T, F)], (T, F))],
    "scale": [({"s": 2.0}, [(T, D)], (T, D))],
    "cross_entropy_loss": [({}, [(T, V), (T, V)], (1,))],
    "cross_entropy_loss_back": [({}, [(1,), (T, V), (T, V)], (T, V))],
    "opt_step_sgd": [({}, [(R, D), (R, D), (2,)], (R, D))],
}  # fmt: skip
"""kind -> (params, shapes of the operands, shape of the result)."""


def measure(*, threads: int = 1) -> Iterator[Found]:
    """Time every kernel."""
    rows = []
    with threadpool_limits(threads, user_api="blas"):
        for kind, calls in SHAPES.items():
            for params, shapes, result in calls:
                rows.append(timed(kind, params, shapes, result))
                yield {"kernels": rows}


def timed(kind: str, params: dict[str, Any], shapes: list[tuple[int, ...]], result: tuple[int, ...]) -> dict[str, Any]:
    """Return one row: kind, shapes, microseconds a call, and GFLOP/s of a product or ns an element of anything else."""
    rng = np.random.default_rng(0)
    indexed = kind.startswith("rope")
    operands = tuple(
        np.arange(n[0], dtype=np.int32) if indexed and i == 1 else rng.standard_normal(n, dtype=np.float32)
        for i, n in enumerate(shapes)
    )
    kernel = next(iter(KERNELS[kind].values()))
    out = np.zeros(result, np.float32)
    apart = seconds(kernel.bind(params, operands, (out,)))
    row: dict[str, Any] = {"kind": kind, "operands": [list(n) for n in shapes], "us": apart * 1e6}
    if kind in {"mul_mat", "out_prod"}:
        inner = shapes[0][-1] if kind == "mul_mat" else shapes[0][-2]
        row["gflops"] = 2 * out.size * inner / apart / 1e9
        return row
    row["ns_element"] = apart * 1e9 / max(out.size, operands[0].size)
    if kernel.in_place and shapes[0] == result:
        over = operands[0].copy()
        bound = kernel.bind(params, (over, *operands[1:]), (over,))
        row["over_us"] = seconds(bound, lambda: np.copyto(over, operands[0])) * 1e6
    return row


def seconds(call: tuple[Any, tuple[Any, ...]], refill: Callable[[], None] = lambda: None) -> float:
    """Return the median time of a call, not counting `refill` before it; about a fifth of a second is spent on finding it."""
    function, args = call
    times: list[float] = []
    stop = time.perf_counter() + 0.2
    while len(times) < 5 or time.perf_counter() < stop:
        refill()
        start = time.perf_counter()
        function(*args)
        times.append(time.perf_counter() - start)
    return median(times)


if __name__ == "__main__":
    run(measure)
