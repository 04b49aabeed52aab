"""What `allocsim fuzz ggml` costs a graph, and after how many graphs it comes upon each unsafe pair of kernels by itself.

    python benchmarks/ggml_fuzzing.py [--out FILE] [--ggml before,after] [--graphs 1024] [--seeds 3] [--minutes 1.0]

CPU of this process, the server and its forks: that of a campaign of `--graphs`, less that of one without a graph, which starts the library. `per_graph_ms` has the findings in it, and that K and
D name the first of each cause; `per_clean_graph_ms` is a campaign of the graphs that have none. `loop_ns` is what a turn of an empty loop took then: on a busy machine all of it takes longer. Pairs: `--seeds` campaigns of seeds far apart, each until every pair
that the audit convicts was named, or `--minutes` of wall time are over; seconds of CPU until then.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from harness import Found, kept, loop_ns, run, spent

from allocsim.systems.ggml.access.probe import open_library
from allocsim.systems.ggml.random_graphs.graph_fuzzing import BATCH, fuzz

PAIRS: Final = {
    "before": ("RMS_NORM_BACK/0", "SOFT_MAX_BACK/1", "ADD_ID/1", "SOFT_MAX/2", "ROPE/2", "ROPE_BACK/2"),
    "after": ("ADD_ID/1", "SOFT_MAX/2", "ROPE/2", "ROPE_BACK/2"),
}
"""What the audit calls unsafe or racing, by library."""

APART: Final = 1_000_000
"""Between the first seeds of two campaigns."""


def measure(
    *, ggml: tuple[str, ...] = ("before", "after"), graphs: int = 1024, seeds: int = 3, minutes: float = 1.0, out: Path
) -> Iterator[Found]:
    """Measure the libraries that are named; what was measured of others is kept."""
    found = {which: row for which, row in kept(out).items() if which in PAIRS}
    for which in ggml:
        found[which] = {**cost(which, graphs), "pairs": [pairs(which, number, minutes) for number in range(seeds)]}
        yield found


def cost(which: str, graphs: int) -> dict[str, Any]:
    """Return milliseconds of CPU for each graph of a campaign, all and those without a finding."""
    with open_library(which) as child:
        wrong = {fault.seed for fault in fuzz(child, range(graphs))}
    right = [seed for seed in range(graphs) if seed not in wrong]
    start, everything, clean = spent_by(which, ()), spent_by(which, range(graphs)), spent_by(which, right)
    return {
        "graphs": graphs,
        "findings": len(wrong),
        "per_graph_ms": round(1e3 * (everything - start) / graphs, 2),
        "per_clean_graph_ms": round(1e3 * (clean - start) / len(right), 2),
        "loop_ns": loop_ns(),
    }


def spent_by(which: str, seeds: Sequence[int]) -> float:
    """Return the CPU seconds of a campaign, its server and forks among them."""
    before = spent()
    with open_library(which) as child:
        list(fuzz(child, seeds))
    return spent() - before


def pairs(which: str, number: int, minutes: float) -> dict[str, Any]:
    """Return for each pair after how many graphs and wall seconds it was named first."""
    wanted = {f"C04 kernel: {pair.replace('/', ' over source ')}": pair for pair in PAIRS[which]}
    first: dict[str, list[float]] = {}
    known: set[str] = set()
    began, seed = time.monotonic(), APART * number
    with open_library(which) as child:
        while len(first) < len(wanted) and time.monotonic() < began + 60 * minutes:
            for fault in fuzz(child, range(seed, seed + BATCH), known=known):
                name = wanted.get(fault.cause.removeprefix("on two backends: "))
                if name is not None and name not in first:
                    first[name] = [fault.seed - APART * number + 1, round(time.monotonic() - began, 1)]
            seed += BATCH
    return {"from_seed": APART * number, "graphs": seed - APART * number, "first_graph_and_seconds": first}


if __name__ == "__main__":
    run(measure)
