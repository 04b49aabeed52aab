"""A deep graph of scalars, typed: microseconds of CPU time a node, against HIPS autograd where it is installed.

    python benchmarks/scalars.py [--nodes N] [--rounds N] [--out FILE]

`front` is computing and recording one op; `backward` is all of the first `y.backward()` of a structure: derivative, planning, binding, run.
Both sides take turns on the same chain of products, sums and tanh. Medians over rounds.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from engine import tensor  # noqa: E402 - after the path above


def chain(x, w, nodes, tanh):  # noqa: ANN001, ANN201 - of either side's numbers
    """Return the end of a chain of `nodes` ops."""
    y = x
    for _ in range(nodes // 4):
        y = tanh(y * w + x) * 0.5
    return y


def ours(nodes: int) -> tuple[float, float, float]:
    """Return (seconds of the front, seconds of backward, derivative by x)."""
    x, w = tensor(0.5, requires_grad=True), tensor(0.999, requires_grad=True)
    start = time.process_time()
    y = chain(x, w, nodes, lambda t: t.tanh())
    recorded = time.process_time()
    y.backward()
    end = time.process_time()
    assert x.grad is not None
    return recorded - start, end - recorded, x.grad.item()


def theirs(nodes: int) -> tuple[float, float] | None:
    """Return (seconds in all, derivative by x) of HIPS autograd; None where it is not installed."""
    try:
        import autograd.numpy as anp  # noqa: PLC0415 - an optional peer
        from autograd import grad  # noqa: PLC0415
    except ImportError:
        return None
    start = time.process_time()
    found = grad(lambda x, w: chain(x, w, nodes, anp.tanh), argnum=(0, 1))(0.5, 0.999)
    return time.process_time() - start, float(found[0])


def main() -> None:
    """Measure in turns, print, write."""
    parser = argparse.ArgumentParser(description="A deep graph of scalars, typed.")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "scalars.json")
    options, _ = parser.parse_known_args()
    ours(400)  # kernels loaded, modules imported
    rounds = []
    for _ in range(options.rounds):
        front, backward, derivative = ours(options.nodes)
        peer = theirs(options.nodes)
        if peer is not None and abs(peer[1] - derivative) > 1e-9 * abs(derivative):
            sys.exit(f"the derivatives differ: {derivative} and {peer[1]}")
        rounds.append((front, backward, (front + backward) / peer[0] if peer else float("nan")))
    figures = {
        "nodes": options.nodes,
        "front_us_per_node": round(median(r[0] for r in rounds) / options.nodes * 1e6, 2),
        "backward_us_per_node": round(median(r[1] for r in rounds) / options.nodes * 1e6, 2),
        "ratio_to_autograd": round(median(r[2] for r in rounds), 2),
    }
    print(json.dumps(figures))
    options.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
