"""Detector L in bytes: what lifetimes that are believed too long waste, and what the peak would be with right ones.

    python benchmarks/waste.py [--seq 64] [--layers 30] [--out FILE]

What ggml's counting believes of the engine's training graph and of the graphs captured from real ggml, with ggml's own placement and one that places by size.
Figures are bytes and do not depend on the machine. `wasted` is bytes times steps; `live` the most bytes alive at a step, `peak` what the placement needs, each
as believed and with right lifetimes.
"""

from collections.abc import Iterator

from harness import DATA, Found, run

from allocsim import systems
from allocsim.allocators import ALLOCATORS
from allocsim.liveness.waste import waste
from allocsim.model import Program
from engine.graph.lowering import lower
from repro import lora_setup, scenarios

PLACEMENTS = ("ggml", "greedy_by_size")


def programs(layers: int, seq: int) -> Iterator[tuple[str, Program]]:
    """Yield the training graph of the scenarios, and every graph captured from ggml."""
    setup = lora_setup.set_up(scenarios.find("ggml-1501").training, layers=layers, seq=seq)
    yield f"training, {layers} layers", lower(setup.graph, (setup.loss,)).program
    for path in sorted((DATA / "ggml").glob("*.json")):
        yield path.stem, systems.load(path).programs[0]


def of(program: Program) -> Found:
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


def measure(*, layers: int = 30, seq: int = 64) -> Iterator[Found]:
    """Ask of one program after the other."""
    found: Found = {}
    for name, program in programs(layers, seq):
        found[name] = {"ops": len(program.ops), "buffers": len(program.buffers), **of(program)}
        print(f"{name:24} {found[name]}", flush=True)
        yield found


if __name__ == "__main__":
    run(measure)
