"""Detector L in bytes: what lifetimes that are believed too long waste, and what the peak would be with right ones.

    python benchmarks/waste.py [--seq 64] [--layers 30] [--out FILE]

What ggml's counting believes of the engine's training graph and of the graphs captured from real ggml, with ggml's own placement and one that places by size.
Figures are bytes and do not depend on the machine. `wasted` is bytes times steps; `live` the most bytes alive at a step, `peak` what the placement needs, each
as believed and with right lifetimes.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim import systems  # noqa: E402 - after the path above
from allocsim.allocators import ALLOCATORS  # noqa: E402 - as above
from allocsim.liveness.waste import waste  # noqa: E402 - as above
from allocsim.model import Program  # noqa: E402 - as above

PLACEMENTS = ("ggml", "greedy_by_size")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="What lifetimes that are too long cost.")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "waste.json")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name, program in programs(options.layers, options.seq):
        results[name] = {"ops": len(program.ops), "buffers": len(program.buffers), **of(program)}
        print(f"{name:24} {results[name]}", flush=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")


def programs(layers: int, seq: int) -> Iterator[tuple[str, Program]]:
    """Yield the training graph of the scenarios, and every graph captured from ggml."""
    from engine.graph.lowering import lower  # noqa: PLC0415 - loads kernels
    from repro import lora_setup, scenarios  # noqa: PLC0415 - as above

    setup = lora_setup.set_up(scenarios.find("ggml-1501").training, layers=layers, seq=seq)
    yield f"training, {layers} layers", lower(setup.graph, (setup.loss,)).program
    for path in sorted((HERE.parent / "tests" / "data" / "ggml").glob("*.json")):
        yield path.stem, systems.load(path).programs[0]


def of(program: Program) -> dict[str, Any]:
    """Return the waste of ggml's belief."""
    problem = ALLOCATORS["ggml"].believe(program)
    found = {name: waste(problem, ALLOCATORS[name]) for name in PLACEMENTS}
    one = next(iter(found.values()))
    return {
        "too long": len(one.buffers),
        "wasted": one.wasted,
        "live": [one.live_believed, one.live],
        "peak": {name: [each.peak_believed, each.peak] for name, each in found.items()},
        "most wasteful": [[row.name, row.nbytes, list(row.believed), list(row.derived)] for row in one.buffers[:3]],
    }


if __name__ == "__main__":
    main()
