"""Backward passes from eight threads by every planner of the shelf: every gradient against the bits of a serial run; what is judged, and when.

    python benchmarks/threads.py [--passes N] [--threads N] [--planners NAME,...] [--seconds S] [--out FILE]

Each of the threads makes `--passes` passes over six small structures with data of their own, and the interpreter switches as often as it can. `wrong` is
the number of passes with another bit. `judged` counts plans that were judged: once for each structure and planner, however often it runs (`kept` passes
judge nothing), so the price of judging in a kept pass is zero. `judging` is the CPU time of judging a structure over that of one kept pass of it.
Planners that are done are not run again; the file is written after each.
"""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import Found, kept, run, until

import numpy as np

import engine
from allocsim.allocators import ALLOCATORS
from allocsim.judge.fast import check
from engine import tensor
from engine.front import functions as fn
from engine.runtime import entrance

STRUCTURES = (
    lambda x, w: ((x * w).tanh() * x + w.exp()).sum(),
    lambda x, w: ((x @ w.T).relu() @ w).sum(),
    lambda x, w: ((x.T * w.T).softmax() ** 2).sum(),
    lambda x, w: fn.cross_entropy(x @ w.T, [0, 1, 2, 0]),
    lambda x, w: ((x[1:] * w[:-1]).exp() / (1 + x[:1].exp())).sum(),
    lambda x, w: fn.layer_norm(x.T.reshape(4, 4)).sigmoid().sum() * w.sum(),
)
DATA = 16
"""Different data of each structure."""


def gradients(number: int, allocator: str) -> bytes:
    """Make one pass over structure `number`, with its data, and return the bits of its gradients."""
    generator = np.random.default_rng(number)
    x, w = (tensor(generator.standard_normal((4, 4)).astype(np.float32), requires_grad=True) for _ in range(2))
    STRUCTURES[number % len(STRUCTURES)](x, w).backward(allocator=allocator)
    return b"".join(t.grad.numpy().tobytes() for t in (x, w) if t.grad is not None)


def campaign(allocator: str, threads: int, passes: int) -> dict[str, float]:
    """Run the passes by one planner and return its figures."""
    judged: list[float] = []

    def counted(document: object, **how: object) -> object:
        began = time.thread_time()
        report = check(document, **how)  # type: ignore[arg-type]
        judged.append(time.thread_time() - began)
        return report

    entrance.check = counted  # type: ignore[assignment]
    entrance._known.clear()  # noqa: SLF001 - so that each structure is judged here
    engine.clear()
    kinds = len(STRUCTURES) * DATA
    wanted = [gradients(number, allocator) for number in range(kinds)]
    began = time.thread_time()
    again = [gradients(number, allocator) for number in range(kinds)]
    kept = (time.thread_time() - began) / kinds
    serial = len(judged)

    def work(thread: int) -> int:
        return sum(gradients((thread + n) % kinds, allocator) != wanted[(thread + n) % kinds] for n in range(passes))

    before, cpu = sys.getswitchinterval(), time.process_time()
    sys.setswitchinterval(1e-5)
    with ThreadPoolExecutor(threads) as pool:
        wrong = sum(pool.map(work, range(threads)))
    sys.setswitchinterval(before)
    entrance.check = check
    return {
        "passes": threads * passes,
        "wrong": wrong + sum(a != b for a, b in zip(wanted, again, strict=True)),
        "judged": serial,
        "judged_by_threads": len(judged) - serial,
        "judging": round(sum(judged[:serial]) / serial / kept, 2),
        "kept_bytes": engine.kept_bytes(),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def measure(
    *, passes: int = 10_000, threads: int = 8, planners: tuple[str, ...] = (), seconds: float = float("inf"), out: Path
) -> Iterator[Found]:
    """Run what is not done yet; no planner is begun after so many seconds."""
    size = {"threads": threads, "passes_of_each": passes}
    done = kept(out)
    found = done["planners"] if {key: done.get(key) for key in size} == size else {}
    for name in until(seconds, [name for name in planners or ALLOCATORS if name not in found]):
        found[name] = campaign(name, threads, passes)
        print(name, found[name], flush=True)
        yield {**size, "planners": found, "wrong": sum(row["wrong"] for row in found.values())}


if __name__ == "__main__":
    run(measure, failed="wrong", known={"planners": ALLOCATORS})
